"""The engine `fused` on pair features: one compiled loop from features to labels learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game import confidence, drift, losses, measures, rules
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
    rooms,
)
from stacksl.game.engines.compiling import compiled, kept, stamp
from stacksl.game.engines.plans import THETA, Plan
from stacksl.game.engines.rooms import ASKED, Certificates, Memory, Space
from stacksl.game.inputs import Array
from stacksl.game.rules import Clock

__all__ = ["play_changing", "play_plain"]


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
    follows: bool,
    guarded: bool,
) -> int:
    """The rounds start + 1 to start + n of Algorithms 1 and 2, item by item.

    A follower `follows`, or shows all; the drift guard is on where `guarded`. Gives −1, or the
    first round (from 0) whose scores are no finite numbers, where it stops.
    """
    none = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    for i in range(len(phi)):
        t = start + i
        clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
        verdict = judging.forced(clock, plan.exact_spend)
        if not following.show(memory, space, out, phi[i], follows, t):
            return t
        rows = space.rows if follows else phi[i]
        choice, fresh = _judge(plan, memory, space, out, rows, clock, verdict, len(rewards) > 0, t)
        asks = judging.settle(plan, memory, out, uniforms[t], clock, verdict, t)
        if asks and plan.asked_choice:
            choice, fresh = _change(plan, memory, space, out, rows, fresh, t), True
        if judging.steadies(plan, asks, verdict):
            descent.gradient_step(plan, memory, space, rows, none)
        if asks:
            gold, reward = following.answer(space, labels, rewards, utilities, i, choice, follows)
            _take(plan, memory, space, out, rows, choice, gold, reward, fresh, guarded, t)
        else:
            learning.count_skip(plan, memory, space, rows, choice, fresh)
        if follows:
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
    reach = judging.reach_of(plan, memory)
    fresh = plan.track != THETA and (
        judging.needs_widths(plan, verdict)
        or judging.in_doubt(plan, space.scores, judging.longest(rows), reach)
    )
    if fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    choice = judging.action_of(plan.ucb, space.scores, space.widths, reach, fresh, space.values)
    if fresh and (plan.certificates or plan.by_pairs):
        algebra.pair_norms(rows, space.products, choice, space.pairs)
    judging.certify(plan, out, space.scores, space.widths, space.pairs, reach, choice, t)
    if judging.known(plan, verdict):
        told = informing.told(plan, space, rows, choice, rewarded)
        out.statistics[t] = judging.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, choice, told
        )
    return choice, fresh


@compiled
def _change(
    plan: Plan, memory: Memory, space: Space, out: Certificates, rows: Array, fresh: bool, t: int
) -> int:
    """The action of a round that asks, the largest UCB."""
    if not fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    reach = judging.reach_of(plan, memory)
    return judging.change_to_asked(plan, out, space.scores, space.widths, reach, space.values, t)


@compiled
def _take(
    plan: Plan,
    memory: Memory,
    space: Space,
    out: Certificates,
    rows: Array,
    choice: int,
    gold: int,
    reward: float,
    fresh: bool,
    guarded: bool,
    t: int,
) -> None:
    """An answer: it is counted and learnt, or starts everything over."""
    memory.counts[ASKED] += 1
    if guarded and guarding.alarms(plan, memory, space, rows, choice, gold, reward, fresh):
        guarding.start_over(plan, memory)
        out.resets[t] = True
        return
    learning.learn(plan, memory, space, rows, choice, gold, reward, fresh)


def _entry(mark: int, plain: bool) -> Any:
    """The loop; a `plain` one is compiled without follower and guard, and so is faster."""

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
        follows = not plain and plan.present > 0
        guarded = not plain and plan.guarded
        return _play(
            plan,
            memory,
            space,
            out,
            phi,
            labels,
            rewards,
            utilities,
            uniforms,
            start,
            follows,
            guarded,
        )

    return play


_MARK = stamp(
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
    losses,
    measures,
    plans,
    rooms,
    rules,
)
play_plain = _entry(_MARK, plain=True)
play_changing = _entry(_MARK, plain=False)
