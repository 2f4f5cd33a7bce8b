"""Statistics of gates, in scalar functions that numba compiles unchanged; arguments as in `rules`.

Those of the gates of this package, with what a threshold needs of them beyond `rules`. Each is −inf
where only the choice is presented, and NaN where widths are. `pair_widths`, (m,), are the norms
‖φ_x − φ_choice‖ in V⁻¹ (unscaled), with `choice` the position of the action played.
"""

from __future__ import annotations

import math

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.gates.rules import TIE, Clock, GateState

_FAR = 40.0  # standard deviations at which the normal density is 0 to a float
_ROOT = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def contested_statistic(
    scores: Array, pair_widths: Array, choice: int, width_scale: float, widest: float = math.inf
) -> float:
    """Max over x ≠ x̂ of s_x − s_x̂ + α‖φ_x − φ_x̂‖ (score units); −inf where only x̂ is presented.

    Norms count as at most the `widest`.
    """
    gaps = scores - scores[choice] + width_scale * np.minimum(pair_widths, widest)
    gaps[choice] = -np.inf
    return float(np.max(gaps))


def lucb_statistic(scores: Array, widths: Array, choice: int, width_scale: float) -> float:
    """Max over x ≠ x̂ of UCB(x) − LCB(x̂), with bounds s ± w‖φ‖ for w = `width_scale`."""
    gaps = scores - scores[choice] + width_scale * (widths + widths[choice])
    gaps[choice] = -np.inf
    return float(np.max(gaps))


def widest_pair(pairs: Array, widths: Array) -> tuple[float, int]:
    """The largest of the (m, m) `pairs` ‖φ_x − φ_y‖, and which of its ends has the larger width.

    Entries with y above x are read, and no score. Pairs, and the two ends, tie within 1e-9 of the
    larger; the first of them is taken.
    """
    widest = -np.inf
    for x in range(len(widths)):
        for y in range(x + 1, len(widths)):
            if not pairs[x, y] <= widest:
                widest = pairs[x, y]
                if math.isnan(widest):
                    return np.nan, 0
    for x in range(len(widths)):
        for y in range(x + 1, len(widths)):
            if pairs[x, y] >= widest * (1.0 - TIE):
                return widest, y if widths[y] * (1.0 - TIE) > widths[x] else x
    return widest, 0


def width_statistic(widest: float, clock: Clock, dim: int, ridge: float, exponent: float) -> float:
    """The width of the widest pair as `width_threshold` compares it.

    Squared under an `exponent`; where that is NaN, over √(d log(1 + B/(λd))/B), with d = `dim` and
    λ = `ridge`.
    """
    if widest == -np.inf:
        return widest
    if not math.isnan(exponent):
        return widest * widest
    labels = max(1, clock.budget)
    return widest / math.sqrt(dim * math.log1p(labels / (ridge * dim)) / labels)


def width_threshold(clock: Clock, scale: float, exponent: float) -> float:
    """t^−exponent, or `scale` where the exponent is NaN."""
    return scale if math.isnan(exponent) else float(clock.round) ** -exponent


def dgs_statistic(
    scores: Array,
    width: float,
    choice: int,
    clock: Clock,
    dim: int,
    ridge: float,
    delta: float,
    scale: float,
) -> float:
    """scale·r·(1 + 8 d log(1 + q/(λd)) + 36 log(t/δ)) − margin² (score units, squared).

    r is the square of `width`, which is `adpo_statistic`, and the margin is what x̂ is ahead
    of the best of the others, 0 if behind; d is `dim`, λ `ridge`, δ `delta`.
    """
    if width == -np.inf:
        return width
    second = -np.inf
    for x in range(len(scores)):
        if x != choice:
            second = max(second, scores[x])
    potential = 2.0 * dim * math.log1p(clock.asked / (ridge * dim))
    bound = 1.0 + 4.0 * potential + 36.0 * math.log(clock.round / delta)
    margin = max(scores[choice] - second, 0.0)
    return float(scale * width * width * bound - margin * margin)


def entropy_statistic(policy: Array) -> float:
    """−Σ π_x log π_x of the (m,) `policy`, in nats."""
    if len(policy) < 2:
        return -np.inf
    total = 0.0
    for x in range(len(policy)):
        if policy[x] > 0.0:
            total -= policy[x] * math.log(policy[x])
    return max(total, 0.0)


