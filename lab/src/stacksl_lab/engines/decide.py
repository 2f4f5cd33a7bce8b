"""Decisions of a round: the action, the gate's statistic, threshold and next state.

The arithmetic of a gate is that of `rules` and `statistics`, compiled unchanged and dispatched on
the gate's number in `baselines.registry.CODES`.
"""

from __future__ import annotations

import math

import numpy as np

from stacksl.core import confidence
from stacksl.core.blocks import Array
from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock, GateState
from stacksl_lab.baselines import statistics
from stacksl_lab.baselines.gates import WIDEST
from stacksl_lab.engines.algebra import all_pair_norms
from stacksl_lab.engines.compiling import allocating, compiled, inlined
from stacksl_lab.engines.loop_state import LEARNED, ROUNDS, Certificates, Memory, Space
from stacksl_lab.engines.plan import SGD, Plan

forced = allocating(rules.forced)
_contested_statistic = allocating(statistics.contested_statistic)
_random_statistic = allocating(rules.random_statistic)
_uniform_statistic = allocating(statistics.uniform_statistic)
_llf_statistic = allocating(rules.llf_statistic)
_llf_threshold = allocating(rules.llf_threshold)
_margin_statistic = allocating(rules.margin_statistic)
_margin_advance = allocating(rules.margin_advance)
_price = allocating(rules.price)
_peak = allocating(rules.peak)
_bounded_information = allocating(rules.bounded_information)
_reserve_square = allocating(statistics.reserve_square)
_reserve_held = allocating(statistics.reserve_held)
_reserve_statistic = allocating(statistics.reserve_statistic)
_adpo_statistic = allocating(statistics.adpo_statistic)
_adpo_threshold = allocating(statistics.adpo_threshold)
_adpo_measure = allocating(statistics.adpo_measure)
_lucb_statistic = allocating(statistics.lucb_statistic)
_widest_pair = allocating(statistics.widest_pair)
_width_statistic = allocating(statistics.width_statistic)
_width_threshold = allocating(statistics.width_threshold)
_dgs_statistic = allocating(statistics.dgs_statistic)
_avoided_statistic = allocating(statistics.avoided_statistic)
_radius = allocating(confidence.radius)

RANDOM, UNIFORM, LLF, MARGIN, CONTESTED, ADPO = 1, 2, 3, 4, 5, 6  # the gates' numbers
LUCB, WIDTH, ENTROPY, AVOIDED, INFORMATION, DGS, RESERVE = 7, 8, 9, 10, 11, 12, 13


@compiled
def reach_of(plan: Plan, memory: Memory) -> float:
    """The radius now (score units)."""
    count = memory.counts[ROUNDS] if plan.by_rounds else memory.counts[LEARNED]
    return _radius(plan.noise, plan.dim, count, plan.ridge, plan.delta, plan.norm_bound)


@compiled
def needs_widths(plan: Plan, verdict: int) -> bool:
    """Whether this round's decision, or a wanted certificate, is made of widths."""
    return plan.certificates or plan.ucb or (plan.by_widths and verdict != -1)


@compiled
def known(plan: Plan, verdict: int) -> bool:
    """Whether the gate's statistic is computed: without certificates not where nothing reads it."""
    return plan.certificates or verdict != -1 or not plan.by_widths


@compiled
def fill(values: Array, value: float) -> None:
    """Set every entry to `value`."""
    for x in range(len(values)):
        values[x] = value


@compiled
def all_finite(values: Array) -> bool:
    """Whether no entry is NaN or infinite."""
    nothing = 0.0
    for x in range(len(values)):
        nothing += values[x] * 0.0
    return nothing == 0.0


@compiled
def largest_absolute(values: Array) -> float:
    """The largest |v_x| of (m,) `values`."""
    largest = 0.0
    for x in range(len(values)):
        largest = max(largest, abs(values[x]))
    return largest


