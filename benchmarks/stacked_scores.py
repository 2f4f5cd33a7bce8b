"""Weights of log p and of a premise fitted to labels, next to one normalization chosen by them.

Of `n` questions of the sample, drawn at random from those to label, the labels choose one of six
ways to score, as `--normalization auto` does, or fit weights: s = (a log p(option | prompt) -
b log p(option | premise)) / T, where T is that of `pmi` before any label (`prior_temperature`).
The prior of a and of b is normal, of mean 1 (which is `pmi`) and standard deviation 1/2, and the
premise is the one of the largest posterior density. Both are judged on the other questions to label
and on the test questions, by the frozen base model, without a refit.

The form of the weights and their prior were chosen on questions to label alone.

    python benchmarks/stacked_scores.py --json benchmarks/results/stacked_scores.json
    python benchmarks/stacked_scores.py --from benchmarks/results/stacked_scores.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _rows import interval
from language_model_table import shown
from normalization_choice import PREMISES, Scores, scores_of
from numpy.typing import NDArray

LABELS, SEEDS = (25, 109, 218, 546), 10
SPREAD = 0.5  # standard deviation of the prior
FILES = {"label": "the other questions to label", "test": "the test questions"}
Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def weighed(sums: Array, alone: Array, gold: Ints) -> tuple[float, float, float]:
    """The a / T and b / T of the largest posterior density, and minus its logarithm.

    Args:
        sums: (n, K) log p(option | prompt) of labeled items.
        alone: (n, K) log p(option | premise).
        gold: (n,) the index of each one's label.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    from stacksl.lm.scoring.normalize import prior_temperature

    scale, rows = prior_temperature(list(sums - alone)), np.arange(len(gold))
    parts = np.stack([sums, -alone], axis=2) / scale

    def loss(weights: Array) -> tuple[float, Array]:
        logs = log_softmax(parts @ weights, axis=1)
        residual, apart = np.exp(logs), (weights - 1) / SPREAD
        residual[rows, gold] -= 1
        slope = np.einsum("nk,nkw->w", residual, parts) + apart / SPREAD
        return float(0.5 * apart @ apart - logs[rows, gold].sum()), slope

    fit = minimize(loss, np.ones(2), jac=True, method="L-BFGS-B")
    return float(fit.x[0] / scale), float(fit.x[1] / scale), float(fit.fun)


def stacked(ways: Scores, rows: Ints, gold: Ints) -> tuple[str, float, float]:
    """The premise and the weights, divided by T, that the labels of `rows` give."""
    weights = {}
    for premise in PREMISES:
        sums = ways["sum"][rows]
        weights[premise] = weighed(sums, sums - ways[f"pmi, {premise}"][rows], gold[rows])
    best = min(weights, key=lambda premise: weights[premise][2])
    return best, *weights[best][:2]


def weigh(ways: Scores, premise: str, a: float, b: float) -> Array:
    """The scores (n, K) under weights."""
    return a * ways["sum"] - b * (ways["sum"] - ways[f"pmi, {premise}"])


def measure(known: Mapping[str, tuple[Scores, Ints]]) -> dict[str, Any]:
    """Which questions each way answers rightly, by labels and seed."""
    from stacksl.lm.scoring.normalize import calibrated_loss

    ways, gold = known["label"]
    found: list[dict[str, Any]] = []
    for count in LABELS:
        for seed in range(SEEDS):
            rows = np.random.default_rng(seed).choice(len(gold), count, replace=False)
            losses = {way: calibrated_loss(own[rows], gold[rows]) for way, own in ways.items()}
            chosen = min(losses, key=losses.__getitem__)
            weights = stacked(ways, rows, gold)
            row = {"labels": count, "seed": seed, "bought": sorted(rows.tolist())}
            row |= {"chosen": chosen, "premise": weights[0]}
            row |= {"weights": [round(each, 4) for each in weights[1:]]}
            for file, (own, right) in known.items():
                for name, scores in (("chosen", own[chosen]), ("stacked", weigh(own, *weights))):
                    bits = np.packbits(scores.argmax(axis=1) == right).tobytes().hex()
                    row[f"{file}, {name}"] = bits
            found.append(row)
    return {"n": {file: len(right) for file, (_, right) in known.items()}, "rows": found}


def table(found: dict[str, Any]) -> str:
    """The accuracy of both, and the difference with 95% intervals over seeds and questions."""
    lines = [
        "| judged on | labels | one chosen | weights fitted | difference, seeds | questions |",
        "|---|---|---|---|---|---|",
    ]
    for file, name in FILES.items():
        for count in LABELS:
            rows = [row for row in found["rows"] if row["labels"] == count]
            right = {
                way: np.array([bits(row, f"{file}, {way}", found["n"][file]) for row in rows])
                for way in ("chosen", "stacked")
            }
            judged = np.ones(right["chosen"].shape, bool)
            if file == "label":
                for place, row in enumerate(rows):
                    judged[place, row["bought"]] = False
            means = {
                way: [own[mask].mean() for own, mask in zip(each, judged, strict=True)]
                for way, each in right.items()
            }
            apart = (right["stacked"].astype(float) - right["chosen"]) * judged
            times = judged.sum(axis=0)
            each = apart.sum(axis=0)[times > 0] / times[times > 0]
            gap = np.array(means["stacked"]) - means["chosen"]
            lines.append(
                f"| {name} | {count} | {shown(*interval(means['chosen']))} |"
                f" {shown(*interval(means['stacked']))} | {shown(*interval(gap), sign=True)} |"
                f" {1.96 * each.std(ddof=1) / len(each) ** 0.5:.3f} |"
            )
    return "\n".join(lines)


def bits(row: dict[str, Any], name: str, n: int) -> NDArray[np.bool_]:
    """Which of n questions were answered rightly."""
    packed = np.frombuffer(bytes.fromhex(row[name]), np.uint8)
    return np.unpackbits(packed)[:n].astype(bool)


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    words = parser.parse_args()
    record = json.loads(words.source.read_text()) if words.source else measure(scored())
    if words.json:
        words.json.write_text(json.dumps(record) + "\n")
    print(table(record))


def scored() -> dict[str, tuple[Scores, Ints]]:
    """The base model's scores of both files in every way, with their answers."""
    from stacksl_lab.sample.questions import questions

    known = {}
    for file, data in zip(FILES, questions(), strict=True):
        gold = np.array([data.answers[item.id] for item in data.items])
        known[file] = scores_of(data.items), gold
    return known


if __name__ == "__main__":
    main()
