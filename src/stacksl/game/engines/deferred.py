"""The compiled rounds of `blocked` and `stepwise`: images come from outside, updates wait.

The decisions are those of `fused`, from the same functions. Where it cannot go on, the loop stops
before the round, everything as the round found it, and says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game import confidence, losses, measures, rules
from stacksl.game.engines import (
    algebra,
    descent,
    entering,
    exponentials,
    following,
    informing,
    judging,
    learning,
    pending,
    plans,
    rooms,
    stops,
)
from stacksl.game.engines.compiling import compiled, kept, stamp
from stacksl.game.engines.pending import Pending
from stacksl.game.engines.plans import ALL, NEWTON, SGD, THETA, Plan
from stacksl.game.engines.rooms import ASKED, LEARNT, ROUNDS, Certificates, Memory, Space
from stacksl.game.engines.stops import BLIND, CLOSE, DONE, NOT_FINITE, Care
from stacksl.game.inputs import Array
from stacksl.game.rules import Clock

__all__ = ["play_rounds"]


@compiled
def _play(
    plan: Plan,
    memory: Memory,
    space: Space,
    waits: Pending,
    care: Care,
    out: Certificates,
    phi: Array,
    images: Array,
    labels: NDArray[np.int64],
    rewards: Array,
    utilities: Array,
    uniforms: Array,
    start: int,
) -> int:
    """Rounds start + 1 to start + n; gives the first (from 0, within `phi`) that was not played.

    `images` are those of the rows of `phi` under G, (n, K, d), or empty; under a follower there is
    one round, and they are those of `space.rows`, which a call without images has set.
    """
    none = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    follows, sighted, rewarded = plan.present > 0, len(images) > 0, len(rewards) > 0
    waits.status[0] = DONE
    for i in range(len(phi)):
        t = start + i
        clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
        verdict = judging.forced(clock, plan.exact_spend)
        if not following.show(memory, space, out, phi[i], follows, t):
            waits.status[0] = NOT_FINITE
            return i
        rows = space.rows if follows else phi[i]
        shaded = images[i] if sighted else rows
        reach = judging.reach_of(plan, memory)
        needed = _needs_images(plan, space, rows, verdict, reach)
        waits.status[0] = stops.look(plan, space, waits, care, rows, shaded, needed, sighted)
        if waits.status[0] != DONE:
            return i
        choice = _judge(
            plan,
            space,
            waits,
            out,
            rows,
            shaded,
            clock,
            verdict,
            reach,
            needed,
            rewarded,
            t,
        )
        choice, asks = _settle(
            plan, memory, space, waits, care, out, rows, shaded, uniforms[t], clock, verdict, reach,
            choice, sighted, t,
        )  # fmt: skip
        if waits.status[0] != DONE:
            return i
        if judging.steadies(plan, asks, verdict):
            descent.gradient_step(plan, memory, space, rows, none)
        gold, reward = none, 0.0
        if asks:
            gold, reward = following.answer(space, labels, rewards, utilities, i, choice, follows)
        _take(plan, memory, space, waits, rows, shaded, choice, gold, reward, asks)
        out.choices[t] = space.shown[choice] if follows else choice
    return len(phi)


@compiled
def _needs_images(plan: Plan, space: Space, rows: Array, verdict: int, reach: float) -> bool:
    """Whether the action or the gate reads widths in this round."""
    return plan.track != THETA and (
        judging.needs_widths(plan, verdict)
        or judging.in_doubt(plan, space.scores, judging.longest(rows), reach)
    )


@compiled
def _judge(
    plan: Plan,
    space: Space,
    waits: Pending,
    out: Certificates,
    rows: Array,
    images: Array,
    clock: Clock,
    verdict: int,
    reach: float,
    fresh: bool,
    rewarded: bool,
    t: int,
) -> int:
    """The action; writes the certificate."""
    choice = judging.action_of(plan.ucb, space.scores, space.widths, reach, fresh, space.values)
    if fresh and (plan.certificates or plan.by_pairs):
        pending.shaded_pair_norms(rows, images, waits.shadows, waits.used[0], choice, space.pairs)
    judging.certify(plan, out, space.scores, space.widths, space.pairs, reach, choice, t)
    if judging.known(plan, verdict):
        if fresh and plan.gate == judging.INFORMATION and plan.scorer == NEWTON:
            entering.correct_all(space, waits, images)
        told = informing.told(plan, space, rows, choice, rewarded)
        out.statistics[t] = judging.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, choice, told
        )
    return choice


@compiled
def _settle(
    plan: Plan,
    memory: Memory,
    space: Space,
    waits: Pending,
    care: Care,
    out: Certificates,
    rows: Array,
    images: Array,
    u: float,
    clock: Clock,
    verdict: int,
    reach: float,
    choice: int,
    sighted: bool,
    t: int,
) -> tuple[int, bool]:
    """The action that is played, and whether the round asks.

    Where these images do not do, `waits.status` says why, and the gate's state is as before.
    """
    state = (memory.gate_state[0], memory.gate_state[1], memory.gate_state[2])
    asks = judging.settle(plan, memory, out, u, clock, verdict, t)
    if _enters(plan, asks) and not sighted:
        waits.status[0] = BLIND
    elif care.close > 0.0 and stops.near(plan, space, out, choice, verdict, care.close, t):
        waits.status[0] = CLOSE
    elif asks and plan.asked_choice:
        pending.shaded_norms(rows, images, waits.shadows, waits.used[0], space.widths)
        choice = judging.change_to_asked(
            plan, out, space.scores, space.widths, reach, space.values, t
        )
        if care.close > 0.0 and stops.tied(space, choice, care.close):
            waits.status[0] = CLOSE
    if waits.status[0] != DONE:
        memory.gate_state[0], memory.gate_state[1], memory.gate_state[2] = state
    return choice, asks


@compiled
def _enters(plan: Plan, asks: bool) -> bool:
    """Whether the round moves V."""
    return plan.track != THETA and (asks or plan.track == ALL)


@compiled
def _take(
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
    """A round gone by: it is counted, and what it asked for is learnt."""
    memory.counts[ROUNDS] += 1
    if asks and plan.scorer == SGD:
        descent.gradient_step(plan, memory, space, rows, gold)
    if _enters(plan, asks):
        entering.enter(plan, memory, space, waits, rows, images, choice, gold, reward, asks)
    if asks:
        memory.counts[ASKED] += 1
        memory.counts[LEARNT] += 1


def _entry(mark: int) -> Any:
    @kept
    def play(
        plan: Plan,
        memory: Memory,
        space: Space,
        waits: Pending,
        care: Care,
        out: Certificates,
        phi: Array,
        images: Array,
        labels: NDArray[np.int64],
        rewards: Array,
        utilities: Array,
        uniforms: Array,
        start: int,
    ) -> int:
        assert mark >= 0
        return _play(
            plan,
            memory,
            space,
            waits,
            care,
            out,
            phi,
            images,
            labels,
            rewards,
            utilities,
            uniforms,
            start,
        )

    return play


play_rounds = _entry(
    stamp(
        algebra,
        confidence,
        descent,
        entering,
        exponentials,
        following,
        informing,
        judging,
        learning,
        losses,
        measures,
        pending,
        plans,
        rooms,
        rules,
        stops,
    )
)
