"""The engine of ridge class heads: one (d, d) matrix for all K classes, O(d² + K d) a round.

V is I_K ⊗ A with A = ridge·I + Σ hhᵀ (`docs/paper.md`, D14). A⁻¹ is symmetric, and its
lower triangle alone is read and written: half of the memory is half of the time. Rows are taken
four at a time, so that what is loaded once serves four sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core import confidence
from stacksl.core.blocks import Array
from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock
from stacksl_lab.baselines import statistics
from stacksl_lab.engines import algebra, decide, loop_state, plan, policy_statistics
from stacksl_lab.engines.compiling import cached_entry, compiled, inlined, stamp, summed
from stacksl_lab.engines.loop_state import ASKED, LEARNED, ROUNDS, Certificates, Heads, Memory
from stacksl_lab.engines.plan import Plan

_SQRT2 = math.sqrt(2.0)


@inlined
def _decide(
    plan: Plan,
    memory: Memory,
    heads: Heads,
    out: Certificates,
    h: Array,
    clock: Clock,
    verdict: int,
    t: int,
) -> float:
    """The action with its certificate; gives ‖h‖² in A⁻¹, or −1 where it was not computed."""
    scores = heads.scores
    reach = decide.reach_of(plan, memory)
    square = -1.0
    if decide.needs_widths(plan, verdict) or decide.in_doubt(plan, scores, _square(h), reach):
        square = max(_image(memory.gram_inv, h, heads.image), 0.0)
        decide.fill(heads.widths, math.sqrt(square))
    fresh = square >= 0.0
    choice = decide.action_of(plan.ucb, scores, heads.widths, reach, fresh, heads.values)
    if fresh:
        decide.fill(heads.pairs, _SQRT2 * heads.widths[0])
        heads.pairs[choice] = 0.0
    decide.certify(plan, out, scores, heads.widths, heads.pairs, reach, choice, t)
    if decide.known(plan, verdict):
        out.statistics[t] = decide.statistic(
            plan, clock, scores, heads.widths, heads.pairs, reach, memory.volume[0], choice,
            policy_statistics.heads_statistic(plan, scores, heads.values, square),
        )  # fmt: skip
    return square


@compiled
def _square(h: Array) -> float:
    """‖h‖²."""
    total = 0.0
    for j in range(len(h)):
        total += h[j] * h[j]
    return total


@compiled
def _regress(memory: Memory, heads: Heads, h: Array, square: float, gold: int) -> None:
    """θ_x ← θ_x + (y_x − s_x)·A⁻¹h with h in A; no label (−1) has all targets 0."""
    if square < 0.0:
        square = max(_image(memory.gram_inv, h, heads.image), 0.0)
    for x in range(len(heads.scores)):
        target = 1.0 if x == gold else 0.0
        heads.values[x] = (target - heads.scores[x]) / (1.0 + square)
    _add_outer(memory.theta, heads.values, heads.image)
    memory.volume[0] += math.log(1.0 + square)
    _rank_one(memory.gram_inv, heads.image, 1.0 / math.sqrt(1.0 + square))


@summed
def _image(lower: Array, h: Array, out: Array) -> float:
    """Set `out` to A·h for A given by its `lower` triangle, (d, d); gives hᵀA·h."""
    d = len(h)
    for j in range(d):
        out[j] = 0.0
    for i in range(0, d - 3, 4):
        a, b, c, e = lower[i], lower[i + 1], lower[i + 2], lower[i + 3]
        ha, hb, hc, he = h[i], h[i + 1], h[i + 2], h[i + 3]
        ta = tb = tc = te = 0.0
        for j in range(i):
            ta += a[j] * h[j]
            tb += b[j] * h[j]
            tc += c[j] * h[j]
            te += e[j] * h[j]
            out[j] += a[j] * ha + b[j] * hb + c[j] * hc + e[j] * he
        out[i] += ta + a[i] * ha + b[i] * hb + c[i] * hc + e[i] * he
        out[i + 1] += tb + b[i] * ha + b[i + 1] * hb + c[i + 1] * hc + e[i + 1] * he
        out[i + 2] += tc + c[i] * ha + c[i + 1] * hb + c[i + 2] * hc + e[i + 2] * he
        out[i + 3] += te + e[i] * ha + e[i + 1] * hb + e[i + 2] * hc + e[i + 3] * he
    for i in range(d - d % 4, d):
        total = lower[i, i] * h[i]
        for j in range(i):
            total += lower[i, j] * h[j]
            out[j] += lower[i, j] * h[i]
        out[i] += total
    square = 0.0
    for j in range(d):
        square += h[j] * out[j]
    return square


@compiled
def _rank_one(lower: Array, product: Array, shrink: float) -> None:
    """A⁻¹ ← A⁻¹ − uuᵀ for u = shrink·`product`, which is scaled in place."""
    for j in range(len(product)):
        product[j] *= shrink
    for i in range(len(product)):
        weight = product[i]
        for j in range(i + 1):
            lower[i, j] -= weight * product[j]


@summed
def _project_heads(theta: Array, h: Array, scores: Array) -> None:
    """Set `scores` to θ·h, (K,), for the heads `theta`, (K, d)."""
    classes, d = theta.shape
    for x in range(0, classes - 3, 4):
        a, b, c, e = theta[x], theta[x + 1], theta[x + 2], theta[x + 3]
        ta = tb = tc = te = 0.0
        for j in range(d):
            ta += a[j] * h[j]
            tb += b[j] * h[j]
            tc += c[j] * h[j]
            te += e[j] * h[j]
        scores[x], scores[x + 1], scores[x + 2], scores[x + 3] = ta, tb, tc, te
    for x in range(classes - classes % 4, classes):
        total = 0.0
        for j in range(d):
            total += theta[x, j] * h[j]
        scores[x] = total


@compiled
def _add_outer(theta: Array, weights: Array, row: Array) -> None:
    """θ ← θ + weights·rowᵀ, (K, d)."""
    for x in range(theta.shape[0]):
        weight = weights[x]
        for j in range(theta.shape[1]):
            theta[x, j] += weight * row[j]


def full(lower: Array) -> Array:
    """The whole symmetric matrix, (d, d)."""
    strict: Array = np.tril(lower, -1)
    return strict + strict.T + np.diag(np.diag(lower))


def _entry(program: int) -> Any:
    @cached_entry
    def play(
        plan: Plan,
        memory: Memory,
        heads: Heads,
        out: Certificates,
        features: Array,
        labels: NDArray[np.int64],
        uniforms: Array,
        start: int,
    ) -> int:
        """The rounds start + 1 to start + n, item by item.

        Gives −1, or the first round (from 0) whose scores are no finite numbers, where it stops.
        """
        assert program >= 0  # in the closure, which is the key of the cache
        for i in range(len(features)):
            t = start + i
            h = features[i]
            clock = Clock(memory.counts[ASKED], plan.budget, t + 1, plan.horizon)
            verdict = decide.forced(clock, plan.exact_spend)
            _project_heads(memory.theta, h, heads.scores)
            if not decide.all_finite(heads.scores):
                return t
            square = _decide(plan, memory, heads, out, h, clock, verdict, t)
            asks = decide.decide_purchase(plan, memory, out, uniforms[t], clock, verdict, t)
            memory.counts[ROUNDS] += 1
            if asks:
                memory.counts[ASKED] += 1
                memory.counts[LEARNED] += 1
                _regress(memory, heads, h, square, labels[i])
            elif plan.tracks_all:
                _regress(memory, heads, h, square, -1)
        return -1

    return play


play_classes = _entry(
    stamp(algebra, confidence, decide, loop_state, plan, policy_statistics, rules, statistics)
)
