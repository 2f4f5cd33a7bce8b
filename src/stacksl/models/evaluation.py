"""Evaluation of the final model on a file of answers; rows that cannot be read are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.data import Dataset, expect_classes
from stacksl.errors import DataError
from stacksl.models.audit import Audited
from stacksl.models.metrics import calibration_error, macro_f1, wilson
from stacksl.report.quality import CurvePoint

if TYPE_CHECKING:
    from stacksl.models.adapted import AdaptedModel
    from stacksl.models.linear import Model

TOPS = (5, 10)
UNKNOWN = -1  # the gold index of a label outside the model's classes


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The result of a model on `n` rows, unusable ones counted as wrong.

    `gold`, `predicted`, `confidence` are of the `scored` rows, those that could be read, in file
    order; the gold of a class that the model does not know is −1, which nothing matches. Macro-F1
    and calibration cover the scored rows, accuracy all `n`. `top` is the share of all `n` whose
    gold is among the best 5 and 10 candidates, where items have more.
    """

    n: int
    correct: int
    unusable: int
    unknown: int
    macro_f1: float
    gold: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: Array
    top: Mapping[int, float] = field(default_factory=dict)

    @property
    def scored(self) -> int:
        """The rows that the model could answer."""
        return len(self.gold)

    @property
    def accuracy(self) -> float:
        """Correct / n."""
        return self.correct / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% Wilson interval of the accuracy."""
        return wilson(self.correct, self.n)

    def row(self) -> dict[str, Any]:
        """The numbers that `stacksl evaluate` gives."""
        return {
            "n": self.n,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "interval": list(self.interval),
            "correct": self.correct,
            "scored": self.scored,
            "unusable": self.unusable,
            "unknown_classes": self.unknown,
            "calibration_error": calibration_error(self.confidence, self.gold == self.predicted),
            **{f"top_{count}": share for count, share in self.top.items()},
        }


@dataclass(frozen=True, slots=True)
class Tested:
    """A run's results on its test set: the final model, and models of fewer labels.

    `audited` is the audit of the final model, `column` that of labels the data had, and `left` that
    of its rows that stand for the labels which nobody was asked about.
    """

    __test__ = False

    evaluation: Evaluation | None = None
    curve: tuple[CurvePoint, ...] = ()
    audited: Audited | None = None
    column: Audited | None = None
    left: Audited | None = None


def point(labels: int, result: Evaluation | Audited) -> CurvePoint:
    """A point of the curve."""
    return CurvePoint(labels, result.accuracy or 0.0, *result.interval)


def evaluate(
    model: Model | AdaptedModel,
    dataset: Dataset,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """The model's `Evaluation` on a data set read leniently.

    Raises:
        DataError: if items have no answer, or another label set than the model's.
    """
    if dataset.classes != model.classes and model.classes is not None:
        raise DataError(
            f"the candidates of {dataset.name} should be the model's {len(model.classes)} classes"
            " in their order, but are others: give items with the same candidates"
        )
    expect_classes(dataset, f"the data '{dataset.name}'", ", or leave out all labels to compare")
    if dataset.unlabeled:
        raise DataError(
            f"to evaluate, every row of {dataset.name} should have an answer, got"
            f" {dataset.unlabeled} of {dataset.total} without one: label them, leave them"
            " out, use `stacksl predict`, or give rows without any to compare them with the run"
        )
    return judge(model.policies(dataset.items, progress), dataset)


def judge(policies: list[Array], dataset: Dataset) -> Evaluation:
    """The `Evaluation` of `policies`, a (K,) array for each of the data set's items."""
    golden = [dataset.answers.get(item.id, UNKNOWN) for item in dataset.items]
    gold = np.array(golden, dtype=np.int64)
    predicted = np.array([int(np.argmax(policy)) for policy in policies], dtype=np.int64)
    confidence = np.array([float(np.max(policy)) for policy in policies])
    pairs = list(zip(policies, golden, strict=True))
    ranks = [int((p > p[g]).sum()) for p, g in pairs if g != UNKNOWN]
    fewest_options = min(map(len, policies), default=0)
    return Evaluation(
        n=dataset.total,
        correct=int((gold == predicted).sum()),
        unusable=len(dataset.rejected),
        unknown=len(dataset.unknown),
        macro_f1=macro_f1(gold.tolist(), predicted.tolist()),
        gold=gold,
        predicted=predicted,
        confidence=confidence,
        top={k: sum(r < k for r in ranks) / dataset.total for k in TOPS if fewest_options > k},
    )
