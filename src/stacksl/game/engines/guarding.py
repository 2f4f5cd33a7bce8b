"""The drift guard inside the compiled loop: `drift`'s arithmetic on the numbers in room."""

from __future__ import annotations

from stacksl.game import drift
from stacksl.game.engines.algebra import image, images, project
from stacksl.game.engines.compiling import allocating, compiled
from stacksl.game.engines.descent import policy_of
from stacksl.game.engines.informing import information
from stacksl.game.engines.judging import fill
from stacksl.game.engines.plans import Plan
from stacksl.game.engines.rooms import CLIPPED, LEARNT, ROUNDS, Memory, Space
from stacksl.game.inputs import Array

__all__ = ["alarms", "start_over"]

_advanced = allocating(drift.advanced)
_alarmed = allocating(drift.alarmed)
_label_surprise = allocating(drift.label_surprise)
_reward_surprise = allocating(drift.reward_surprise)


@compiled
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
        memory.suspicion[0],
        square,
        leverage,
        learnt,
        d,
        plan.allowance,
        plan.surprise_cap,
        plan.leverage,
        plan.warm,
    )
    return _alarmed(memory.suspicion[0], plan.alarm_level)


@compiled
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
