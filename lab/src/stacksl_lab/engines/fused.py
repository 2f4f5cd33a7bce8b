"""The engine `fused` on pair features: one compiled loop from features to labels learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core import confidence, losses
from stacksl.core.blocks import Array
from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock
from stacksl_lab import drift
from stacksl_lab.baselines import statistics
from stacksl_lab.engines import (
    algebra,
    decide,
    learning,
    loop_state,
    plan,
    policy_statistics,
)
from stacksl_lab.engines.compiling import cached_entry, compiled, inlined, stamp
from stacksl_lab.engines.loop_state import ASKED, Certificates, Memory, Space
from stacksl_lab.engines.plan import Plan


@inlined
def _decide(
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
    reach = decide.reach_of(plan, memory)
    fresh = decide.needs_widths(plan, verdict) or decide.in_doubt(
        plan, space.scores, decide.longest(rows), reach
    )
    if fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    choice = decide.action_of(plan.ucb, space.scores, space.widths, reach, fresh, space.values)
    if fresh and (plan.certificates or plan.by_pairs):
        algebra.pair_norms(rows, space.products, choice, space.pairs)
    decide.certify(plan, out, space.scores, space.widths, space.pairs, reach, choice, t)
    if decide.known(plan, verdict):
        of_rows = policy_statistics.policy_statistic(plan, space, rows, choice, rewarded)
        out.statistics[t] = decide.statistic(
            plan, clock, space.scores, space.widths, space.pairs, reach, memory.volume[0], choice,
            of_rows,
        )  # fmt: skip
    return choice, fresh


@inlined
def _change(
    plan: Plan, memory: Memory, space: Space, out: Certificates, rows: Array, fresh: bool, t: int
) -> int:
    """The action of a round that asks."""
    if not fresh:
        algebra.images(memory.gram_inv, rows, space.products)
        algebra.norms(rows, space.products, space.widths)
    reach = decide.reach_of(plan, memory)
    return decide.change_to_asked(plan, out, space, rows, reach, t)


@inlined
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
    """An answer: it is counted and learned, or starts everything over."""
    memory.counts[ASKED] += 1
    if guarded and learning.alarms(plan, memory, space, rows, choice, gold, reward, fresh):
        learning.start_over(plan, memory)
        out.resets[t] = True
        return
    learning.learn(plan, memory, space, rows, choice, gold, reward, fresh)


@inlined
def _show(
    memory: Memory, space: Space, out: Certificates, phi: Array, follows: bool, t: int
) -> bool:
    """Whether all scores of (M, d) `phi` are finite; `space.scores` has those of what is shown.

    Where a follower `follows` these are the best scored, whose rows are then in `space.rows`.
    """
    everyone = space.everyone if follows else space.scores
    algebra.project(phi, memory.theta, everyone)
    if not decide.all_finite(everyone):
        return False
    if follows:
        _present(space, out, phi, t)
    space.current[0] = True
    return True


@inlined
def _answer(
    space: Space,
    labels: NDArray[np.int64],
    rewards: Array,
    utilities: Array,
    i: int,
    choice: int,
    follows: bool,
) -> tuple[int, float]:
    """The gold's position among what is shown, or −1, and the choice's reward, or 0."""
    gold = len(labels) - len(labels) - 1  # a plain integer: numba would compile a constant apart
    if len(labels) > 0:
        gold = labels[i]
    elif follows and len(utilities) > 0:
        gold = _best_presented(utilities[i], space.shown)
    played = space.shown[choice] if follows else choice
    return gold, rewards[i, played] if len(rewards) > 0 else 0.0


@compiled
def _present(space: Space, out: Certificates, phi: Array, t: int) -> None:
    """Show the best-scored of all candidates, whose scores are in `space.everyone`.

    Writes their indices, ascending, into `space.shown`, and their rows of (M, d) `phi` and scores
    into `space.rows` and `space.scores`. Ties go to the lowest index (`learner.presented`).
    """
    _choose(space.everyone, space.shown)
    for p in range(len(space.shown)):
        x = space.shown[p]
        out.presented[t, p] = x
        space.scores[p] = space.everyone[x]
        for j in range(phi.shape[1]):
            space.rows[p, j] = phi[x, j]


@compiled
def _choose(scores: Array, shown: NDArray[np.int64]) -> None:
    """Set `shown` to the indices of the largest of `scores`, ascending."""
    most, held = len(shown), 0
    for x in range(len(scores)):
        place = held
        if held < most:
            held += 1
        elif scores[x] > scores[shown[most - 1]]:
            place = most - 1
        else:
            continue
        while place > 0 and scores[x] > scores[shown[place - 1]]:
            shown[place] = shown[place - 1]
            place -= 1
        shown[place] = x
    for p in range(1, most):
        x, place = shown[p], p
        while place > 0 and shown[place - 1] > x:
            shown[place] = shown[place - 1]
            place -= 1
        shown[place] = x


@compiled
def _best_presented(utilities: Array, shown: NDArray[np.int64]) -> int:
    """The position in `shown` of the largest of (M,) `utilities` there, of equals the first."""
    best = 0
    for p in range(1, len(shown)):
        if utilities[shown[p]] > utilities[shown[best]]:
            best = p
    return best


def _entry(program: int, plain: bool) -> Any:
    """The loop; a `plain` one is compiled without follower and guard, and so is faster.

    A follower `follows`, or all candidates are shown; the drift guard is on where `guarded`. The
    loop stands in the entry itself: called by both, it would be compiled a third time.
    """

    @cached_entry
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
        """The rounds start + 1 to start + n of Algorithms 1 and 2, item by item.

        Gives −1, or the first round (from 0) whose scores are no finite numbers, where it stops.
        """
        assert program >= 0  # in the closure, which is the key of the cache
        follows = not plain and plan.present > 0
        guarded = not plain and plan.guarded
        none = len(labels) - len(labels) - 1  # plain: numba would compile a constant apart
        for i in range(len(phi)):
            t = start + i
            clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
            verdict = decide.forced(clock, plan.exact_spend)
            if not _show(memory, space, out, phi[i], follows, t):
                return t
            rows = space.rows if follows else phi[i]
            choice, fresh = _decide(
                plan, memory, space, out, rows, clock, verdict, len(rewards) > 0, t
            )
            asks = decide.decide_purchase(plan, memory, out, uniforms[t], clock, verdict, t)
            if asks and plan.asks_ucb:
                choice, fresh = _change(plan, memory, space, out, rows, fresh, t), True
            if decide.steadies(plan, asks, verdict):
                learning.gradient_step(plan, memory, space, rows, none)
            if asks:
                gold, reward = _answer(space, labels, rewards, utilities, i, choice, follows)
                _take(plan, memory, space, out, rows, choice, gold, reward, fresh, guarded, t)
            else:
                learning.count_skip(plan, memory, space, rows, choice, fresh)
            if follows:
                out.choices[t] = space.shown[choice]
        return -1

    return play


_PROGRAM = stamp(
    algebra, confidence, decide, drift, learning, loop_state, losses, plan,
    policy_statistics, rules, statistics,
)  # fmt: skip
play_plain = _entry(_PROGRAM, plain=True)
play_changing = _entry(_PROGRAM, plain=False)
