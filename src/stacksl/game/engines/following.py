"""What is shown and what is answered: with an adaptive follower, only what θ scores best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines import algebra, judging
from stacksl.game.engines.compiling import compiled
from stacksl.game.engines.rooms import Certificates, Memory, Space
from stacksl.game.inputs import Array

__all__ = ["answer", "show"]


@compiled
def show(
    memory: Memory, space: Space, out: Certificates, phi: Array, follows: bool, t: int
) -> bool:
    """Whether all scores of (M, d) `phi` are finite; `space.scores` has those of what is shown.

    Where a follower `follows` these are the best scored, whose rows are then in `space.rows`.
    """
    everyone = space.everyone if follows else space.scores
    algebra.project(phi, memory.theta, everyone)
    if not judging.all_finite(everyone):
        return False
    if follows:
        _present(space, out, phi, t)
    space.current[0] = True
    return True


@compiled
def answer(
    space: Space,
    labels: NDArray[np.int64],
    rewards: Array,
    utilities: Array,
    i: int,
    choice: int,
    follows: bool,
) -> tuple[int, float]:
    """The gold's position among what is shown, or −1, and the choice's reward, or 0."""
    gold = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    if len(labels) > 0:
        gold = labels[i]
    elif follows and len(utilities) > 0:
        gold = _best_presented(utilities[i], space.shown)
    played = space.shown[choice] if follows else choice
    return gold, rewards[i, played] if len(rewards) > 0 else 0.0


@compiled
def _present(space: Space, out: Certificates, phi: Array, t: int) -> None:
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
def _best_presented(utilities: Array, shown: NDArray[np.int64]) -> int:
    """The position in `shown` of the largest of (M,) `utilities` there, of equals the first."""
    best = 0
    for p in range(1, len(shown)):
        if utilities[shown[p]] > utilities[shown[best]]:
            best = p
    return best
