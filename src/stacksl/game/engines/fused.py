"""The engine `fused` on pair features: one compiled loop from features to labels learnt."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game import confidence, drift, measures, rules
from stacksl.game.engines import (
    algebra,
    descent,
    exponentials,
    following,
    guarding,
    informing,
    judging,
    learning,
    plans,
)
from stacksl.game.engines.compiling import compiled, kept, stamp
from stacksl.game.engines.plans import ASKED, THETA, Certificates, Memory, Plan, Space
from stacksl.game.inputs import Array
from stacksl.game.rules import Clock

__all__ = ["play_pairs"]


@compiled
def _play(
    plan: Plan,
    memory: Memory,
    space: Space,
    out: Certificates,
    phi: Array,
    labels: NDArray[np.int64],
    rewards: Array,
    utilities: Array,
    uniforms: Array,
    start: int,
) -> int:
    """The rounds start + 1 to start + n of Algorithms 1 and 2, item by item.

    Gives −1, or the first round (from 0) whose scores are no finite numbers, where it stops.
    """
    none = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    for i in range(len(phi)):
        t = start + i
        clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
        verdict = judging.forced(clock, plan.exact_spend)
        if plan.present > 0:
            algebra.project(phi[i], memory.theta, space.everyone)
            if not judging.all_finite(space.everyone):
                return t
            following.present(space, out, phi[i], t)
            rows = space.rows
        else:
            rows = phi[i]
            algebra.project(rows, memory.theta, space.scores)
            if not judging.all_finite(space.scores):
                return t
        space.current[0] = True
        choice, fresh = _judge(plan, memory, space, out, rows, clock, verdict, len(rewards) > 0, t)
        asks = judging.settle(plan, memory, out, uniforms[t], clock, verdict, t)
        if asks and plan.hopeful:
            choice, fresh = _hope(plan, memory, space, out, rows, fresh, t), True
        if judging.steadies(plan, asks, verdict):
            descent.gradient_step(plan, memory, space, rows, none)
        if asks:
            memory.counts[ASKED] += 1
            gold = labels[i] if len(labels) > 0 else none
            if len(utilities) > 0:
                gold = following.best_presented(utilities[i], space.shown)
            played = space.shown[choice] if plan.present > 0 else choice
            reward = rewards[i, played] if len(rewards) > 0 else 0.0
            if plan.guarded and guarding.alarms(
                plan, memory, space, rows, choice, gold, reward, fresh
            ):
                guarding.start_over(plan, memory)
                out.resets[t] = True
            else:
                learning.learn(plan, memory, space, rows, choice, gold, reward, fresh)
        else:
            learning.count_skip(plan, memory, space, rows, choice, fresh)
        if plan.present > 0:
            out.choices[t] = space.shown[choice]
    return -1


@compiled
def _judge(
    plan: Plan,
    memory: Memory,
    space: Space,
    out: Certificates,
    rows: Array,
    clock: Clock,
    verdict: int,
    rewarded: bool,
    t: int,
) -> tuple[int, bool]:
    """The action, and whether the images in `space` were computed; writes the certificate."""
    reach = judging.reach_of(plan, memory, rows.shape[1])
    fresh = plan.track != THETA and (
        judging.needs_widths(plan, verdict) or _in_doubt(plan, space, rows, reach)
    )
    if fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    choice = judging.action_of(plan, space.scores, space.widths, reach, fresh, space.values)
    if fresh and (plan.certificates or judging.reads_pairs(plan)):
        algebra.pair_norms(rows, space.products, choice, space.pairs)
    out.choices[t] = choice
    out.scores[t] = space.scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * space.widths[choice]
        out.gate_scores[t] = judging.contested_statistic(
            space.scores, space.pairs, choice, plan.width_scale
        )
    if judging.known(plan, verdict):
        told = informing.told(plan, space, rows, choice, rewarded)
        out.statistics[t] = judging.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, choice, told
        )
    return choice, fresh


@compiled
def _hope(
    plan: Plan, memory: Memory, space: Space, out: Certificates, rows: Array, fresh: bool, t: int
) -> int:
    """The largest UCB, played because the round asks; writes its part of the certificate."""
    if not fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    reach = judging.reach_of(plan, memory, rows.shape[1])
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
def _in_doubt(plan: Plan, space: Space, rows: Array, reach: float) -> bool:
    """Whether the tie rule could go either way without widths, which are below ‖φ‖/√ridge."""
    longest = 0.0
    for x in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * rows[x, j]
        longest = max(longest, total)
    return judging.ambiguous(space.scores, reach * math.sqrt(longest / plan.ridge))


def _entry(mark: int) -> Any:
    @kept
    def play(
        plan: Plan,
        memory: Memory,
        space: Space,
        out: Certificates,
        phi: Array,
        labels: NDArray[np.int64],
        rewards: Array,
        utilities: Array,
        uniforms: Array,
        start: int,
    ) -> int:
        assert mark >= 0
        return _play(plan, memory, space, out, phi, labels, rewards, utilities, uniforms, start)

    return play


play_pairs = _entry(
    stamp(
        algebra,
        confidence,
        descent,
        drift,
        exponentials,
        following,
        guarding,
        informing,
        judging,
        learning,
        measures,
        plans,
        rules,
    )
)
