"""Abstention: a threshold on the largest probability, below which no candidate is given.

The probabilities of a final model are over its candidates and add up to 1 for every item.
For an item that belongs to none of them they tend to be spread, so that the largest is small. The
threshold is fitted on bought answers of none of these, which train nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stacksl.core.blocks import Array

FEWEST = 10  # of either kind; a threshold from fewer is not reliable
_GROUPS = 5  # of bought items, each representing the items of similar probability
_CLEAR = 2.0  # standard errors above 1/2 from which the probability separates the kinds


@dataclass(frozen=True, slots=True)
class Threshold:
    """A model abstains where its largest probability is below `value`.

    Attributes:
        value: a probability.
        balanced_accuracy: the mean of two shares, of the labeled items it keeps and of the
            none-of-these it abstains on, on the items that chose it, so it is slightly optimistic.
        auroc: the chance that a labeled item has a larger probability than a none-of-these; both
            numbers weight each item by how many it represents.
        labels, none: how many of either there were.
    """

    value: float
    balanced_accuracy: float
    auroc: float
    labels: int
    none: int


def auroc(labeled: Array, none: Array, labeled_weight: Array, none_weight: Array) -> float:
    """The chance that one of `labeled`, (n,), exceeds one of `none`, (m,); ties count half.

    Each is drawn in proportion to its weight.

    >>> auroc(np.array([0.9, 0.5]), np.array([0.5, 0.1]), np.ones(2), np.ones(2))
    0.875
    """
    below = _share_below(none, none_weight, labeled, "left")
    upto = _share_below(none, none_weight, labeled, "right")
    return float(labeled_weight @ (below + upto)) / (2.0 * float(labeled_weight.sum()))


def stands_for(labeled: Array, none: Array, unbought: Array, scale: float) -> tuple[Array, Array]:
    """How many items each bought one represents: the weights of `labeled` and of `none`.

    A gate buys items that a model is unsure of, so bought items are no random sample. Among items
    of equal probability, though, the gate cannot prefer those without a right candidate. So the
    bought items of both kinds are cut into five groups of equal size by their probability, and
    those of a group share the items between its ends.

    Args:
        labeled: (n,) largest probabilities of bought items with a label.
        none: (m,) those of bought items answered with none of these.
        unbought: those of items that were not bought, or of a uniform sample of them.
        scale: how many items each of `unbought` stands for.

    Source: inverse probability weighting, Horvitz and Thompson (1952).
    """
    bought = np.concatenate([labeled, none])
    cuts = np.quantile(bought, np.linspace(0, 1, _GROUPS + 1)[1:-1])
    group = np.searchsorted(cuts, bought, side="right")
    bought_counts = np.bincount(group, minlength=_GROUPS)
    unbought_counts = np.bincount(np.searchsorted(cuts, unbought, side="right"), minlength=_GROUPS)
    weights = (1.0 + scale * unbought_counts / np.maximum(bought_counts, 1))[group]
    return weights[: len(labeled)], weights[len(labeled) :]


def best_threshold(
    labeled: Array, none: Array, labeled_weight: Array, none_weight: Array
) -> Threshold | None:
    """The threshold of the largest balanced accuracy, the lowest of several: it abstains least.

    The loss is ½ (share of `labeled` below it) + ½ (share of `none` not below it), so that neither
    kind counts for more because more of it was bought.

    Args:
        labeled: (n,) largest probabilities of items with a label, by models that did not see them.
        none: (m,) those of items whose answer was none of these.
        labeled_weight, none_weight: how many items each represents.

    Returns:
        None where there are fewer than `FEWEST` of either, or where the probability does not
        separate them: the AUROC is less than two standard errors of pure chance above ½.
    """
    if min(len(labeled), len(none)) < FEWEST:
        return None
    area = auroc(labeled, none, labeled_weight, none_weight)
    n, m = _effective(labeled_weight), _effective(none_weight)
    chance = math.sqrt((n + m + 1.0) / (12.0 * n * m))  # its standard error, Mann and Whitney
    if area < 0.5 + _CLEAR * chance:
        return None
    values = np.unique(np.concatenate([labeled, none]))
    cuts = (values[1:] + values[:-1]) / 2
    lost = _share_below(labeled, labeled_weight, cuts, "left")
    balanced = (1.0 - lost + _share_below(none, none_weight, cuts, "left")) / 2
    best = int(np.argmax(balanced))
    value, best_accuracy = float(cuts[best]), float(balanced[best])
    return Threshold(value, best_accuracy, area, len(labeled), len(none))


def _share_below(
    values: Array, weights: Array, cuts: Array, side: Literal["left", "right"]
) -> Array:
    """The share of the weight of `values` below each of the `cuts`; on the right also at it."""
    order = np.argsort(values, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    below: Array = total[np.searchsorted(values[order], cuts, side=side)] / total[-1]
    return below


def _effective(weights: Array) -> float:
    """The effective sample size: items of equal weight with the same variance (Kish)."""
    return float(weights.sum() ** 2 / (weights**2).sum())
