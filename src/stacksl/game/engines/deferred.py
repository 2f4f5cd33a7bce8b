"""The compiled rounds of `blocked` and `stepwise`: images come from outside, updates wait.

The decisions are those of `fused`, from the same functions. Where it cannot go on, the loop stops
before the round, everything as the round found it, and says why.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game import confidence, rules
from stacksl.game.engines import (
    algebra,
    descent,
    exponentials,
    judging,
    learning,
    pending,
    plans,
)
from stacksl.game.engines.compiling import compiled, kept, stamp, summed
from stacksl.game.engines.learning import _centre, _solve
from stacksl.game.engines.pending import Pending
from stacksl.game.engines.plans import (
    ALL,
    ASKED,
    LEARNT,
    NEWTON,
    RIDGE,
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
    uniforms: Array,
    start: int,
) -> int:
    """Rounds start + 1 to start + n; gives the first (from 0, within `phi`) that was not played.

    `images` are those of all rows of `phi` under G, (n, K, d), or empty.
    """
    none = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    waits.status[0] = DONE
    for i in range(len(phi)):
        t = start + i
        rows = phi[i]
        clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
        verdict = judging.forced(clock, plan.exact_spend)
        algebra.project(rows, memory.theta, space.scores)
        space.current[0] = True
        if not judging.all_finite(space.scores):
            waits.status[0] = NOT_FINITE
            return i
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
            if needed:
                pending.shaded_norms(rows, shaded, waits.shadows, waits.used[0], space.widths)
            if care.least > 0.0 and needed and _coarse(plan, rows, space.widths, care.least):
                waits.status[0] = COARSE
                return i
        choice = _judge(plan, space, waits, out, rows, shaded, clock, verdict, reach, needed, t)
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
        reward = rewards[i, choice] if asks and len(rewards) > 0 else 0.0
        memory.counts[ROUNDS] += 1
        if asks and plan.scorer == SGD:
            descent.gradient_step(plan, memory, space, rows, gold)
        if enters:
            _enter(plan, memory, space, waits, rows, shaded, choice, gold, reward, asks)
        if asks:
            memory.counts[ASKED] += 1
            memory.counts[LEARNT] += 1
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
    t: int,
) -> int:
    """The action; writes the certificate."""
    choice = judging.action_of(plan, space.scores, space.widths, reach, fresh, space.values)
    by_gate = plan.gate in (judging.CONTESTED, judging.ADPO)
    if fresh and (plan.certificates or by_gate):
        pending.shaded_pair_norms(rows, images, waits.shadows, waits.used[0], choice, space.pairs)
    out.choices[t] = choice
    out.scores[t] = space.scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * space.widths[choice]
        out.gate_scores[t] = judging.contested_statistic(
            space.scores, space.pairs, choice, plan.width_scale
        )
    if judging.known(plan, verdict):
        out.statistics[t] = judging.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, choice
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


@compiled
def _enter(
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
        for x in range(len(rows)):
            pending.correct(
                images[x], waits.shadows[x], waits.halves, waits.used[0], space.products[x]
            )
        if plan.scorer == RIDGE:
            _regress(memory, space, waits, rows, gold)
        else:
            if asks:
                _newton_step(memory, space, rows, gold)
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
def _newton_step(memory: Memory, space: Space, rows: Array, gold: int) -> None:
    """θ ← θ − (H + F(θ))⁻¹g, as in `learning`."""
    slope, against, direction = space.slope, space.anchor, space.direction
    descent.policy_of(space.scores, space.powers, space.policy)
    for x in range(len(rows)):
        slope[x] = space.policy[x] - (1.0 if x == gold else 0.0)
    for j in range(len(direction)):
        direction[j] = 0.0
    algebra.combine(direction, 1.0, slope, space.products)
    _centre(rows, space.policy, space.mean, space.factors)
    _centre(space.products, space.policy, space.mean, space.spare)
    algebra.project(space.factors, direction, against)
    _solve(space.factors, space.spare, space.small, against)
    algebra.combine(memory.theta, -1.0, slope, space.products)
    algebra.combine(memory.theta, 1.0, against, space.spare)


@compiled
def _inform(memory: Memory, space: Space, waits: Pending, rows: Array) -> None:
    """H ← H + F(θ), from the rows' images under the present H⁻¹."""
    algebra.project(rows, memory.theta, space.scores)
    descent.policy_of(space.scores, space.powers, space.policy)
    _centre(rows, space.policy, space.mean, space.factors)
    _centre(space.products, space.policy, space.mean, space.spare)
    pending.add_rows(waits, space.factors, space.spare, space.small)


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
        uniforms: Array,
        start: int,
    ) -> int:
        assert mark >= 0
        return _play(
            plan, memory, space, waits, care, out, phi, images, labels, rewards, uniforms, start
        )

    return play


play_rounds = _entry(
    stamp(algebra, confidence, descent, exponentials, judging, learning, pending, plans, rules)
)
