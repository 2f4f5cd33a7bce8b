"""Updates of θ and V on pair features after an answer or a skip; steps of `sgd`; the drift guard.

`products` is rows·V⁻¹ where `fresh` says that it was computed under the present V⁻¹; every update
of V⁻¹ uses it up.
"""

from __future__ import annotations

import math

from stacksl.core import losses
from stacksl.core.blocks import Array
from stacksl.core.calibration import WINDOW
from stacksl_lab import drift
from stacksl_lab.engines.algebra import absorb, combine, image, images, project, rank_one
from stacksl_lab.engines.compiling import allocating, compiled, inlined
from stacksl_lab.engines.decide import fill
from stacksl_lab.engines.loop_state import CLIPPED, LEARNED, ROUNDS, Memory, Space
from stacksl_lab.engines.plan import (
    EMA,
    LITERAL_CLIP,
    NO_CLIP,
    PREVIOUS,
    RIDGE,
    SGD,
    Plan,
)
from stacksl_lab.engines.policy_statistics import information, policy_of

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
        _add_row(memory, space, rows, choice, fresh)
    elif plan.scorer == RIDGE:
        _regress(memory, space, rows, choice, gold, reward, fresh)
    else:
        _newton_step(memory, space, rows, gold, fresh)
    memory.counts[LEARNED] += 1
    memory.counts[ROUNDS] += 1


@inlined
def count_skip(
    plan: Plan, memory: Memory, space: Space, rows: Array, choice: int, fresh: bool
) -> None:
    """An unasked round: it is counted, and under track='all' it enters V."""
    memory.counts[ROUNDS] += 1
    if not plan.tracks_all:
        return
    if plan.scorer in (SGD, RIDGE):
        _add_row(memory, space, rows, choice, fresh)
        if plan.scorer == RIDGE:
            image(memory.gram_inv, memory.moment, memory.theta)
        return
    if not fresh:
        images(memory.gram_inv, rows, space.products)
    _add_information(memory, space, rows)


@compiled
def _add_row(memory: Memory, space: Space, rows: Array, choice: int, fresh: bool) -> None:
    """V ← V + φφᵀ for the choice's row."""
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
    _center(rows, space.policy, space.mean, space.factors)
    _center(space.products, space.policy, space.mean, space.spare)


@compiled
def _center(rows: Array, policy: Array, mean: Array, out: Array) -> None:
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
    """Whether an answer, not yet learned, takes S above the level; the arguments are `learn`'s."""
    learned, d = memory.counts[LEARNED], rows.shape[1]
    if learned <= plan.warm * d:
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
        memory.suspicion[0], square, leverage, learned, d, plan.allowance, plan.surprise_cap,
        plan.leverage, plan.warm,
    )  # fmt: skip
    return _alarmed(memory.suspicion[0], plan.alarm_level)


@inlined
def start_over(plan: Plan, memory: Memory) -> None:
    """Everything learned is forgotten, as `make_memory` began; labels asked and gate stay."""
    fill(memory.theta, 0.0)
    fill(memory.reference, 0.0)
    fill(memory.moment, 0.0)
    fill(memory.losses, 0.0)
    fill(memory.ordered, 0.0)
    memory.kl_weight[0] = plan.kl_weight
    for i in range(memory.gram_inv.shape[0]):
        fill(memory.gram_inv[i], 0.0)
        memory.gram_inv[i, i] = 1.0 / plan.ridge
    memory.counts[LEARNED] = 0
    memory.counts[ROUNDS] = 0
    memory.counts[CLIPPED] = 0
    memory.suspicion[0] = 0.0
    memory.volume[0] = 0.0


_above = compiled(losses.above)

_ENOUGH = 20  # losses before their quantile means anything
_QUANTILE = 0.95
_FACTOR = 1.5  # by which the KL weight is adjusted


@compiled
def gradient_step(plan: Plan, memory: Memory, space: Space, rows: Array, gold: int) -> None:
    """`sgd` on the clipped loss and the KL term, or on the KL term alone (`gold` = −1)."""
    level = _clip_level(plan, memory)
    weight = memory.kl_weight[0]
    steady = not math.isnan(plan.kl_target)
    loss = 0.0
    for inner in range(plan.inner_steps):
        if inner > 0 or not space.current[0]:
            project(rows, memory.theta, space.scores)
        if inner == 0 and (weight > 0.0 or steady):
            _anchor(plan, memory, space, rows)
        size = policy_of(space.scores, space.powers, space.policy)
        value = size - space.scores[gold] if gold >= 0 else 0.0
        if inner == 0:
            loss = value
        _slope(plan, space, gold, value, level, size, weight)
        combine(memory.theta, -plan.learning_rate, space.slope, rows)
        space.current[0] = False
    if steady:
        _adjust(plan, memory, space, rows)
    if plan.reference == EMA:
        _follow(memory.reference, memory.theta, plan.ema_decay)
    if gold >= 0:
        _count_loss(plan, memory, loss, level)


