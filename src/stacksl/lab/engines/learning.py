"""Updates of θ and V on pair features after a label, a reward or a skip; the drift guard.

`products` is rows·V⁻¹ where `fresh` says that it was computed under the present V⁻¹; every update
of V⁻¹ uses it up.
"""

from __future__ import annotations

import math

from stacksl.core import drift
from stacksl.core.blocks import Array
from stacksl.lab.engines.algebra import absorb, combine, image, images, project, rank_one
from stacksl.lab.engines.compiling import allocating, compiled, inlined
from stacksl.lab.engines.decide import fill
from stacksl.lab.engines.gradient import gradient_step
from stacksl.lab.engines.loop_state import CLIPPED, LEARNT, ROUNDS, Memory, Space
from stacksl.lab.engines.plan import ALL, RIDGE, SGD, THETA, Plan
from stacksl.lab.engines.policy_statistics import information, policy_of

_advanced = allocating(drift.advanced)
_alarmed = allocating(drift.alarmed)
_label_surprise = allocating(drift.label_surprise)
_reward_surprise = allocating(drift.reward_surprise)


@inlined
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
        _add_row(plan, memory, space, rows, choice, fresh)
    elif plan.scorer == RIDGE:
        _regress(memory, space, rows, choice, gold, reward, fresh)
    else:
        _newton_step(memory, space, rows, gold, fresh)
    memory.counts[LEARNT] += 1
    memory.counts[ROUNDS] += 1


@inlined
def count_skip(
    plan: Plan, memory: Memory, space: Space, rows: Array, choice: int, fresh: bool
) -> None:
    """An unasked round: it is counted, and under track='all' it enters V."""
    memory.counts[ROUNDS] += 1
    if plan.track != ALL:
        return
    if plan.scorer in (SGD, RIDGE):
        _add_row(plan, memory, space, rows, choice, fresh)
        if plan.scorer == RIDGE:
            image(memory.gram_inv, memory.moment, memory.theta)
        return
    if not fresh:
        images(memory.gram_inv, rows, space.products)
    _add_information(memory, space, rows)


@compiled
def _add_row(
    plan: Plan, memory: Memory, space: Space, rows: Array, choice: int, fresh: bool
) -> None:
    """V ← V + φφᵀ for the choice's row."""
    if plan.track == THETA:
        return
    product = space.products[choice]
    if not fresh:
        image(memory.gram_inv, rows[choice], product)
    memory.volume[0] += rank_one(memory.gram_inv, rows[choice], product)


@inlined
def _regress(
    memory: Memory, space: Space, rows: Array, choice: int, gold: int, reward: float, fresh: bool
) -> None:
    """The ridge estimate of one more label (all rows enter V) or reward (the choice's row)."""
    if gold >= 0:
        if not fresh:
            images(memory.gram_inv, rows, space.products)
        for j in range(rows.shape[1]):
            memory.moment[j] += rows[gold, j]
        memory.volume[0] += absorb(memory.gram_inv, rows, space.products, space.small)
    else:
        product = space.products[choice]
        if not fresh:
            image(memory.gram_inv, rows[choice], product)
        for j in range(rows.shape[1]):
            memory.moment[j] += reward * rows[choice, j]
        memory.volume[0] += rank_one(memory.gram_inv, rows[choice], product)
    image(memory.gram_inv, memory.moment, memory.theta)


@inlined
def _newton_step(memory: Memory, space: Space, rows: Array, gold: int, fresh: bool) -> None:
    """θ ← θ − (H + F(θ))⁻¹g, then H ← H + F(θ); see `scorers.newton.PairNewton`."""
    if not fresh:
        images(memory.gram_inv, rows, space.products)
    project(rows, memory.theta, space.scores)
    slope, against, direction = space.slope, space.anchor, space.direction
    _weigh(space, rows)
    for x in range(len(rows)):
        slope[x] = space.policy[x] - (1.0 if x == gold else 0.0)
    for j in range(len(direction)):
        direction[j] = 0.0
    combine(direction, 1.0, slope, space.products)
    project(space.factors, direction, against)
    _solve(space.factors, space.spare, space.small, against)
    combine(memory.theta, -1.0, slope, space.products)
    combine(memory.theta, 1.0, against, space.spare)
    _add_information(memory, space, rows)


@compiled
def _add_information(memory: Memory, space: Space, rows: Array) -> None:
    """H ← H + F(θ), from the rows' images under the present H⁻¹."""
    project(rows, memory.theta, space.scores)
    _weigh(space, rows)
    memory.volume[0] += absorb(memory.gram_inv, space.factors, space.spare, space.small)


@compiled
def _weigh(space: Space, rows: Array) -> None:
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


@inlined
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


@inlined
def alarms(
    plan: Plan,
    memory: Memory,
    space: Space,
    rows: Array,
    choice: int,
    gold: int,
    reward: float,
    fresh: bool,
) -> bool:
    """Whether an answer, not yet learnt, takes S above the level; the arguments are `learn`'s."""
    learnt, d = memory.counts[LEARNT], rows.shape[1]
    if learnt <= plan.warm * d:
        return False
    if gold >= 0:
        if not fresh:
            images(memory.gram_inv, rows, space.products)
        if not space.current[0]:
            project(rows, memory.theta, space.scores)
            space.current[0] = True
        square = _label_surprise(space.scores, gold)
        policy_of(space.scores, space.powers, space.policy)
        leverage = information(rows, space.products, space.policy, space.mean, space.direction)
    else:
        product = space.products[choice]
        if not fresh:
            image(memory.gram_inv, rows[choice], product)
        leverage = 0.0
        for j in range(d):
            leverage += rows[choice, j] * product[j]
        square = _reward_surprise(reward, space.scores[choice], plan.noise)
    memory.suspicion[0] = _advanced(
        memory.suspicion[0], square, leverage, learnt, d, plan.allowance, plan.surprise_cap,
        plan.leverage, plan.warm,
    )  # fmt: skip
    return _alarmed(memory.suspicion[0], plan.alarm_level)


@inlined
def start_over(plan: Plan, memory: Memory) -> None:
    """Everything learnt is forgotten, as `make_memory` began; labels asked and gate stay."""
    fill(memory.theta, 0.0)
    fill(memory.reference, 0.0)
    fill(memory.moment, 0.0)
    fill(memory.losses, 0.0)
    fill(memory.ordered, 0.0)
    memory.kl_weight[0] = plan.kl_weight
    for i in range(memory.gram_inv.shape[0]):
        fill(memory.gram_inv[i], 0.0)
        memory.gram_inv[i, i] = 1.0 / plan.ridge
    memory.counts[LEARNT] = 0
    memory.counts[ROUNDS] = 0
    memory.counts[CLIPPED] = 0
    memory.suspicion[0] = 0.0
    memory.volume[0] = 0.0
