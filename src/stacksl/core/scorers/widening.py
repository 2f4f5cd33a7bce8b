"""Adding classes to a scorer that has learnt already; their heads start at zero."""

from __future__ import annotations

import numpy as np

from stacksl.core.scorers import Scorer, make_scorer
from stacksl.errors import SettingsError

_BY_CLASS = ("theta", "reference")  # the arrays with a row for each class


def widened(scorer: Scorer, classes: int, seed: int) -> Scorer:
    """A scorer of `classes` classes with all that `scorer`, of class heads, has learnt.

    The heads of new classes are zero, as those of a class without labels.
    Matrices do not change: `ridge` and `newton` keep one for all classes, `sgd` a block for
    each class that was chosen. Radii and widths that depend on the number of
    classes are computed for the new one.

    Args:
        scorer: of class heads, θ of shape (K, d).
        classes: at least K.
        seed: of the folds of its refits.

    Raises:
        SettingsError: the scorer is of pair features, or has more classes.
    """
    state = scorer.state()
    theta = state["theta"]
    if theta.ndim != 2 or classes < len(theta):
        raise SettingsError(
            f"classes can only be added, to a scorer of class heads, got {classes} for θ of shape"
            f" {theta.shape}: give at least as many classes as it has"
        )
    for name in _BY_CLASS:
        if name in state:
            more = np.zeros((classes - len(theta), theta.shape[1]))
            state[name] = np.concatenate([state[name], more])
    sizes = {"dim": theta.shape[1], "classes": classes}
    wide = make_scorer(scorer.name, **sizes, settings=scorer.settings, seed=seed)
    wide.restore(state)
    return wide