@compiled
def _follow(reference: Array, theta: Array, decay: float) -> None:
    """θ_ref ← α·θ_ref + (1 − α)·θ in place, (d,)."""
    for j in range(len(theta)):
        reference[j] = decay * reference[j] + (1.0 - decay) * theta[j]


@inlined
def _slope(
    plan: Plan, space: Space, gold: int, loss: float, level: float, size: float, weight: float
) -> None:
    """The gradient over the scores, from the policy and `size` = log Σ exp s."""
    keep = 0.0
    if gold >= 0:
        keep = 1.0
        if plan.clip != NO_CLIP and _above(loss, level):
            keep = 0.0 if plan.clip == LITERAL_CLIP else level / loss
    policy, scores, anchor, slope = space.policy, space.scores, space.anchor, space.slope
    for x in range(len(slope)):
        slope[x] = keep * policy[x]
    if gold >= 0:
        slope[gold] -= keep
    if not weight > 0.0:
        return
    mean = _divergence(policy, scores, anchor, size)
    for x in range(len(slope)):
        slope[x] += weight * policy[x] * (scores[x] - size - anchor[x] - mean)


@inlined
def _divergence(policy: Array, scores: Array, anchor: Array, size: float) -> float:
    """KL(π ‖ π_ref), for `size` = log Σ exp s and `anchor` = log π_ref, (m,)."""
    total = 0.0
    for x in range(len(policy)):
        total += policy[x] * (scores[x] - size - anchor[x])
    return total


@inlined
def _adjust(plan: Plan, memory: Memory, space: Space, rows: Array) -> None:
    """The KL weight after the step, by `gradient.adjusted_kl_weight`."""
    project(rows, memory.theta, space.scores)
    size = policy_of(space.scores, space.powers, space.policy)
    observed = _divergence(space.policy, space.scores, space.anchor, size)
    weight = max(memory.kl_weight[0], 1e-6)
    if observed > _FACTOR * plan.kl_target:
        weight = min(1.0 / plan.learning_rate, weight * _FACTOR)
    elif observed < plan.kl_target / _FACTOR:
        weight = max(1e-6, weight / _FACTOR)
    memory.kl_weight[0] = weight


@inlined
def _anchor(plan: Plan, memory: Memory, space: Space, rows: Array) -> None:
    """Write log π_ref of the rows into `space.anchor`; the frozen reference is θ = 0."""
    anchor, scores = space.anchor, space.scores
    if plan.reference == PREVIOUS:
        for x in range(len(anchor)):
            anchor[x] = scores[x]
    elif plan.reference == EMA:
        project(rows, memory.reference, anchor)
    else:
        even = -math.log(len(anchor))
        for x in range(len(anchor)):
            anchor[x] = even
        return
    size = policy_of(anchor, space.powers, space.slope)
    for x in range(len(anchor)):
        anchor[x] -= size


@inlined
def _clip_level(plan: Plan, memory: Memory) -> float:
    """ρ: as given, or a multiple of the median, or the 95% quantile, of the last losses."""
    if not math.isnan(plan.clip_level):
        return plan.clip_level
    seen = min(memory.counts[LEARNED], WINDOW)
    if seen < _ENOUGH:
        return math.inf
    if not math.isnan(plan.clip_multiple):
        middle = memory.ordered[seen // 2] + memory.ordered[(seen - 1) // 2]
        return float(plan.clip_multiple * 0.5 * middle)
    return float(memory.ordered[math.ceil(_QUANTILE * seen) - 1])


@inlined
def _count_loss(plan: Plan, memory: Memory, loss: float, level: float) -> None:
    """The ring of losses and its sorted copy, one loss further."""
    if plan.clip != NO_CLIP and _above(loss, level):
        memory.counts[CLIPPED] += 1
    if plan.clip == NO_CLIP or not math.isnan(plan.clip_level):
        return
    learned = memory.counts[LEARNED]
    slot, last = learned % WINDOW, min(learned, WINDOW)
    ordered = memory.ordered
    if learned >= WINDOW:
        last -= 1
        leaving = memory.losses[slot]
        for x in range(last):
            if ordered[x] >= leaving:
                ordered[x] = ordered[x + 1]
    memory.losses[slot] = loss
    while last > 0 and ordered[last - 1] > loss:
        ordered[last] = ordered[last - 1]
        last -= 1
    ordered[last] = loss
