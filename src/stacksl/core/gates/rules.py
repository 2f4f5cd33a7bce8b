"""The arithmetic of the gates, in scalar functions that numba compiles unchanged.

A gate asks where `statistic > threshold`, else not. The dataclasses of `gates` call these functions
with what a round shows them, and a compiled engine calls the same functions. Arguments that recur:

- `scores`, `widths`: (m,) θᵀφ of the presented candidates and their norms ‖φ_x‖ in V⁻¹ (unscaled);
- `clock`: q of B labels asked before this round, round t (from 1) of the horizon T;
- `state`: four floats that the gate carries from round to round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stacksl.core.blocks import Array

GateState = tuple[float, float, float, float]

TIE = 1e-9  # of the largest absolute bound, within which values tie: `docs/paper.md`, D17


class Clock(NamedTuple):
    """The counts of a run before a round is decided.

    Attributes:
        asked: q, the training labels asked so far.
        budget: B, the training labels there are.
        round: t, counted from 1.
        horizon: T.
    """

    asked: int
    budget: int
    round: int
    horizon: int


def forced(clock: Clock, exact_spend: bool) -> int:
    """The two rules above every gate: −1 no label is left, 1 must ask, 0 the gate decides.

    A gate that spends exactly asks whenever labels left ≥ rounds left, this round included.
    """
    labels_left = clock.budget - clock.asked
    if labels_left <= 0:
        return -1
    if exact_spend and labels_left >= clock.horizon - clock.round + 1:
        return 1
    return 0


def random_statistic(clock: Clock) -> float:
    """Labels left / rounds left: selection sampling's probability of this round."""
    return (clock.budget - clock.asked) / (clock.horizon - clock.round + 1)


def llf_statistic(scores: Array, widths: Array, radius: float) -> float:
    """The paper's spread, max UCB − min LCB (score units)."""
    return float(np.max(scores + radius * widths) - np.min(scores - radius * widths))


def llf_threshold(clock: Clock, gate_scale: float) -> float:
    """ε = c/√(1 + q)."""
    return gate_scale / math.sqrt(1.0 + clock.asked)


def margin_statistic(scores: Array) -> float:
    """Minus the margin: second-best score − best score; −inf where only one is presented."""
    best = np.argmax(scores)
    other_scores = scores.copy()  # not np.partition, which takes seconds to compile
    other_scores[best] = -np.inf
    return float(np.max(other_scores) - scores[best])


def margin_advance(
    g: float, took: bool, clock: Clock, state: GateState, pace: float, adaptive: bool
) -> GateState:
    """The next (threshold, mean of g, mean of |g − mean|, n), running over the n finite g so far.

    threshold += step × ((1 if asked else 0) − labels left / rounds left), where step is `pace`, or
    `pace` × the running mean absolute deviation when `adaptive`. The first finite g sets it.
    """
    level, mean, deviation, count = state
    if math.isfinite(g):
        if count == 0.0:
            level, mean = g, g
        else:
            deviation += (abs(g - mean) - deviation) / count
            mean += (g - mean) / (count + 1.0)
        count += 1.0
    if level == -np.inf:
        return (level, mean, deviation, count)
    step = pace * deviation if adaptive else pace
    owed = max(0, clock.budget - clock.asked) / (clock.horizon - clock.round + 1)
    return (level + step * ((1.0 if took else 0.0) - owed), mean, deviation, count)


def bounded_information(information: float) -> float:
    """tr(F H⁻¹), at most 1, the most that λ = 1 gives rows of norm 1.

    With a smaller λ the first rounds, which are never met again, would set the price.
    """
    return 1.0 if information > 1.0 else information


def price(g: float, clock: Clock, state: GateState, reserve: float, floor: float) -> float:
    """The price U r^(1 − a/f), with U = max(0, every g so far, this one included).

    a = 1 − (labels left/B)/(rounds left/T) is how far ahead of an even schedule spending runs, as a
    share of the rest of it. On schedule the price is rU; where labels left are 1 − f of what
    the rounds left are owed it is U, which no g exceeds.
    """
    if clock.budget <= 0:
        return np.inf
    top = max(state[0], g)
    labels = (clock.budget - clock.asked) / clock.budget
    rounds = (clock.horizon - clock.round + 1) / clock.horizon
    exponent = 1.0 - (1.0 - labels / rounds) / reserve
    # with no label left and a small f the power overflows; no price above U is ever exceeded
    return top * math.exp(min(700.0, exponent * math.log(floor)))


def peak(g: float, state: GateState) -> GateState:
    """The next (U, 0, 0, 0): the running maximum of g, from 0."""
    return (max(state[0], g), 0.0, 0.0, 0.0)
