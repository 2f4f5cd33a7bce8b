"""The compiled rounds of `blocked` and `stepwise`: images come from outside, updates wait.

The decisions are those of `fused`, from the same functions. Where it cannot go on, the loop stops
before the round, everything as the round found it, and says why.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game import confidence, measures, rules
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
)
from stacksl.game.engines.compiling import compiled, kept, stamp, summed
from stacksl.game.engines.pending import Pending
from stacksl.game.engines.plans import (
    ALL,
    ASKED,
    LEARNT,
    NEWTON,
    ROUNDS,
    SGD,
    THETA,
    Certificates,
    Memory,
    Plan,
    Space,
)
from stacksl.game.inputs import Array
from stacksl.game.rules import Clock

__all__ = ["BLIND", "CLOSE", "COARSE", "DONE", "NOT_FINITE", "Care", "play_rounds"]

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
    waits.status[0] = DONE
    for i in range(len(phi)):
        t = start + i
        clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
        verdict = judging.forced(clock, plan.exact_spend)
        everyone = space.everyone if plan.present > 0 else space.scores
        algebra.project(phi[i], memory.theta, everyone)
        if not judging.all_finite(everyone):
            waits.status[0] = NOT_FINITE
            return i
        rows = phi[i]
        if plan.present > 0:
            following.present(space, out, rows, t)
            rows = space.rows
        space.current[0] = True
        reach = judging.reach_of(plan, memory, rows.shape[1])
        sighted = len(images) > 0
        needed = plan.track != THETA and (
            judging.needs_widths(plan, verdict) or _in_doubt(plan, space, rows, reach)
        )
        if needed and not sighted:
            waits.status[0] = BLIND
            return i
        shaded = images[i] if sighted else rows
        if sighted and plan.track != THETA:
            pending.shade(rows, waits.halves, waits.used[0], waits.shadows)
            if needed or care.least > 0.0:
                pending.shaded_norms(rows, shaded, waits.shadows, waits.used[0], space.widths)
            if care.least > 0.0 and _coarse(plan, rows, space.widths, care.least):
                waits.status[0] = COARSE
                return i
        rewarded = len(rewards) > 0
        choice = _judge(
            plan, space, waits, out, rows, shaded, clock, verdict, reach, needed, rewarded, t
        )
        state = (memory.gate_state[0], memory.gate_state[1], memory.gate_state[2])
        asks = judging.settle(plan, memory, out, uniforms[t], clock, verdict, t)
        enters = plan.track != THETA and (asks or plan.track == ALL)
        stop = DONE
        if enters and not sighted:
            stop = BLIND
        elif care.close > 0.0 and _close(plan, space, out, choice, verdict, care.close, t):
            stop = CLOSE
        elif asks and plan.hopeful:
            choice = _hope(plan, space, waits, out, rows, shaded, reach, t)
            if care.close > 0.0 and _tied(space, choice, care.close):
                stop = CLOSE
        if stop != DONE:
            memory.gate_state[0], memory.gate_state[1], memory.gate_state[2] = state
            waits.status[0] = stop
            return i
        if judging.steadies(plan, asks, verdict):
            descent.gradient_step(plan, memory, space, rows, none)
        gold = labels[i] if asks and len(labels) > 0 else none
        if asks and len(utilities) > 0:
            gold = following.best_presented(utilities[i], space.shown)
        played = space.shown[choice] if plan.present > 0 else choice
        reward = rewards[i, played] if asks and rewarded else 0.0
        memory.counts[ROUNDS] += 1
        if asks and plan.scorer == SGD:
            descent.gradient_step(plan, memory, space, rows, gold)
        if enters:
            entering.enter(plan, memory, space, waits, rows, shaded, choice, gold, reward, asks)
        if asks:
            memory.counts[ASKED] += 1
            memory.counts[LEARNT] += 1
        out.choices[t] = played
    return len(phi)


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
    choice = judging.action_of(plan, space.scores, space.widths, reach, fresh, space.values)
    if fresh and (plan.certificates or judging.reads_pairs(plan)):
        pending.shaded_pair_norms(rows, images, waits.shadows, waits.used[0], choice, space.pairs)
    out.choices[t] = choice
    out.scores[t] = space.scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * space.widths[choice]
        out.gate_scores[t] = judging.contested_statistic(
            space.scores, space.pairs, choice, plan.width_scale
        )
    if judging.known(plan, verdict):
        if fresh and plan.gate == judging.INFORMATION and plan.scorer == NEWTON:
            entering.correct_all(space, waits, images)
        told = informing.told(plan, space, rows, choice, rewarded)
        out.statistics[t] = judging.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, choice, told
        )
    return choice


@compiled
def _in_doubt(plan: Plan, space: Space, rows: Array, reach: float) -> bool:
    """Whether the tie rule could go either way without widths, which are below ‖φ‖/√ridge."""
    longest = 0.0
    for x in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * rows[x, j]
        longest = max(longest, total)
    return judging.ambiguous(space.scores, reach * math.sqrt(longest / plan.ridge))


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


@compiled
def _close(
    plan: Plan, space: Space, out: Certificates, choice: int, verdict: int, close: float, t: int
) -> bool:
    """Whether the action or the purchase lies within `close`, relative, of a tie."""
    if _tied(space, choice, close):
        return True
    g, level = out.statistics[t], out.thresholds[t]
    return verdict == 0 and abs(g - level) <= close * max(abs(g), abs(level))


@compiled
def _tied(space: Space, choice: int, close: float) -> bool:
    """Whether another of `space.values` lies within `close`, relative, of the choice's."""
    second, scale = -np.inf, 0.0
    for x in range(len(space.values)):
        scale = max(scale, abs(space.values[x]))
        if x != choice:
            second = max(second, space.values[x])
    return bool(abs(space.values[choice] - second) <= close * scale)


@compiled
def _hope(
    plan: Plan,
    space: Space,
    waits: Pending,
    out: Certificates,
    rows: Array,
    images: Array,
    reach: float,
    t: int,
) -> int:
    """The largest UCB, played because the round asks; writes its part of the certificate."""
    pending.shaded_norms(rows, images, waits.shadows, waits.used[0], space.widths)
    scale = 0.0
    for x in range(len(rows)):
        space.values[x] = space.scores[x] + reach * space.widths[x]
        scale = max(scale, abs(space.scores[x]) + reach * space.widths[x])
    choice = judging.pick_action(space.values, scale)
    out.choices[t] = choice
    out.scores[t] = space.scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * space.widths[choice]
    return choice


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
        measures,
        pending,
        plans,
        rules,
    )
)
