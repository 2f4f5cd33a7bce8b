"""How a model that labels a pool errs, and what each of its labels says then.

On items drawn at random people answer as well, which gives the model's confusion matrix: its
accuracy over all classes, that of each class shrunk toward it, and the errors of a class shrunk
toward an even spread. People's answers count as the truth there. A label of the model is then a
soft label, P(class | answer).

Source: Dawid and Skene, Maximum likelihood estimation of observer error-rates, 1979, with one
labeler taken as the truth; the shrinkage is that of a beta prior with an estimated mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array

CLASS_PRIOR = 4.0  # answers to a class that the accuracy over all classes counts as
ERROR_PRIOR = 10.0  # errors in a class, spread evenly, that its row begins with
SHARE_PRIOR = 5.0  # answers of each class that the classes' shares begin with
DOUBT = 0.03  # the error at which a label counts half as much as a person's
LEVEL = 0.95  # of the interval

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Confusion:
    """How a labeler answers items of each class.

    Attributes:
        matrix: (K, K), row y is the distribution of its answers to items of class y.
        accuracy: the share of right answers over all items, with the ends of its interval.
    """

    matrix: Array
    accuracy: tuple[float, float, float]
    count: int

    @property
    def tells(self) -> bool:
        """Whether its answers are better than chance, by the lower end of the interval."""
        return self.accuracy[1] > 1.0 / len(self.matrix)

    def soft(self, answers: Rows) -> tuple[Array, Array]:
        """P(class | answer) of n answers, (n, K), and the shares of the classes before, (K,)."""
        shares = np.bincount(answers, minlength=len(self.matrix)) + SHARE_PRIOR
        shares = shares / shares.sum()
        joint = shares[:, None] * self.matrix
        return (joint / joint.sum(axis=0)).T[answers], shares

    def seeds(self, answers: Rows) -> NDArray[np.float32]:
        """Answers as seeds of label spreading, (n, K), where a person's label is one of weight 1.

        Of each class it is what the answer adds to its share, times a weight that falls from 1 with
        the error of the answer: an answer that says nothing is no seed.
        """
        posterior, shares = self.soft(answers)
        weight = DOUBT / (DOUBT + 1.0 - posterior.max(axis=1, keepdims=True))
        return np.asarray(weight * np.maximum(posterior - shares, 0.0), dtype=np.float32)


def confusion_of(answers: Rows, truth: Rows, classes: int) -> Confusion:
    """The confusion matrix of a labeler, shrunk toward its accuracy and an even spread of errors.

    Both `answers`, the labeler's, and `truth`, people's, are (n,) classes below `classes`, of items
    drawn at random. The interval holds 95% of a Jeffreys posterior over all items.
    """
    right = answers == truth
    items = np.bincount(truth, minlength=classes)
    hits = np.bincount(truth[right], minlength=classes)
    accuracy = _mean_and_interval(int(right.sum()) + 0.5, int((~right).sum()) + 0.5)
    of_class = hits + CLASS_PRIOR * accuracy[0]
    of_class /= of_class + (items - hits + CLASS_PRIOR * (1.0 - accuracy[0]))
    errors = np.full((classes, classes), ERROR_PRIOR / max(classes - 1, 1))
    np.add.at(errors, (truth, answers), 1.0)
    np.fill_diagonal(errors, 0.0)
    total = errors.sum(axis=1, keepdims=True)
    matrix = errors / np.where(total > 0, total, 1.0) * (1.0 - of_class)[:, None]
    np.fill_diagonal(matrix, of_class if classes > 1 else 1.0)
    return Confusion(matrix, accuracy, len(truth))


def _mean_and_interval(right: float, wrong: float) -> tuple[float, float, float]:
    """The mean of a beta distribution, and the ends of its middle 95%."""
    from scipy.special import betaincinv  # scipy.stats takes long to import

    tail = (1.0 - LEVEL) / 2
    low, high = (float(betaincinv(right, wrong, level)) for level in (tail, 1.0 - tail))
    return right / (right + wrong), low, high
