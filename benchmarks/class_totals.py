"""How far the report's table of classes is from the truth, with and without a correction.

Training rows of three sets with the default features: a logistic regression on so many random
labels answers the others, an audit is drawn from these again and again, and `class_totals` counts
the classes. The error is the mean over classes of the absolute difference to the true number of
items. `full` is the correction without shrinkage, as it was before; `holds` the share of intervals
that hold the truth.

    python benchmarks/class_totals.py $STACKSL_DATA --json class_totals.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from plan_scenarios import DEFAULT
from sklearn.linear_model import LogisticRegression

from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.features import make_features
from stacksl.models.own_items import class_totals

SETS = ("banking77", "snips", "stackoverflow_titles")
LABELS = (100, 300, 1000)
AUDITS = (50, 100, 200)


def measured(
    truth: np.ndarray, predicted: np.ndarray, names: tuple[str, ...], size: int, rng: Any
) -> dict[str, float]:
    """The errors of one draw of an audit of `size` items."""
    audit = rng.choice(len(truth), size, replace=False)
    unaudited = np.setdiff1d(np.arange(len(truth)), audit)
    rows = class_totals(truth[audit], predicted[unaudited], truth[audit], predicted[audit], names)
    right = np.bincount(truth, minlength=len(names))
    plain = np.array([row.human + row.predicted for row in rows])
    missed, called = (np.bincount(each[audit], minlength=len(names)) for each in (truth, predicted))
    full = plain + len(unaudited) * (missed - called) / size
    now = np.array([row.total for row in rows])
    holds = [row.low <= right[k] <= row.high for k, row in enumerate(rows)]
    off = {"plain": plain, "full": full, "shrunk": now}
    return {name: float(np.abs(each - right).mean()) for name, each in off.items()} | {
        "holds": float(np.mean(holds))
    }


def measure(folder: Path, draws: int) -> list[dict[str, Any]]:
    """A row for each set, number of labels and size of audit."""
    rows = []
    for name in SETS:
        data = read(folder / name / "train.csv")
        names = data.classes or ()
        features = make_features(DEFAULT, classes=names)
        features.fit(data.items)
        with one_thread():
            h = np.asarray(features.transform(data.items).h)
        gold = np.array([data.answers[item.id] for item in data.items])
        rng = np.random.default_rng(0)
        for labels in LABELS:
            order = rng.permutation(len(gold))
            bought, others = order[:labels], order[labels:]
            model = LogisticRegression(C=20, max_iter=300).fit(h[bought], gold[bought])
            predicted, truth = model.predict(h[others]), gold[others]
            for size in AUDITS:
                each = [measured(truth, predicted, names, size, rng) for _ in range(draws)]
                means = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
                wrong = float((predicted != truth).mean())
                row = {"set": name, "labels": labels, "wrong": wrong, "audit": size, **means}
                rows.append(row)
                print(line(row), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row as Markdown."""
    return (
        f"| {row['set']} | {row['labels']} | {row['wrong']:.3f} | {row['audit']}"
        f" | {row['plain']:.1f} | {row['full']:.1f} | {row['shrunk']:.1f}"
        f" | {row['shrunk'] / row['plain']:.2f} | {row['holds']:.3f} |"
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the data sets")
    parser.add_argument("--draws", type=int, default=300, help="audits drawn for each row")
    parser.add_argument("--json", type=Path, help="write the rows here")
    words = parser.parse_args()
    print("| set | labels | wrong | audit | plain | full | shrunk | shrunk/plain | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = measure(words.folder, words.draws)
    if words.json:
        words.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
