"""The adaptive follower: the candidates that the present θ scores best are all that is shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines.compiling import compiled
from stacksl.game.engines.plans import Certificates, Space
from stacksl.game.inputs import Array

__all__ = ["best_presented", "present"]


@compiled
def present(space: Space, out: Certificates, phi: Array, t: int) -> None:
    """Show the best-scored of all candidates, whose scores are in `space.everyone`.

    Writes their indices, ascending, into `space.shown`, and their rows of (M, d) `phi` and scores
    into `space.rows` and `space.scores`. Ties go to the lowest index (`followers.Hard`).
    """
    _choose(space.everyone, space.shown)
    for p in range(len(space.shown)):
        x = space.shown[p]
        out.presented[t, p] = x
        space.scores[p] = space.everyone[x]
        for j in range(phi.shape[1]):
            space.rows[p, j] = phi[x, j]


@compiled
def _choose(scores: Array, shown: NDArray[np.int64]) -> None:
    """Set `shown` to the indices of the largest of `scores`, ascending."""
    most, held = len(shown), 0
    for x in range(len(scores)):
        place = held
        if held < most:
            held += 1
        elif scores[x] > scores[shown[most - 1]]:
            place = most - 1
        else:
            continue
        while place > 0 and scores[x] > scores[shown[place - 1]]:
            shown[place] = shown[place - 1]
            place -= 1
        shown[place] = x
    for p in range(1, most):
        x, place = shown[p], p
        while place > 0 and shown[place - 1] > x:
            shown[place] = shown[place - 1]
            place -= 1
        shown[place] = x


@compiled
def best_presented(utilities: Array, shown: NDArray[np.int64]) -> int:
    """The position in `shown` of the largest of (M,) `utilities` there, of equals the first."""
    best = 0
    for p in range(1, len(shown)):
        if utilities[shown[p]] > utilities[shown[best]]:
            best = p
    return best
