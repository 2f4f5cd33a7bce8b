"""How good the final model is, as facts of the report: from the test file, and from the audit."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stacksl.data import Dataset
from stacksl.models.audit import Audited
from stacksl.models.evaluation import Evaluation, Tested
from stacksl.models.metrics import calibration_bins, confusions, wilson
from stacksl.report import quality as f
from stacksl.runs.loop.examples import Examples

__all__ = ["audit_fact", "calibration", "class_rows", "confusion_rows", "source", "test_fact"]

CONFUSIONS = 20  # pairs of classes listed


def source(tested: Tested) -> str:
    """What the classes are measured on: the `test` file, or where there is none the `audit`."""
    return "audit" if tested.evaluation is None and tested.audited is not None else "test"


def _judged(tested: Tested) -> Evaluation | Audited | None:
    return tested.audited if source(tested) == "audit" else tested.evaluation


def test_fact(test: Dataset | None, evaluation: Evaluation | None) -> f.TestResult | None:
    """The final model on the test file."""
    if evaluation is None or test is None:
        return None
    low, high = wilson(evaluation.correct, evaluation.n)
    sizes = [len(item.candidates) for item in test.items]
    return f.TestResult(
        file=test.name,
        n=evaluation.n,
        correct=evaluation.correct,
        accuracy=evaluation.accuracy,
        low=low,
        high=high,
        macro_f1=evaluation.macro_f1,
        unusable=evaluation.unusable + evaluation.unknown,
        chance=float(np.mean([1 / size for size in sizes])) if sizes else None,
    )


def audit_fact(audited: Audited | None) -> f.AuditResult | None:
    """The final model on the audit."""
    if audited is None:
        return None
    low, high = audited.interval
    return f.AuditResult(
        n=audited.n,
        correct=audited.correct,
        none_of_these=audited.none_of_these,
        unknown=audited.unknown,
        accuracy=audited.accuracy,
        low=low,
        high=high,
        worst=audited.worst,
        best=audited.best,
        passed_over=audited.passed_over,
    )


def class_rows(dataset: Dataset, examples: Examples, tested: Tested) -> tuple[f.ClassRow, ...]:
    """The classes, with the labels bought of each; empty where items bring their own options."""
    bought = Counter(label for _, label, _ in examples.bought)
    judged = _judged(tested)
    names = dataset.classes or ()
    return tuple(_class_row(name, at, bought[at], judged) for at, name in enumerate(names))


def _class_row(
    name: str, index: int, bought: int, judged: Evaluation | Audited | None
) -> f.ClassRow:
    if judged is None:
        return f.ClassRow(name, bought)
    gold, predicted = judged.gold == index, judged.predicted == index
    hits, n, called = int((gold & predicted).sum()), int(gold.sum()), int(predicted.sum())
    low, high = wilson(hits, n)
    return f.ClassRow(
        name=name,
        bought=bought,
        test_n=n,
        precision=hits / called if called else None,
        recall=hits / n if n else None,
        low=low if n else None,
        high=high if n else None,
    )


def confusion_rows(dataset: Dataset, tested: Tested) -> tuple[f.Confusion, ...]:
    """What the final model mistakes for what, most frequent first."""
    judged, names = _judged(tested), dataset.classes
    if names is None or judged is None:
        return ()
    found = confusions(judged.gold.tolist(), judged.predicted.tolist())[:CONFUSIONS]
    return tuple(f.Confusion(names[gold], names[said], n) for gold, said, n in found)


def calibration(tested: Tested) -> f.Calibration | None:
    """Of the audit alone where there is one, else of the test file."""
    audited, evaluation = tested.audited, tested.evaluation
    if audited is not None:
        found = audited.calibration
        return None if found is None else _calibration(*found, audited.known, "audit")
    if evaluation is None or not len(evaluation.gold):
        return None
    right = evaluation.gold == evaluation.predicted
    return _calibration(*calibration_bins(evaluation.confidence, right), len(right), "test")


def _calibration(
    bins: list[tuple[float, float, int]], error: float, n: int, source: str
) -> f.Calibration:
    return f.Calibration(tuple(f.CalibrationBin(*row) for row in bins), error, n, source)
