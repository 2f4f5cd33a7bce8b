"""Choosing a language model's normalisation and premise by a few labels.

The base model scores the sample's questions to label in every way. Of `n` questions drawn at random
the labels choose one way, by their accuracy or, as `--normalisation auto`, by their likelihood at a
temperature fitted to them; it is judged on the other questions. The test questions are not read.

    python benchmarks/normalisation_choice.py --json benchmarks/results/normalisation_choice.json
    python benchmarks/normalisation_choice.py --from benchmarks/results/normalisation_choice.json
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from _refits import model_of
from numpy.typing import NDArray

PREMISES = ("template", "last_line", "empty")
LABELS, DRAWS = (8, 25, 50, 109), 200
Scores = dict[str, NDArray[np.float64]]  # of each way, (n, K)


def measure() -> dict[str, Any]:
    """The accuracy of every way on all questions, and of the ways chosen on the others."""
    from stacksl.lm.sample.questions import questions

    data, _ = questions()
    gold = np.array([data.answers[item.id] for item in data.items])
    ways: Scores = {}
    for premise in PREMISES:
        found = model_of({"pmi_context": premise}, 0).scores(data.items)
        ways |= {kind: np.array(found[kind]) for kind in ("token_mean", "sum", "char_mean")}
        ways[f"pmi, {premise}"] = np.array(found["pmi"])
    right = {way: scores.argmax(axis=1) == gold for way, scores in ways.items()}
    rows = [one(ways, right, gold, n, seed) for n in LABELS for seed in range(DRAWS)]
    return {"ways": {way: float(own.mean()) for way, own in right.items()}, "rows": rows}


def one(
    ways: Scores, right: dict[str, NDArray[np.bool_]], gold: NDArray[np.int64], n: int, seed: int
) -> dict[str, Any]:
    """What a draw of n labels chooses; a tie goes to the first way."""
    from stacksl.lm.scoring.normalise import calibrated_loss

    rows = np.random.default_rng(seed).choice(len(gold), n, replace=False)
    others = np.setdiff1d(np.arange(len(gold)), rows)
    by = {
        "accuracy": max(ways, key=lambda way: right[way][rows].mean()),
        "likelihood": min(ways, key=lambda way: calibrated_loss(ways[way][rows], gold[rows])),
    }
    accuracy = {how: float(right[way][others].mean()) for how, way in by.items()}
    return {"labels": n, "seed": seed, "chosen": by, "accuracy": accuracy}


def table(found: dict[str, Any]) -> str:
    """What the ways give without a label, then what a few labels choose."""
    ways = found["ways"]
    best = max(ways, key=ways.__getitem__)
    lines = ["| normalisation, premise | accuracy |", "|---|---|"]
    lines += [f"| {way} | {accuracy:.3f} |" for way, accuracy in ways.items()]
    lines += [
        "",
        f"| labels | accuracy of the way chosen by accuracy, by likelihood | {best} chosen |",
        "|---|---|---|",
    ]
    for n in LABELS:
        rows = [row for row in found["rows"] if row["labels"] == n]
        how = ("accuracy", "likelihood")
        means = [f"{np.mean([row['accuracy'][each] for row in rows]):.3f}" for each in how]
        counts = [Counter(row["chosen"][each] for row in rows)[best] for each in how]
        share = ", ".join(f"{count / len(rows):.0%}".replace("%", " %") for count in counts)
        lines.append(f"| {n} | {', '.join(means)} | {share} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    words = parser.parse_args()
    found = json.loads(words.source.read_text()) if words.source else measure()
    if words.json:
        words.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
