"""What a threshold trained on bought none-of-these is worth: Banking77 with five classes withheld.

The seed draws five of the 77 classes that the run is not given. A labeler answers their items with
none of these and all others from the file. A pool buys labels, its final model and threshold are
those of any run, and both are judged on the test file: what belongs to a withheld class should be
abstained on.

    python benchmarks/abstaining.py --data $STACKSL_DATA --json results.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stacksl import Item
from stacksl.api import run
from stacksl.core.heads.abstaining import auroc
from stacksl.data import Dataset, read
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.models.linear import Model

WITHHELD = 5


class Withholding:
    """The file's answers, and none of these where the class is not among the candidates."""

    name = "withholding"
    repeatable = True

    def __init__(self, answers: Mapping[str, int]) -> None:
        self._answers = answers
        self._asked: list[Purchase] = []

    def ask(self, purchases: Sequence[Purchase]) -> None:
        """Take the purchases that are open."""
        self._asked = list(purchases)

    def answers(self) -> list[Answer]:
        """Their answers, once."""
        came, self._asked = self._asked, []
        return [self._answer(each) for each in came]

    def pending(self) -> list[Any]:
        """Nothing is waited for."""
        return []

    def _answer(self, lease: Purchase) -> Answer:
        index = self._answers.get(lease.item)
        said: Any = "none" if index is None else "label"
        key = (lease.item, lease.slot, lease.token)
        return Answer(*key, index, self.name, lease.price, said=said)


def without(dataset: Dataset, kept: tuple[str, ...]) -> tuple[list[Item], dict[str, int]]:
    """The items with the classes `kept` alone, and the answers that are among those."""
    assert dataset.classes is not None
    at = {dataset.classes.index(name): place for place, name in enumerate(kept)}
    items = [Item(item.id, item.prompt, kept) for item in dataset.items]
    return items, {name: at[gold] for name, gold in dataset.answers.items() if gold in at}


def measure(train: Dataset, test: Dataset, seed: int, budget: int, names: bool) -> dict[str, Any]:
    """One run, judged on the test file."""
    assert train.classes is not None
    gone = np.random.default_rng(seed).choice(len(train.classes), WITHHELD, replace=False).tolist()
    kept = tuple(name for n, name in enumerate(train.classes) if n not in gone)
    items, answers = without(train, kept)
    plan: dict[str, Any] = {
        "features": "sentences:minilm",
        "mode": "pool",
        "audit": 0,
        "names": names,
    }
    with tempfile.TemporaryDirectory() as folder:
        labeler = Withholding(answers)
        done = run(items, labeler=labeler, budget=budget, seed=seed, out=Path(folder) / "r", **plan)
        with done.ledger as ledger:
            said = ledger.counts_by_kind()
        assert isinstance(done.model, Model)
        return {
            "seed": seed,
            "budget": budget,
            "names": names,
            "said": said,
            **judged(done.model, test, kept),
        }


def judged(model: Model, test: Dataset, kept: tuple[str, ...]) -> dict[str, Any]:
    """The threshold as it was trained, and what it does on the test file."""
    rows, golden = without(test, kept)
    policies = np.array(model.policies(rows))
    sure = policies.max(axis=1)
    gold = np.array([golden.get(item.id, -1) for item in rows])
    right, known = policies.argmax(axis=1) == gold, gold >= 0
    kinds = sure[known], sure[~known]
    area = auroc(*kinds, *map(np.ones_like, kinds))
    found: dict[str, Any] = {"auroc": area, "accuracy": right.mean()}
    if model.abstaining is None:
        return {**found, "trained": None}
    trained = model.abstaining
    keeps = sure >= trained.value
    return {
        **found,
        "trained": {"value": trained.value, "auroc": trained.auroc},
        "trained_balanced": trained.balanced_accuracy,
        "labels_kept": keeps[known].mean(),
        "none_left_out": (~keeps[~known]).mean(),
        "balanced": (keeps[known].mean() + (~keeps[~known]).mean()) / 2,
        "abstained": (~keeps).mean(),
        "accuracy_kept": right[keeps].mean(),
    }


def main() -> None:
    """Measure the seeds that are asked for, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--no-names", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folder = args.data / "banking77"
    train = read(folder / "train.csv")
    test = read(folder / "test.csv", classes=train.classes)
    rows = []
    for seed in args.seeds:
        rows.append(measure(train, test, seed, args.budget, not args.no_names))
        print(json.dumps(rows[-1], default=float), flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(rows, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
