"""The annotators' test on simulated runs: false alarms, and a permuted class list found.

    python benchmarks/annotators.py [--runs 1000]

Classes are points on a sphere in 24 dimensions; items, and the names of the classes, are noisy
copies: with 64 classes the names alone are right on about .55 of all items, as a sentence encoder
was on the set that the project was tried with. The model's class means begin at the names and take
in every label learned, those of a permuted list as well. Of 240 fresh items 24 of the 80 most
doubtful are dealt out in turns. An honest annotator is right on the given share, else names another
class uniformly; a permuted list gives each of these answers another place. The test is made after
every batch, as `stacksl answer` does, by the names' prediction, or without names by the model's.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from stacksl.models.annotators import compare_annotators, doubt_of

DIM, BATCH, DOUBTFUL, DRAWN, BATCHES = 24, 24, 80, 240, 20
Array = NDArray[np.float64]


def noisy(rng: np.random.Generator, points: Array) -> Array:
    return points + rng.normal(size=points.shape) / np.sqrt(DIM)


def play(
    rng: np.random.Generator, classes: int, right: list[float], names: bool, permuted: bool
) -> tuple[list[int], int]:
    """One run: the annotators it accused, and the first one's answers by then."""
    means = rng.normal(size=(classes, DIM))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    named = noisy(rng, means)
    sums, counts = named * names, np.full(classes, 1.0 if names else 1e-9)
    order = np.arange(classes)
    if permuted:
        shuffled = rng.permutation(classes)
        order[shuffled] = np.roll(shuffled, 1)  # one cycle: no class keeps its place
    who: list[int] = []
    agreed: list[bool] = []
    doubt: list[float] = []
    people = list(range(len(right)))
    for _ in range(BATCHES):
        gold = rng.integers(classes, size=DRAWN)
        items = noisy(rng, means[gold])
        centers = sums / counts[:, None]
        predicted, doubts = doubt_of(items @ centers.T - (centers**2).sum(axis=1) / 2)
        picked = rng.permutation(np.argsort(-doubts, kind="stable")[:DOUBTFUL])[:BATCH]
        if names:
            predicted, doubts = doubt_of(items @ named.T - (named**2).sum(axis=1) / 2)
        for place, item in enumerate(picked.tolist()):
            person, label = place % len(right), int(gold[item])
            if rng.random() > right[person]:
                label = int((label + rng.integers(1, classes)) % classes)
            if permuted and person == 0:
                label = int(order[label])
            who.append(person)
            agreed.append(label == predicted[item])
            doubt.append(float(doubts[item]))
            sums[label] += items[item]
            counts[label] += 1
        comparisons = compare_annotators(
            np.array(who), np.array(agreed), np.array(doubt), people, people
        )
        if accused := [each.annotator for each in comparisons if each.differs]:
            return accused, who.count(0)
    return [], who.count(0)


CASES = (
    ("2, right on 80%", [0.8, 0.8], 64, True),
    ("2, right on 80%", [0.8, 0.8], 8, True),
    ("3, right on 80%", [0.8, 0.8, 0.8], 64, True),
    ("2, right on 65 and 90%", [0.65, 0.9], 64, True),
    ("2, right on 80%", [0.8, 0.8], 64, False),
    ("3, right on 80%", [0.8, 0.8, 0.8], 64, False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    print(
        "| annotators | classes | names | false alarms | found | others accused | answers needed |"
    )
    print("|---|---|---|---|---|---|---|")
    for number, (about, right, classes, names) in enumerate(CASES):
        results = [
            [
                play(np.random.default_rng([options.seed, number, n, kind]), *task, bool(kind))
                for n in range(options.runs)
            ]
            for kind, task in enumerate([(classes, right, names)] * 2)
        ]
        alarms = sum(bool(accused) for accused, _ in results[0])
        hits = [answers for accused, answers in results[1] if accused == [0]]
        wrong = sum(bool(set(accused) - {0}) for accused, _ in results[1])
        quantiles = [np.quantile(hits, q, method="higher") for q in (0.5, 0.95)] if hits else []
        needed = ", ".join(f"{value:.0f}" for value in quantiles) or "–"
        shares = " | ".join(f"{n / options.runs:.1%}" for n in (alarms, len(hits), wrong))
        shown = "yes" if names else "no"
        print(f"| {about} | {classes} | {shown} | {shares} | {needed} |", flush=True)
    print(f"\n{options.runs} runs each, seed {options.seed}, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
