"""One more class for a scorer that has learnt already: its head starts at zero."""

from __future__ import annotations

import numpy as np

from stacksl.core.scorers import Scorer, make_scorer
from stacksl.errors import SettingsError

_BY_CLASS = ("theta", "reference")  # the arrays with a row for each class


def widened(scorer: Scorer, classes: int, seed: int) -> Scorer:
    """The scorer of `classes` classes that has learnt what `scorer`, of class heads, has.

    The heads of the classes that are new are zero, as those of a class that no label named yet.
    Matrices stay what they are: `ridge` and `newton` keep one for all classes, `sgd` a block for
    each class that was chosen. Radii and widths that depend on the number of classes do so anew.

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
            f"a scorer of class heads takes on more classes, but one of θ {theta.shape} was to"
            f" have {classes}: give at least as many classes as it has"
        )
    for name in _BY_CLASS:
        if name in state:
            more = np.zeros((classes - len(theta), theta.shape[1]))
            state[name] = np.concatenate([state[name], more])
    wide = make_scorer(
        scorer.name,
        dim=theta.shape[1],
        classes=classes,
        settings=scorer.settings,
        seed=seed,
    )
    wide.restore(state)
    return wide
