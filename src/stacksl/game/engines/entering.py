"""What a label, a reward or an unasked round does to θ and V where updates of V⁻¹ wait.

As `learning`, with the images under the G of the block corrected for what came since.
"""

from __future__ import annotations

from stacksl.game.engines import algebra, learning, pending
from stacksl.game.engines.compiling import compiled
from stacksl.game.engines.pending import Pending
from stacksl.game.engines.plans import NEWTON, RIDGE, Plan
from stacksl.game.engines.rooms import Memory, Space
from stacksl.game.inputs import Array

__all__ = ["correct_all", "enter"]


@compiled
def enter(
    plan: Plan,
    memory: Memory,
    space: Space,
    waits: Pending,
    rows: Array,
    images: Array,
    choice: int,
    gold: int,
    reward: float,
    asks: bool,
) -> None:
    """What a label, a reward or, under track='all', an unasked round does to V, and θ with it."""
    if plan.scorer == NEWTON or (gold >= 0 and plan.scorer == RIDGE):
        correct_all(space, waits, images)
        if plan.scorer == RIDGE:
            _regress(memory, space, waits, rows, gold)
        else:
            if asks:
                learning.newton_move(memory, space, rows, gold)
            _inform(memory, space, waits, rows)
        return
    product = space.products[choice]
    pending.correct(images[choice], waits.shadows[choice], waits.halves, waits.used[0], product)
    size = pending.add_one(waits, rows[choice], product)
    if plan.scorer == RIDGE:
        gain = (reward - space.scores[choice]) / size
        for j in range(rows.shape[1]):
            memory.moment[j] += reward * rows[choice, j]
            memory.theta[j] += gain * product[j]


@compiled
def _regress(memory: Memory, space: Space, waits: Pending, rows: Array, gold: int) -> None:
    """θ ← θ + V⁻¹Φᵀ(y − Φθ) under the new V, which is HᵀL⁻¹(y − Φθ) for H, L of `add_rows`."""
    pending.add_rows(waits, rows, space.products, space.small)
    slope = space.slope
    for x in range(len(rows)):
        total = (1.0 if x == gold else 0.0) - space.scores[x]
        for y in range(x):
            total -= space.small[x, y] * slope[y]
        slope[x] = total / space.small[x, x]
    algebra.combine(memory.theta, 1.0, slope, space.products)
    for j in range(rows.shape[1]):
        memory.moment[j] += rows[gold, j]


@compiled
def _inform(memory: Memory, space: Space, waits: Pending, rows: Array) -> None:
    """H ← H + F(θ), from the rows' images under the present H⁻¹."""
    algebra.project(rows, memory.theta, space.scores)
    learning.weigh(space, rows)
    pending.add_rows(waits, space.factors, space.spare, space.small)


@compiled
def correct_all(space: Space, waits: Pending, images: Array) -> None:
    """Set `space.products` to the images of all rows under the present V⁻¹."""
    for x in range(len(space.products)):
        pending.correct(images[x], waits.shadows[x], waits.halves, waits.used[0], space.products[x])
