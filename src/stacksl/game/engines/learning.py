"""What a label, a reward or an unasked round does to θ and V of pair features.

`products` is rows·V⁻¹ where `fresh` says that it was computed under the present V⁻¹; every update
of V⁻¹ uses it up.
"""

from __future__ import annotations

import math

from stacksl.game.engines.algebra import (
    absorb,
    combine,
    image,
    images,
    project,
    rank_one,
)
from stacksl.game.engines.compiling import compiled
from stacksl.game.engines.descent import gradient_step, policy_of
from stacksl.game.engines.plans import ALL, RIDGE, SGD, THETA, Plan
from stacksl.game.engines.rooms import LEARNT, ROUNDS, Memory, Space
from stacksl.game.inputs import Array

__all__ = ["count_skip", "learn", "newton_move", "weigh"]


@compiled
def learn(
    plan: Plan,
    memory: Memory,
    space: Space,
    rows: Array,
    choice: int,
    gold: int,
    reward: float,
    fresh: bool,
) -> None:
    """One feedback: the label `gold`, or, where that is −1, the `reward` of the choice."""
    if plan.scorer == SGD:
        gradient_step(plan, memory, space, rows, gold)
        _enter(plan, memory, space, rows, choice, fresh)
    elif plan.scorer == RIDGE:
        _regress(memory, space, rows, choice, gold, reward, fresh)
    else:
        _newton_step(memory, space, rows, gold, fresh)
    memory.counts[LEARNT] += 1
    memory.counts[ROUNDS] += 1


@compiled
def count_skip(
    plan: Plan, memory: Memory, space: Space, rows: Array, choice: int, fresh: bool
) -> None:
    """An unasked round: it is counted, and under track='all' it enters V."""
    memory.counts[ROUNDS] += 1
    if plan.track != ALL:
        return
    if plan.scorer in (SGD, RIDGE):
        _enter(plan, memory, space, rows, choice, fresh)
        if plan.scorer == RIDGE:
            image(memory.gram_inv, memory.moment, memory.theta)
        return
    if not fresh:
        images(memory.gram_inv, rows, space.products)
    _inform(memory, space, rows)


@compiled
def _enter(plan: Plan, memory: Memory, space: Space, rows: Array, choice: int, fresh: bool) -> None:
    """V ← V + φφᵀ for the choice's row."""
    if plan.track == THETA:
        return
    product = space.products[choice]
    if not fresh:
        image(memory.gram_inv, rows[choice], product)
    rank_one(memory.gram_inv, rows[choice], product)


@compiled
def _regress(
    memory: Memory,
    space: Space,
    rows: Array,
    choice: int,
    gold: int,
    reward: float,
    fresh: bool,
) -> None:
    """The ridge estimate of one more label (all rows enter V) or reward (the choice's row)."""
    if gold >= 0:
        if not fresh:
            images(memory.gram_inv, rows, space.products)
        for j in range(rows.shape[1]):
            memory.moment[j] += rows[gold, j]
        absorb(memory.gram_inv, rows, space.products, space.small)
    else:
        product = space.products[choice]
        if not fresh:
            image(memory.gram_inv, rows[choice], product)
        for j in range(rows.shape[1]):
            memory.moment[j] += reward * rows[choice, j]
        rank_one(memory.gram_inv, rows[choice], product)
    image(memory.gram_inv, memory.moment, memory.theta)


@compiled
def _newton_step(memory: Memory, space: Space, rows: Array, gold: int, fresh: bool) -> None:
    """θ ← θ − (H + F(θ))⁻¹g, then H ← H + F(θ); see `scorers.newton.PairNewton`."""
    if not fresh:
        images(memory.gram_inv, rows, space.products)
    project(rows, memory.theta, space.scores)
    newton_move(memory, space, rows, gold)
    _inform(memory, space, rows)


@compiled
def newton_move(memory: Memory, space: Space, rows: Array, gold: int) -> None:
    """θ ← θ − (H + F(θ))⁻¹g, from the scores and the rows' images under the present θ and H⁻¹."""
    slope, against, direction = space.slope, space.anchor, space.direction
    weigh(space, rows)
    for x in range(len(rows)):
        slope[x] = space.policy[x] - (1.0 if x == gold else 0.0)
    for j in range(len(direction)):
        direction[j] = 0.0
    combine(direction, 1.0, slope, space.products)
    project(space.factors, direction, against)
    _solve(space.factors, space.spare, space.small, against)
    combine(memory.theta, -1.0, slope, space.products)
    combine(memory.theta, 1.0, against, space.spare)


@compiled
def _inform(memory: Memory, space: Space, rows: Array) -> None:
    """H ← H + F(θ), from the rows' images under the present H⁻¹."""
    project(rows, memory.theta, space.scores)
    weigh(space, rows)
    absorb(memory.gram_inv, space.factors, space.spare, space.small)


@compiled
def weigh(space: Space, rows: Array) -> None:
    """Set `factors` to the (m, d) matrix A with AᵀA = F(θ), `spare` to A·H⁻¹, `policy` on the way.

    From the scores, and from the rows' images in `products`.
    """
    policy_of(space.scores, space.powers, space.policy)
    _centre(rows, space.policy, space.mean, space.factors)
    _centre(space.products, space.policy, space.mean, space.spare)


@compiled
def _centre(rows: Array, policy: Array, mean: Array, out: Array) -> None:
    """out_x ← sqrt(π_x)·(rows_x − Σ_y π_y rows_y), (m, d)."""
    for j in range(len(mean)):
        mean[j] = 0.0
    combine(mean, 1.0, policy, rows)
    for x in range(rows.shape[0]):
        root = math.sqrt(policy[x])
        for j in range(rows.shape[1]):
            out[x, j] = root * (rows[x, j] - mean[j])


@compiled
def _solve(factors: Array, products: Array, small: Array, right: Array) -> None:
    """Solve (I + factors·productsᵀ)·x = `right` in place, (m,), by Cholesky in `small`."""
    m = len(right)
    for x in range(m):
        project(factors[: x + 1], products[x], small[x, : x + 1])
        small[x, x] += 1.0
        for y in range(x):
            for z in range(y):
                small[x, y] -= small[x, z] * small[y, z]
            small[x, y] /= small[y, y]
            small[x, x] -= small[x, y] * small[x, y]
        small[x, x] = math.sqrt(small[x, x])
    for x in range(m):
        for y in range(x):
            right[x] -= small[x, y] * right[y]
        right[x] /= small[x, x]
    for x in range(m - 1, -1, -1):
        for y in range(x + 1, m):
            right[x] -= small[y, x] * right[y]
        right[x] /= small[x, x]
