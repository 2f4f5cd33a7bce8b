"""The gradient step of `sgd` on the scores of one item, and its window of losses."""

from __future__ import annotations

import math

from stacksl.core import losses
from stacksl.core.blocks import Array
from stacksl.lab.engines.algebra import combine, project
from stacksl.lab.engines.compiling import compiled, inlined
from stacksl.lab.engines.loop_state import CLIPPED, LEARNT, WINDOW, Memory, Space
from stacksl.lab.engines.plan import EMA, LITERAL_CLIP, NO_CLIP, PREVIOUS, Plan
from stacksl.lab.engines.policy_statistics import policy_of

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
    """The KL weight after the step, by `calibration.adjusted_kl_weight`."""
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
    """ρ: as given, or a multiple of the median, or the 95 % quantile, of the last losses."""
    if not math.isnan(plan.clip_level):
        return plan.clip_level
    seen = min(memory.counts[LEARNT], WINDOW)
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
    learnt = memory.counts[LEARNT]
    slot, last = learnt % WINDOW, min(learnt, WINDOW)
    ordered = memory.ordered
    if learnt >= WINDOW:
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
