"""Whether the set for softmax labels keeps the best fixed θ of a text, where nothing is promised.

    python benchmarks/label_set_on_text.py QUESTIONS.csv [--rows 2000] [--json FILE]

`newton` buys labels of the rows in a random order, all (`first`) or by `margin`, on pairs of a
prompt and a candidate under 32 hashing features; `grouped` is `first` on the rows in the order of
the file, which may have its classes one after the other. After so many labels the loss of the best
θ in hindsight, fitted to all rows with their labels, is compared with the threshold of the
mixture's set. Labels drawn from the softmax of that same θ are the control. Last, for the two
classes with most rows as class heads: how many choices on 50 further rows the set certifies.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.blocks import PairFeatures
from stacksl.core.gates.registry import make_gate
from stacksl.core.rng import generator
from stacksl.core.scorers.base import ScorerSettings
from stacksl.data import read
from stacksl.features.hashing import HashingEncoder
from stacksl.features.maps import TextMap
from stacksl_lab.engines import run_stream
from stacksl_lab.likelihood import LabelLoss, LikelihoodSet, label_loss, mixture_loss, refuted

DIM, RIDGE, DELTA = 32, 1e-3, 0.05
COUNTS = (50, 100, 200, 500, 1000)
CHECKED = 50
Array = np.ndarray[Any, Any]


def features(file: Path, rows: int) -> tuple[Array, Array, Array]:
    """φ, (T, K, d), and labels, (T,), of some rows in a random order; their order in the file."""
    dataset = read(file)
    labeled = [
        (item, dataset.answers[item.id]) for item in dataset.items if item.id in dataset.answers
    ]
    order = generator(0, "text").permutation(len(labeled))[:rows]
    items = [labeled[at][0] for at in order]
    encoder = TextMap(HashingEncoder(DIM), None)
    encoder.fit(items)
    block = encoder.transform(items)
    phi = np.stack([each.phi for each in block])
    return phi, np.array([labeled[at][1] for at in order]), np.argsort(order)


def losses(phi: Array, labels: Array) -> LabelLoss:
    """L of the labels over all candidates."""
    everyone = tuple(range(phi.shape[1]))
    return label_loss([PairFeatures(each) for each in phi], [everyone] * len(phi), labels.tolist())


def measured(phi: Array, labels: Array, truth: Array, gate: str) -> list[dict[str, float]]:
    """After some labels bought by `gate`: nats of θ = `truth` below the threshold of its set."""
    bound = float(np.linalg.norm(truth))
    played = run_stream(
        "newton",
        phi,
        labels=labels,
        gate=make_gate("margin" if gate == "margin" else "first"),
        budget=max(COUNTS),
        settings=ScorerSettings(norm_bound=bound),
        certificates=False,
        engine="loop",
    )
    asked = np.flatnonzero(played.asked)
    rows = []
    for count in (count for count in COUNTS if count <= len(asked)):
        bought = losses(phi[asked[:count]], labels[asked[:count]])
        level = float(mixture_loss(bought, bound / math.sqrt(DIM))) + math.log(1.0 / DELTA)
        best = LabelLoss(bought.pairs, bought.offset, RIDGE)
        rows.append(
            {
                "labels": count,
                "refuted": refuted(bought, bound, DELTA),
                "room": level - float(bought.value(truth)),
                "over_best": float(bought.value(truth) - bought.value(best.least())),
            }
        )
    return rows


def two_classes(file: Path) -> list[dict[str, float]]:
    """Choices certified between two classes; of their heads only w = θ_1 − θ_0 matters."""
    dataset = read(file)
    counts = np.bincount([dataset.answers[item.id] for item in dataset.items])
    pair = np.argsort(-counts, kind="stable")[:2]
    items = [item for item in dataset.items if dataset.answers[item.id] in pair]
    items = [items[at] for at in generator(0, "two classes").permutation(len(items))]
    side = np.array([1.0 if dataset.answers[item.id] == pair[1] else -1.0 for item in items])
    encoder = TextMap(HashingEncoder(), dataset.classes)
    encoder.fit(items)
    block = encoder.transform(items)
    rows = np.array([each.h for each in block])
    count = len(items) - CHECKED
    pairs = np.zeros((count, 2, encoder.dim))
    pairs[:, 1] = -side[:count, None] * rows[:count]  # of the other class, less the gold's
    found = []
    for bound in (1.0, 4.0, 16.0, 64.0):
        held = LikelihoodSet.of(LabelLoss(pairs, np.zeros((count, 2))), 2**0.5 * bound, DELTA)
        scores = rows[count:] @ held.center
        proved = held.below(-np.sign(scores)[:, None] * rows[count:])
        right = np.sign(scores) == side[count:]
        found.append(
            {
                "norm_bound": bound,
                "labels": count,
                "certified": int(proved.sum()),
                "right": int(right.sum()),
                "of": CHECKED,
            }
        )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    phi, labels, in_file = features(arguments.file, arguments.rows)
    every = losses(phi, labels)
    truth = LabelLoss(every.pairs, every.offset, RIDGE).least()
    scores = phi @ truth
    drawn = (scores + generator(0, "control").gumbel(size=scores.shape)).argmax(axis=1)
    rows = []
    for kind, answers in (("own", labels), ("drawn from the softmax", drawn)):
        for gate in ("first", "margin", "grouped"):
            order = in_file if gate == "grouped" else np.arange(len(phi))
            for each in measured(phi[order], answers[order], truth, gate):
                rows.append({"labels_of": kind, "gate": gate, **each})
                print(rows[-1], file=sys.stderr)
    accuracy = float((scores.argmax(axis=1) == labels).mean())
    about = {"norm": float(np.linalg.norm(truth)), "accuracy": accuracy, "candidates": phi.shape[1]}
    two = two_classes(arguments.file)
    text = json.dumps({"file": arguments.file.name, **about, "rows": rows, "two": two}, indent=1)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
