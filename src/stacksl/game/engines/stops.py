"""Why a loop of waiting updates stops before a round: images that are missing or not exact enough.

Everything is then as the round found it, and the round is played again with better images.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stacksl.game.engines import algebra, pending
from stacksl.game.engines.compiling import compiled, summed
from stacksl.game.engines.pending import Pending
from stacksl.game.engines.plans import THETA, Plan
from stacksl.game.engines.rooms import Certificates, Space
from stacksl.game.inputs import Array

__all__ = ["BLIND", "CLOSE", "COARSE", "DONE", "NOT_FINITE", "Care", "look", "near", "tied"]

DONE, NOT_FINITE, BLIND, COARSE, CLOSE = 0, 1, 2, 3, 4  # Pending.status: why a loop stopped


class Care(NamedTuple):
    """What images of less than double precision are held to; 0 asks nothing.

    `least` bounds ‖φ_x‖²·ridge/‖x‖² from below, the share of a direction that is still unknown:
    the error of a norm is rounding divided by it. `close` is the relative distance from a tie
    within which a decision is left to double precision.
    """

    least: float
    close: float


@compiled
def look(
    plan: Plan,
    space: Space,
    waits: Pending,
    care: Care,
    rows: Array,
    images: Array,
    needed: bool,
    sighted: bool,
) -> int:
    """The widths where they are `needed`; DONE, or why they cannot be had from these images."""
    if needed and not sighted:
        return BLIND
    if not sighted or plan.track == THETA:
        return DONE
    algebra.tiled_images(waits.halves, waits.used[0], rows, waits.shadows)
    if needed or care.least > 0.0:
        pending.shaded_norms(rows, images, waits.shadows, waits.used[0], space.widths)
    if care.least > 0.0 and _coarse(plan, rows, space.widths, care.least):
        return COARSE
    return DONE


@compiled
def near(
    plan: Plan, space: Space, out: Certificates, choice: int, verdict: int, close: float, t: int
) -> bool:
    """Whether the action or the purchase lies within `close`, relative, of a tie."""
    if tied(space, choice, close):
        return True
    g, level = out.statistics[t], out.thresholds[t]
    return verdict == 0 and abs(g - level) <= close * max(abs(g), abs(level))


@compiled
def tied(space: Space, choice: int, close: float) -> bool:
    """Whether another of `space.values` lies within `close`, relative, of the choice's."""
    second, scale = -np.inf, 0.0
    for x in range(len(space.values)):
        scale = max(scale, abs(space.values[x]))
        if x != choice:
            second = max(second, space.values[x])
    return bool(abs(space.values[choice] - second) <= close * scale)


@summed
def _coarse(plan: Plan, rows: Array, widths: Array, least: float) -> bool:
    """Whether a row's direction is known too well for images of single precision."""
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * rows[x, j]
        if widths[x] * widths[x] * plan.ridge < least * total:
            return True
    return False