@compiled
def action_of(
    ucb: bool, scores: Array, widths: Array, reach: float, fresh: bool, values: Array
) -> int:
    """The argmax of the scores or, with `ucb`, of the UCB, which `values` receives."""
    scale = 0.0
    for x in range(len(scores)):
        span = reach * widths[x] if fresh else 0.0
        scale = max(scale, abs(scores[x]) + span)
        values[x] = scores[x] + span if ucb else scores[x]
    return pick_action(values, scale)


@inlined
def change_to_asked(
    plan: Plan, out: Certificates, space: Space, rows: Array, reach: float, t: int
) -> int:
    """What is played because round t + 1 asks; writes its part of the certificate."""
    if plan.gate == WIDTH:
        choice = widest_of(space, rows)[1]
    else:
        choice = action_of(True, space.scores, space.widths, reach, True, space.values)
    out.choices[t] = choice
    out.scores[t] = space.scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * space.widths[choice]
    return choice


@compiled
def widest_of(space: Space, rows: Array) -> tuple[float, int]:
    """The widest pair of `rows` and its wider end, from the images and the widths in `space`."""
    all_pair_norms(rows, space.products, space.small)
    return _widest_pair(space.small, space.widths)


@inlined
def certify(
    plan: Plan,
    out: Certificates,
    scores: Array,
    widths: Array,
    pair_widths: Array,
    reach: float,
    choice: int,
    t: int,
) -> None:
    """Write the choice of round t + 1 with its bounds and its gate score."""
    out.choices[t] = choice
    out.scores[t] = scores[choice]
    if plan.certificates:
        out.reaches[t] = reach * widths[choice]
        out.gate_scores[t] = _contested_statistic(scores, pair_widths, choice, plan.width_scale)


@compiled
def pick_action(values: Array, scale: float) -> int:
    """The lowest index within 1e-9·`scale` of the largest of `values`, (m,)."""
    largest = values[0]
    for x in range(1, len(values)):
        largest = max(largest, values[x])
    level = largest - rules.TIE * scale
    for x in range(len(values)):
        if values[x] >= level:
            return x
    return 0


@compiled
def longest(rows: Array) -> float:
    """The largest ‖φ_x‖² of (m, d) `rows`."""
    most = 0.0
    for x in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * rows[x, j]
        most = max(most, total)
    return most


@compiled
def in_doubt(plan: Plan, scores: Array, square: float, reach: float) -> bool:
    """Whether the greedy action depends on widths, by way of the tie rule's tolerance.

    A width is at least 0 and at most the root of square/ridge (and a little, for rounding), with
    `square` the largest ‖φ‖²; where both ends choose alike, so does the truth.
    """
    most = reach * math.sqrt(square / plan.ridge)
    largest = largest_absolute(scores)
    return pick_action(scores, largest) != pick_action(scores, largest + 1.001 * most)


@inlined
def statistic(
    plan: Plan,
    clock: Clock,
    scores: Array,
    widths: Array,
    pair_widths: Array,
    radius: float,
    volume: float,
    choice: int,
    of_rows: float = np.nan,
) -> float:
    """The gate's g (score units); NaN where it is made of widths and they are.

    `of_rows` is the entropy or the information, in nats (see `policy_statistics`), or the widest
    pair.
    """
    if plan.gate == RANDOM:
        return _random_statistic(clock)
    if plan.gate == UNIFORM:
        return _uniform_statistic(clock)
    if plan.gate == LLF:
        spread = _llf_statistic(scores, widths, radius)
        return -spread if plan.literal else spread
    if plan.gate == MARGIN:
        return _margin_statistic(scores)
    if plan.gate == CONTESTED:
        return _contested_statistic(scores, pair_widths, choice, plan.gate_width, WIDEST)
    if plan.gate == ADPO:
        return _adpo_statistic(scores, pair_widths, choice)
    if plan.gate == LUCB:
        scale = radius if np.isnan(plan.gate_width) else plan.gate_width
        return _lucb_statistic(scores, widths, choice, scale)
    if plan.gate == WIDTH:
        return _width_statistic(of_rows, clock, plan.dim, plan.gate_ridge, plan.exponent)
    if plan.gate == AVOIDED:
        return _avoided_statistic(scores, pair_widths, choice, plan.gate_width)
    if plan.gate == DGS:
        return _dgs(plan, clock, scores, pair_widths, choice)
    if plan.gate == RESERVE:
        gap = _contested_statistic(scores, pair_widths, choice, radius)
        return _reserve(plan, clock, gap, radius, volume, of_rows)
    if plan.gate == INFORMATION:
        return _bounded_information(of_rows)
    if plan.gate == ENTROPY:
        return float(of_rows)
    return float(clock.budget - clock.asked)


