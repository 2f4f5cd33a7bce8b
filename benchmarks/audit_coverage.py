"""Does the audit's interval hold? How often it covers the accuracy that it is meant to tell.

For each seed a uniform block of a third of the pool, at most 3,000 items, is kept from a run of
`stacksl run`, which buys labels of the rest: 10 % of its items, less an audit of the default size.
Then 2,000 audits of that size are drawn from the block as a run draws its own, and each gives a
95 % Wilson interval; `covered` is the share of them that hold the final model's accuracy on the
whole block. `exact` is the same share over all possible audits: the probability under the
hypergeometric distribution. The block is finite and audits are drawn from it without
replacement, which makes intervals for new items a little wide here; `binomial` is the exact
coverage of the accuracy on new items, where there is no such help.

    python benchmarks/audit_coverage.py --data $STACKSL_DATA --json results.json
    python benchmarks/audit_coverage.py --from results.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import stacksl
from stacksl.core.rng import generator
from stacksl.data import Dataset, read, sample
from stacksl.models.audit import default_size, draw
from stacksl.models.metrics import wilson
from stacksl.runs.settings.budget import parse_budget

LARGEST_BLOCK = 3000
AUDITS = 2000
BUDGET = "0.1"
SETS = {
    "banking77": "sentences:minilm",
    "openbookqa": "sentences:minilm",
    "sample": "hashing",
}
MEAN_BAR, LEAST_BAR = (0.93, 0.98), 0.91


def load(name: str, folder: Path) -> Dataset:
    """A data set with all its answers."""
    if name == "sample":
        return sample()[0]
    ending = "train.csv" if name == "banking77" else "train.jsonl.gz"
    return read(folder / name / ending)


def split(dataset: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """What the run may see, in the order of the file, and the block that is kept from it."""
    size = min(len(dataset.items) // 3, LARGEST_BLOCK)
    order = generator(seed, "benchmark/block").permutation(len(dataset.items))
    block = {int(row) for row in order[:size]}
    parts = ([], [])  # type: tuple[list[Any], list[Any]]
    for row, item in enumerate(dataset.items):
        parts[row in block].append(item)
    rest, kept = (
        replace(dataset, items=tuple(p), answers={i.id: dataset.answers[i.id] for i in p})
        for p in parts
    )
    return rest, kept


def right_answers(rest: Dataset, block: Dataset, seed: int, features: str) -> dict[str, Any]:
    """A run over `rest`, and which items of the block its final model answers rightly."""
    labels = parse_budget(BUDGET, len(rest.items), None).labels
    size = default_size(labels)
    with tempfile.TemporaryDirectory() as folder:
        run = stacksl.run(
            rest,
            budget=labels - size,
            audit=0,
            seed=seed,
            features=features,
            out=Path(folder) / "run",
        )
        said = [row["index"] for row in run.predict(block.items)]
        mode = json.loads((run.path / "facts.json").read_text())["method"]["mode"]
    gold = [block.answers[item.id] for item in block.items]
    right = np.array(said) == np.array(gold)
    return {"items": len(rest.items), "labels": labels, "audit": size, "right": right, "mode": mode}


def covers(correct: int, size: int, truth: float) -> bool:
    """Whether Wilson's interval of an audit holds the truth."""
    low, high = wilson(correct, size)
    return low <= truth <= high


def simulated(right: np.ndarray, size: int, seed: int) -> float:
    """The share of `AUDITS` audits, drawn as a run draws its own, that cover the block."""
    truth = float(right.mean())
    hits = [
        covers(int(right[draw(len(right), size, seed, epoch=number)].sum()), size, truth)
        for number in range(AUDITS)
    ]
    return float(np.mean(hits))


def exact(size: int, truth: float, mass: Callable[[np.ndarray], np.ndarray]) -> float:
    """The probability that an audit covers, from that of every count of right answers."""
    counts = np.arange(size + 1)
    inside = np.array([covers(int(count), size, truth) for count in counts])
    return float(mass(counts)[inside].sum())


