"""Linear scorers: `sgd` (the algorithms), `ridge` (the theorems), `newton` (ours)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stacksl.core.heads.linear import Head, restore_head
from stacksl.core.scorers.base import Bounds, Scorer, ScorerSettings, tie_argmax
from stacksl.core.scorers.gradient import GradientScorer
from stacksl.core.scorers.newton import ClassNewton, PairNewton
from stacksl.core.scorers.ridge import ClassRidge, PairRidge
from stacksl.errors import unknown_name

__all__ = [
    "SCORERS",
    "Bounds",
    "Head",
    "Scorer",
    "ScorerSettings",
    "make_scorer",
    "restore_head",
    "tie_argmax",
]


def _ridge(dim: int, classes: int | None, settings: ScorerSettings) -> Scorer:
    """The scorer of the theorems: the ridge estimate θ̂ = V⁻¹b, for pairs and for class heads."""
    return PairRidge(dim, settings) if classes is None else ClassRidge(dim, classes, settings)


def _newton(dim: int, classes: int | None, settings: ScorerSettings) -> Scorer:
    """One-pass online Newton on the softmax: H grows by the Fisher information of what was bought.

    For pairs and for class heads.
    """
    return PairNewton(dim, settings) if classes is None else ClassNewton(dim, classes, settings)


SCORERS: dict[str, Callable[[int, int | None, ScorerSettings], Scorer]] = {
    "sgd": GradientScorer,
    "ridge": _ridge,
    "newton": _newton,
}


def make_scorer(
    name: str, *, dim: int, classes: int | None, settings: ScorerSettings | None = None
) -> Scorer:
    """A fresh scorer named `name`: for pair features of `dim` columns, or `classes` class heads.

    `ridge` and `newton` ignore the settings of `sgd` (KL, reference, clip).

    Raises:
        SettingsError: for an unknown name.

    >>> make_scorer("ridge", dim=3, classes=None).learned
    0
    """
    settings = settings or ScorerSettings()
    if name not in SCORERS:
        raise unknown_name("scorer", name, SCORERS)
    return SCORERS[name](dim, classes, settings)


def widened(scorer: Scorer, classes: int) -> Scorer:
    """A scorer of `classes` classes with all that `scorer`, of class heads, has learned.

    The heads of new classes are zero, as those of a class without labels.
    Matrices do not change: `ridge` and `newton` keep one for all classes, `sgd` a block for
    each class that was chosen. Radii and widths that depend on the number of
    classes are computed for the new one.
    """
    state = scorer.state()
    theta = state["theta"]
    zeros = np.zeros((classes - len(theta), theta.shape[1]))
    state["theta"] = np.concatenate([theta, zeros])
    sizes = {"dim": theta.shape[1], "classes": classes}
    new_scorer = make_scorer(scorer.name, **sizes, settings=scorer.settings)
    new_scorer.restore(state)
    return new_scorer
