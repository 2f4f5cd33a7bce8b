"""Statistics of the policy π = softmax(s): its entropy, and the information that a label brings."""

from __future__ import annotations

import math

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.gates import rules
from stacksl_lab.baselines import statistics
from stacksl_lab.engines.compiling import allocating, compiled, inlined, summed
from stacksl_lab.engines.decide import ENTROPY, INFORMATION, RESERVE, WIDTH, widest_of
from stacksl_lab.engines.loop_state import Space
from stacksl_lab.engines.plan import NEWTON, RIDGE, Plan

_entropy_statistic = allocating(statistics.entropy_statistic)

_PER_LN2 = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are 0, so that k times it is exact
_LN2_LOW = 1.90821492927058770002e-10
_LEAST = -700.0  # e to that is 1e-304, still a normal number


@inlined
def policy_statistic(plan: Plan, space: Space, rows: Array, choice: int, rewarded: bool) -> float:
    """The entropy, or the information of a label, of pair features (nats); NaN for other gates.

    For the gate `width` it is the widest pair.

    `space` holds the scores, and for information the widths and the images of the rows.
    `rewarded` says that a `ridge` learns from rewards, whose policy is a softmax.
    """
    if plan.gate == WIDTH:
        return widest_of(space, rows)[0]
    if plan.gate not in (ENTROPY, INFORMATION, RESERVE):
        return np.nan
    if plan.gate != ENTROPY and plan.scorer != NEWTON:
        return float(space.widths[choice] * space.widths[choice])
    if plan.scorer == RIDGE and not rewarded:
        _shares(space.scores, space.policy)
    else:
        policy_of(space.scores, space.powers, space.policy)
    if plan.gate == ENTROPY:
        return _entropy_statistic(space.policy)
    return information(rows, space.products, space.policy, space.mean, space.direction)


@compiled
def heads_statistic(plan: Plan, scores: Array, policy: Array, square: float) -> float:
    """The same for ridge class heads, of which `square` is the width squared; sets `policy`."""
    if plan.gate == ENTROPY:
        _shares(scores, policy)
        return _entropy_statistic(policy)
    if plan.gate == WIDTH:
        return math.sqrt(2.0 * square) if len(scores) > 1 else -np.inf
    return square if plan.gate in (INFORMATION, RESERVE) else np.nan


@compiled
def _shares(scores: Array, policy: Array) -> None:
    """Set `policy` to max(s, 0)/Σ max(s, 0), (m,), as `scorers.ridge.shares`."""
    total = 0.0
    for x in range(len(scores)):
        policy[x] = max(scores[x], 0.0)
        total += policy[x]
    for x in range(len(scores)):
        policy[x] = policy[x] / total if total > rules.TIE else 1.0 / len(scores)


@summed
def information(rows: Array, products: Array, policy: Array, apart: Array, against: Array) -> float:
    """tr(F H⁻¹) = Σ π_x ‖D_x‖² − ‖Σ π_x D_x‖² with D_x = φ_x − φ_i for the likeliest i.

    `products` is rows·H⁻¹; `apart` and `against` are room for Σ π_x D_x and its image, (d,).
    """
    likeliest = 0
    for x in range(len(policy)):
        if policy[x] > policy[likeliest]:
            likeliest = x
    for j in range(rows.shape[1]):
        apart[j], against[j] = 0.0, 0.0
    total = 0.0
    for x in range(len(policy)):
        square = 0.0
        for j in range(rows.shape[1]):
            step = rows[x, j] - rows[likeliest, j]
            image = products[x, j] - products[likeliest, j]
            square += step * image
            apart[j] += policy[x] * step
            against[j] += policy[x] * image
        total += policy[x] * square
    for j in range(rows.shape[1]):
        total -= apart[j] * against[j]
    return max(total, 0.0)


@compiled
def policy_of(scores: Array, powers: Array, policy: Array) -> float:
    """Set `policy` to softmax(scores), (m,), with room in `powers`; gives log Σ exp s."""
    largest = scores[0]
    for x in range(1, len(scores)):
        largest = max(largest, scores[x])
    exponentials(scores, largest, powers, policy)
    total = 0.0
    for x in range(len(scores)):
        total += policy[x]
    shrink = 1.0 / total
    for x in range(len(scores)):
        policy[x] *= shrink
    return float(largest + math.log(total))


@compiled
def exponentials(values: Array, shift: float, powers: Array, out: Array) -> None:
    """Set out_x to exp(values_x − shift), (m,), for values of at most `shift`, or to 1e-304.

    exp z = 2^k·exp r with k = round(z / ln 2) and |r| ≤ ln 2 / 2, where the Taylor polynomial of
    degree 13 is exact to rounding; `powers`, (m,), receives 2^k by its bits.
    """
    bits = powers.view(np.int64)
    for x in range(len(values)):
        z = max(values[x] - shift, _LEAST)
        k = math.floor(z * _PER_LN2 + 0.5)
        r = (z - k * _LN2_HIGH) - k * _LN2_LOW
        p = r * (1 / 6227020800) + 1 / 479001600
        p = p * r + 1 / 39916800
        p = p * r + 1 / 3628800
        p = p * r + 1 / 362880
        p = p * r + 1 / 40320
        p = p * r + 1 / 5040
        p = p * r + 1 / 720
        p = p * r + 1 / 120
        p = p * r + 1 / 24
        p = p * r + 1 / 6
        p = p * r + 0.5
        out[x] = (p * r + 1.0) * r + 1.0
        bits[x] = (np.int64(k) + 1023) << 52
    for x in range(len(values)):
        out[x] *= powers[x]