def measure(name: str, dataset: Dataset, seed: int) -> dict[str, Any]:
    """One run with its 2,000 audits."""
    from scipy.stats import binom, hypergeom

    rest, block = split(dataset, seed)
    run = right_answers(rest, block, seed, SETS[name])
    right, size = run.pop("right"), run["audit"]
    correct, n = int(right.sum()), len(right)
    truth = correct / n
    return {
        "set": name,
        "seed": seed,
        "features": SETS[name],
        **run,
        "block": n,
        "correct": correct,
        "accuracy": truth,
        "audits": AUDITS,
        "covered": simulated(right, size, seed),
        "exact": exact(size, truth, lambda k: hypergeom(n, correct, size).pmf(k)),
        "binomial": exact(size, truth, lambda k: binom(size, truth).pmf(k)),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a data set: mean and least coverage, and whether they meet the bars."""
    lines = []
    for name in SETS:
        mine = [row for row in rows if row["set"] == name]
        if not mine:
            continue
        taken = {key: np.array([row[key] for row in mine]) for key in ("covered", "exact")}
        mean, least = float(taken["covered"].mean()), float(taken["covered"].min())
        lines.append(
            {
                "set": name,
                "runs": len(mine),
                "audit": mine[0]["audit"],
                "block": mine[0]["block"],
                "accuracy": float(np.mean([row["accuracy"] for row in mine])),
                "mean": mean,
                "least": least,
                "exact": float(taken["exact"].mean()),
                "exact_least": float(taken["exact"].min()),
                "binomial": float(np.mean([row["binomial"] for row in mine])),
                "met": MEAN_BAR[0] <= mean <= MEAN_BAR[1] and least >= LEAST_BAR,
            }
        )
    return lines


def table(rows: list[dict[str, Any]]) -> str:
    """The summary as Markdown."""
    lines = [
        "| set | runs | audit of | block | accuracy on the block | coverage, mean | least"
        " | exact, mean | least | new items, mean | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in summary(rows):
        shares = [f"{100 * row[k]:.1f} %" for k in ("mean", "least", "exact", "exact_least")]
        lines.append(
            f"| {row['set']} | {row['runs']} | {row['audit']} | {row['block']:,} |"
            f" {row['accuracy']:.3f} | {' | '.join(shares)} | {100 * row['binomial']:.1f} % |"
            f" {'met' if row['met'] else 'missed'} |"
        )
    return "\n".join(lines)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows with what made them, whole or not at all."""
    command = "python benchmarks/audit_coverage.py --data FOLDER --json FILE"
    record = {
        "version": stacksl.__version__,
        "command": command,
        "bars": {"mean": list(MEAN_BAR), "least": LEAST_BAR},
        "summary": summary(rows),
        "rows": rows,
    }
    spare = path.with_suffix(".part")
    spare.write_text(json.dumps(record, indent=0))
    spare.replace(path)


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure what the JSON file does not hold yet."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(row["set"], row["seed"]) for row in rows}
    for name in words.sets:
        dataset = load(name, words.data or Path())
        for seed in range(words.seeds):
            if (name, seed) in done:
                continue
            rows.append(measure(name, dataset, seed))
            print(f"{name} {seed}: {rows[-1]['covered']:.4f}", file=sys.stderr, flush=True)
            if words.json:
                save(words.json, rows)
    return rows


def main() -> int:
    """Measure or show; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="the folder that holds banking77/ and openbookqa/"
    )
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source is None and words.data is None and set(words.sets) != {"sample"}:
        parser.error("give --data FOLDER, or --sets sample, or --from FILE")
    rows = json.loads(words.source.read_text())["rows"] if words.source else run(words)
    print(table(rows))
    return 0 if all(row["met"] for row in summary(rows)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
