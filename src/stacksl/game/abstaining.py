"""When to say that none of the candidates fits: a threshold on the largest probability.

The probabilities of a final model are over the candidates it knows and add up to 1 whatever the
item is. An item that belongs to none of them tends to spread them, so that the largest is small.
How small, the none-of-these that were bought tell: they train nothing but this number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stacksl.game.inputs import Array

__all__ = ["FEWEST", "Threshold", "auroc", "best_threshold"]

FEWEST = 10  # of either kind, below which a threshold would be that of a few items
_CLEAR = 2.0  # standard errors above 1/2 from which the probability tells the kinds apart


@dataclass(frozen=True, slots=True)
class Threshold:
    """A model abstains where its largest probability is below `value`.

    Attributes:
        value: a probability.
        balanced_accuracy: the mean of two shares, of the labelled items it keeps and of the
            none-of-these it abstains on, on the very items that chose it: a little too good.
        auroc: the chance that a labelled item has a larger probability than a none-of-these.
        labels, none: how many of either there were.
    """

    value: float
    balanced_accuracy: float
    auroc: float
    labels: int
    none: int


def auroc(labelled: Array, none: Array) -> float:
    """The chance that one of `labelled`, (n,), exceeds one of `none`, (m,); ties count half.

    >>> auroc(np.array([0.9, 0.5]), np.array([0.5, 0.1]))
    0.875
    """
    order = np.sort(none)
    below = np.searchsorted(order, labelled, side="left")
    upto = np.searchsorted(order, labelled, side="right")
    return float((below + upto).sum()) / (2.0 * len(labelled) * len(none))


def best_threshold(labelled: Array, none: Array) -> Threshold | None:
    """The threshold of the largest balanced accuracy, the lowest of several: it abstains least.

    The loss is ½ (share of `labelled` below it) + ½ (share of `none` not below it), so that neither
    kind counts for more because more of it was bought.

    Args:
        labelled: (n,) largest probabilities of items with a label, by models that did not see them.
        none: (m,) those of items whose answer was none of these.

    Returns:
        None where there are fewer than `FEWEST` of either, or where the probability does not tell
        them apart: the AUROC is less than two standard errors of pure chance above ½.
    """
    n, m = len(labelled), len(none)
    if min(n, m) < FEWEST:
        return None
    area = auroc(labelled, none)
    if area < 0.5 + _CLEAR * math.sqrt((n + m + 1) / (12.0 * n * m)):  # of Mann and Whitney's U
        return None
    values = np.unique(np.concatenate([labelled, none]))
    cuts = (values[1:] + values[:-1]) / 2
    kept = 1.0 - np.searchsorted(np.sort(labelled), cuts, side="left") / n
    left_out = np.searchsorted(np.sort(none), cuts, side="left") / m
    balanced = (kept + left_out) / 2
    best = int(np.argmax(balanced))
    return Threshold(float(cuts[best]), float(balanced[best]), area, n, m)