@inlined
def _dgs(plan: Plan, clock: Clock, scores: Array, pair_widths: Array, choice: int) -> float:
    """The statistic of `dgs`, from the width of the two best."""
    return _dgs_statistic(
        scores, _adpo_statistic(scores, pair_widths, choice), choice, clock, plan.dim,
        plan.gate_ridge, plan.gate_delta, plan.bound_scale,
    )  # fmt: skip


@inlined
def _reserve(
    plan: Plan, clock: Clock, gap: float, radius: float, volume: float, information: float
) -> float:
    """The statistic of `reserve`, from the contested score and the information."""
    square = _reserve_square(plan.capacity, clock.budget, plan.share, plan.pending)
    widest = plan.reach * plan.prior_width
    held = _reserve_held(volume, plan.capacity, clock.budget, plan.share, square, widest)
    return _reserve_statistic(
        gap, information, radius, square, held, clock, plan.share, plan.reserve, plan.floor, widest
    )


@compiled
def _priced(plan: Plan) -> bool:
    """Whether the gate compares g with a price."""
    return plan.gate in (CONTESTED, ENTROPY, AVOIDED, INFORMATION)


@inlined
def decide_purchase(
    plan: Plan, memory: Memory, out: Certificates, u: float, clock: Clock, verdict: int, t: int
) -> bool:
    """Whether round t + 1 asks, from its statistic in `out`; moves the gate's state."""
    g = out.statistics[t]
    carried = memory.gate_state
    state = (carried[0], carried[1], carried[2], carried[3])
    level = _threshold(plan, g, u, clock, state)
    asks = verdict == 1 or (verdict == 0 and g > level)
    out.thresholds[t], out.asked[t] = level, asks
    if plan.gate == MARGIN:
        state = _margin_advance(g, asks, clock, state, plan.pace, plan.adaptive)
    elif _priced(plan) and not np.isnan(g):
        state = _peak(g, state)
    elif plan.gate == ADPO and np.isnan(plan.level) and not np.isnan(g):
        state = _margin_advance(_adpo_measure(g), asks, clock, state, plan.pace, False)
    carried[0], carried[1], carried[2], carried[3] = state
    return asks


@compiled
def steadies(plan: Plan, asks: bool, verdict: int) -> bool:
    """Whether the KL-only step runs: on unasked rounds, on asked ones in the literal reading."""
    literal = plan.literal and plan.gate == LLF
    return plan.kl_on_skips and plan.scorer == SGD and verdict != -1 and asks == literal


@inlined
def _threshold(plan: Plan, g: float, u: float, clock: Clock, state: GateState) -> float:
    """The number that g must exceed; NaN where it needs a g that is not known."""
    if plan.gate == RANDOM:
        return u
    if plan.gate == LLF:
        level = _llf_threshold(clock, plan.gate_scale)
        return np.nextafter(-level, -np.inf) if plan.literal else level
    if plan.gate == MARGIN:
        return state[0]
    if np.isnan(g):
        return np.nan
    if _priced(plan):
        return _price(g, clock, state, plan.reserve, plan.floor)
    if plan.gate == ADPO:
        return _adpo_threshold(state, plan.level)
    if plan.gate == WIDTH:
        return _width_threshold(clock, plan.bound_scale, plan.exponent)
    if plan.gate == RESERVE:
        return 1.0
    return plan.tolerance if plan.gate == LUCB else 0.0