def avoided_statistic(scores: Array, pair_widths: Array, choice: int, width_scale: float) -> float:
    """Max over x ≠ x̂ of τ_x h((s_x̂ − s_x)/τ_x), τ_x = `width_scale`·‖φ_x − φ_x̂‖ (score units).

    h(u) = pdf(u) − u (1 − cdf(u)) of the standard normal, so that it is the mean of
    max(0, s_x − s_x̂ + τ_x·noise); 0 for a pair of width 0.
    """
    best = -np.inf
    for x in range(len(scores)):
        if x == choice:
            continue
        gap, spread = scores[choice] - scores[x], width_scale * pair_widths[x]
        if math.isnan(spread):
            return np.nan
        if spread <= 0.0 or gap >= _FAR * spread:
            value = 0.0
        elif gap <= -_FAR * spread:
            value = -gap
        else:
            u = gap / spread
            tail = 0.5 * math.erfc(u * _ROOT)
            value = spread * max(_DENSITY * math.exp(-0.5 * u * u) - u * tail, 0.0)
        best = max(best, value)
    return float(best)


def uniform_statistic(clock: Clock) -> float:
    """⌊tB/T⌋ − q: the labels that an even spacing owes by the end of this round."""
    return float((clock.round * clock.budget) // clock.horizon - clock.asked)


def capacity(budget: int, dim: int, prior_width: float) -> float:
    """D log(1 + B w²/d), w = `prior_width`: what B labels of one row each add to log det V at most.

    Elliptical potential: det V ≤ (tr V/d)^d (docs/theory.md, Lemma 1). Taken for at least 1 label.
    """
    return dim * math.log1p(max(1, budget) * prior_width * prior_width / dim)


def reserve_square(most: float, budget: int, share: float, pending: int) -> float:
    """V = exp((n + 1)·most/(κB)) − 1, a quarter of the squared level of `reserve`."""
    return math.expm1(min(600.0, (1 + pending) * most / (share * max(1, budget))))


def reserve_held(
    volume: float, most: float, budget: int, share: float, square: float, widest: float
) -> float:
    """The labels kept for rounds above the level, κB(1 − log det(V/λI)/most), at least 0.

    It is 0 where no round can be above the level: where twice the root of `square` is at least the
    `widest` pair before any label.
    """
    if 4.0 * square >= widest * widest:
        return 0.0
    unknown = 1.0 - volume / most
    return share * budget * (0.0 if unknown < 0.0 else unknown)


def reserve_statistic(
    gap: float,
    information: float,
    radius: float,
    square: float,
    held: float,
    clock: Clock,
    share: float,
    ahead: float,
    floor: float,
    widest: float,
) -> float:
    """The larger of G/(β·level) and, where a label is free, information over its price.

    `gap` is G (score units), `radius` β, `square` v and `held` R, from the two functions above. The
    price is in units of v, or of a quarter of the square of `widest` where that is less. A ratio
    above 1 asks. NaN where widths are.
    """
    if math.isnan(gap) or math.isnan(information) or math.isnan(held):
        return np.nan
    reach = 2.0 * radius * math.sqrt(square)
    forced = (2.0 if gap > 0.0 else 0.0) if reach == 0.0 else min(gap / reach, 1e300)
    free = clock.budget - clock.asked - held
    if free < 1.0 - TIE:
        return forced
    left = clock.budget - clock.asked
    labels = min(float(left), free / (1.0 - share)) / clock.budget
    rounds = (clock.horizon - clock.round + 1) / clock.horizon
    exponent = (1.0 - (1.0 - labels / rounds) / ahead) * math.log(floor)
    worth = (
        information
        / min(square, 0.25 * widest * widest)
        * math.exp(min(600.0, max(-600.0, -exponent)))
    )
    return max(forced, worth)


def adpo_statistic(scores: Array, pair_widths: Array, choice: int) -> float:
    """‖φ_x̂ − φ_x′‖ for the best-scored x′ ≠ x̂, the widest where scores tie (`docs/paper.md`, D17).

    Scores tie within 1e-9 of the largest |s_x| + ‖φ_x − φ_x̂‖, used as the bound here. −inf where
    only x̂ is presented.
    """
    second, scale = -np.inf, abs(scores[choice])
    for x in range(len(scores)):
        if x == choice:
            continue
        if math.isnan(pair_widths[x]):
            return np.nan
        second = max(second, scores[x])
        scale = max(scale, abs(scores[x]) + pair_widths[x])
    widest = -np.inf
    for x in range(len(scores)):
        if x != choice and scores[x] >= second - TIE * scale:
            widest = max(widest, pair_widths[x])
    return float(widest)


def adpo_threshold(state: GateState, level: float) -> float:
    """Γ: the constant `level`, or where that is NaN the one whose logarithm is in the state."""
    return math.exp(state[0]) if math.isnan(level) else level


def adpo_measure(g: float) -> float:
    """Log g, on which `margin_advance` keeps the pace of Γ; −∞, which sets nothing, for g ≤ 0."""
    return math.log(g) if g > 0.0 else -np.inf
