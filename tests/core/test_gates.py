"""Each gate's arithmetic, by hand and compiled."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from stacksl.core import GATES, Bounds, Clock, Margin
from stacksl.core.blocks import PairFeatures
from stacksl.core.gates.registry import LLF, Information, require_ranking
from stacksl.errors import SettingsError
from stacksl_lab.baselines import statistics
from stacksl_lab.baselines.adpo import ADPO
from stacksl_lab.baselines.gates import Contested, StudyLLF
from stacksl_lab.baselines.registry import make_gate

from .scorer_cases import taught

REST = (0.0, 0.0, 0.0, 0.0)


def a_view(scores, widths, pairs=None, choice=None, radius=1.0) -> Bounds:
    s, w = np.array(scores, dtype=float), np.array(widths, dtype=float)
    at = int(np.argmax(s)) if choice is None else choice
    p = np.where(np.arange(len(s)) == at, 0.0, w) if pairs is None else np.array(pairs, dtype=float)
    return Bounds(tuple(range(len(s))), s, np.full(len(s), 1 / len(s)), w, p, radius, 4, at)


def spends(name: str, budget: int, horizon: int) -> list[int]:
    """The rounds that a gate which looks at the clock alone asks in."""
    gate, asked, rounds = make_gate(name), 0, []
    view = a_view([0.0, 1.0], [1.0, 1.0])
    for t in range(1, horizon + 1):
        clock = Clock(asked, budget, t, horizon)
        g = gate.statistic(view, clock, REST)
        if asked < budget and g > gate.threshold(g, 0.0, clock, REST):
            asked += 1
            rounds.append(t)
    return rounds


def test_always_and_first_ask_while_labels_are_left() -> None:
    assert spends("always", 4, 10) == spends("first", 4, 10) == [1, 2, 3, 4]


@pytest.mark.parametrize("budget", [0, 1, 3, 7, 10])
def test_uniform_asks_in_round_ceil_of_j_t_over_b_without_the_rules_above_it(budget: int) -> None:
    assert spends("uniform", budget, 10) == [
        math.ceil(j * 10 / budget) for j in range(1, budget + 1)
    ]


def test_random_asks_in_the_shares_it_must() -> None:
    gate = make_gate("random")
    view = a_view([0.0, 1.0], [1.0, 1.0])
    assert gate.statistic(view, Clock(2, 5, 4, 12), REST) == pytest.approx(3 / 9)
    assert gate.threshold(3 / 9, 0.25, Clock(2, 5, 4, 12), REST) == 0.25


def test_llf_compares_the_spread_with_c_over_the_root() -> None:
    view = a_view([1.0, 3.0, -1.0], [0.5, 1.0, 2.0], radius=2.0)
    # UCB: 2, 5, 3; LCB: 0, 1, -5
    gate = LLF(6.0)
    assert gate.statistic(view, Clock(3, 9, 5, 9), REST) == 10.0 == view.spread
    assert gate.threshold(10.0, 0.0, Clock(3, 9, 5, 9), REST) == 3.0
    literal = StudyLLF(6.0, "literal")
    assert literal.statistic(view, Clock(3, 9, 5, 9), REST) == -10.0
    threshold = literal.threshold(-10.0, 0.0, Clock(3, 9, 5, 9), REST)
    assert -3.0 > threshold == math.nextafter(-3.0, -math.inf)


def test_llf_with_c_0_opens_on_any_positive_spread_and_not_on_none() -> None:
    assert LLF(0.0).threshold(1.0, 0.0, Clock(7, 9, 8, 9), REST) == 0.0
    flat = a_view([1.0, 1.0], [0.0, 0.0])
    assert not LLF(0.0).statistic(flat, Clock(0, 9, 1, 9), REST) > 0.0


def test_margin_is_minus_the_difference_of_the_two_best() -> None:
    gate, clock = Margin(), Clock(0, 1, 1, 1)
    assert gate.statistic(a_view([0.25, 1.0, -3.0, 0.75], [1] * 4), clock, REST) == -0.25
    assert gate.statistic(a_view([2.0, 2.0], [1, 1]), clock, REST) == 0.0
    assert gate.statistic(a_view([2.0], [1]), clock, REST) == -math.inf


def test_an_adaptive_margin_moves_in_units_of_the_mean_absolute_deviation() -> None:
    """|g − mean of the earlier ones|, averaged: after −1, −3, −5 it is (2 + 3)/2."""
    gate = Margin(pace=0.5)
    state = gate.advance(-1.0, True, Clock(0, 3, 1, 9), gate.start())
    assert state == (-1.0, -1.0, 0.0, 1.0)
    state = gate.advance(-3.0, False, Clock(1, 3, 2, 9), state)
    assert state == pytest.approx((-1.0 - 0.5 * 2.0 * 2 / 8, -2.0, 2.0, 2.0))
    state = gate.advance(-5.0, True, Clock(1, 3, 3, 9), state)
    assert state[1:] == pytest.approx((-3.0, 2.5, 3.0))
    assert state[0] == pytest.approx(-1.25 + 0.5 * 2.5 * (1 - 2 / 7))


def test_a_lone_candidate_does_not_count_in_the_margins_moments() -> None:
    """After −1, a lone one, −3, a lone one and −4.5: their mean, and (2 + 2.5)/2."""
    gate = Margin()
    state = gate.start()
    for t, g in enumerate([-1.0, -math.inf, -3.0, -math.inf, -4.5], start=1):
        state = gate.advance(g, False, Clock(0, 5, t, 20), state)
    assert state[1:] == pytest.approx((-8.5 / 3, 2.25, 3.0))


def test_the_contested_score_by_hand() -> None:
    scores, pairs = [1.0, 3.0, 2.0], [2.0, 0.0, 0.25]
    assert contested(scores, pairs, 1, 1.0) == 0.0  # max(1 − 3 + 2, 2 − 3 + 0.25)
    assert contested(scores, pairs, 1, 0.5) == -0.875
    optimistic = contested(scores, [0.0, 2.0, 0.25], 0, 1.0)
    assert optimistic == 4.0  # taken at the action that is played
    assert contested([1.0], [0.0], 0, 1.0) == -math.inf
    assert math.isnan(contested([1.0, 2.0], [math.nan] * 2, 1, 1.0))


def contested(scores: list[float], pairs: list[float], choice: int, scale: float) -> float:
    return statistics.contested_statistic(np.array(scores), np.array(pairs), choice, scale)


def test_the_price_of_contested() -> None:
    """rU on schedule, U where 1 − f of the labels owed are left, r^(1 + s/f)·U with s too many."""
    gate = Contested(width_scale=1.0, reserve=0.5, floor=0.01)
    state = gate.advance(4.0, True, Clock(0, 10, 1, 100), gate.start())
    assert state == (4.0, 0.0, 0.0, 0.0)
    # 80 of 100 rounds are left, this one included: 8 labels are owed to them
    assert gate.threshold(1.0, 0.0, Clock(2, 10, 21, 100), state) == pytest.approx(0.04)
    assert gate.threshold(1.0, 0.0, Clock(6, 10, 21, 100), state) == pytest.approx(4.0)
    # 40 of 100 rounds and 8 of 10 labels: twice what is owed, so r^(1 + 1/f)
    assert gate.threshold(1.0, 0.0, Clock(2, 10, 61, 100), state) == pytest.approx(4e-6)
    # a new maximum counts at once
    assert gate.threshold(8.0, 0.0, Clock(2, 10, 21, 100), state) == pytest.approx(0.08)
    assert gate.threshold(-1.0, 0.0, Clock(0, 10, 1, 100), gate.start()) == 0.0


def test_contested_far_ahead_of_a_short_reserve_does_not_overflow() -> None:
    gate = Contested(width_scale=1.0, reserve=1e-4, floor=0.01)
    price = gate.threshold(1.0, 0.0, Clock(99, 100, 1, 10_000), (2.0, 0.0, 0.0, 0.0))
    assert 1e300 < price < math.inf


def test_the_width_of_the_two_best_by_hand() -> None:
    gate, clock = ADPO(), Clock(0, 1, 1, 1)
    pairs = [0.9, 0.0, 0.8, 0.25]
    assert gate.statistic(a_view([0.5, 1.0, -3.0, 0.75], [1] * 4, pairs), clock, REST) == 0.25
    # two tie for the second place: the wider pair counts, wherever it stands
    assert gate.statistic(a_view([0.75, 1.0, -3.0, 0.75], [1] * 4, pairs), clock, REST) == 0.9
    # an optimistic choice is compared with the best of the others
    played = a_view([0.5, 1.0, -3.0, 0.75], [1] * 4, [0.3, 0.7, 0.0, 0.1], choice=2)
    assert gate.statistic(played, clock, REST) == 0.7
    assert gate.statistic(a_view([2.0], [1]), clock, REST) == -math.inf
    unknown = a_view([1.0, 2.0], [1, 1], pairs=[math.nan, 0.0])
    assert math.isnan(gate.statistic(unknown, clock, REST))


def test_a_constant_level_is_the_rule_of_the_paper() -> None:
    gate = ADPO(level=0.5)
    state = gate.advance(0.9, True, Clock(0, 9, 1, 99), gate.start())
    assert state == gate.start() == REST
    assert gate.threshold(0.9, 0.0, Clock(1, 9, 2, 99), state) == 0.5


def test_the_paced_level_rises_with_a_label_and_falls_without() -> None:
    gate = ADPO(pace=0.2)
    assert gate.threshold(1e-9, 0.0, Clock(0, 2, 1, 8), gate.start()) == 0.0  # asks the first
    state = gate.advance(0.5, True, Clock(0, 2, 1, 8), gate.start())
    level = 0.5 * math.exp(0.2 * (1 - 2 / 8))
    assert gate.threshold(0.1, 0.0, Clock(1, 2, 2, 8), state) == pytest.approx(level)
    state = gate.advance(0.1, False, Clock(1, 2, 2, 8), state)
    level *= math.exp(-0.2 / 7)
    assert gate.threshold(0.1, 0.0, Clock(1, 2, 3, 8), state) == pytest.approx(level)
    # two candidates that are one row have no width, and set nothing
    assert gate.advance(0.0, False, Clock(0, 2, 1, 8), gate.start()) == gate.start()


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("contested", {"width_scale": 0.0}, "would not ask"),
        ("contested", {"reserve": 0.0}, "reserve in"),
        ("contested", {"floor": 1.0}, "floor in"),
        ("information", {"floor": 2.0}, "the defaults are 0.9 and 0.003"),
        ("margin", {"pace": 0.0}, "positive pace"),
        ("adpo", {"pace": -0.1}, "positive pace"),
        ("adpo", {"level": 0.0}, "level above 0"),
        ("llf", {"gate_scale": -1.0}, "at least 0"),
        ("llf", {"gate_scale": math.nan}, "at least 0"),
        ("llf", {"reading": "litteral"}, "did you mean 'literal'"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(name, parameters, sentence) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_gate(name, **parameters)


def test_gates_that_cannot_rank_are_refused_in_a_pool() -> None:
    own = {name: kind for name, kind in GATES.items() if kind.__module__.startswith("stacksl.")}
    unable = [name for name, kind in own.items() if not kind.ranks]
    assert unable == ["always", "first", "llf"]
    for name in GATES:
        if name in unable:
            with pytest.raises(SettingsError, match=f"'{name}' does not"):
                require_ranking(make_gate(name))
        else:
            require_ranking(make_gate(name))


def test_a_small_ridge_counts_as_1() -> None:
    """Widths before any label grow as 1/√λ: those above what λ = 1 gives set no price."""
    clock = Clock(0, 9, 1, 9)
    view = a_view([0.0, 0.5], [30.0, 30.0], pairs=[40.0, 0.0])
    assert Contested(width_scale=1.5).statistic(view, clock, REST) == -0.5 + 1.5 * 2.0
    told = replace(view, information=900.0)
    assert make_gate("information").statistic(told, clock, REST) == 1.0
    assert make_gate("information").statistic(replace(told, information=0.4), clock, REST) == 0.4


# What a scorer says of information and widths, each against a second computation -----------------


def test_the_information_of_newton_is_to_first_order_the_growth_of_log_det_h() -> None:
    scorer, rows, view = taught("newton")
    policy = view.probabilities
    mean = policy @ rows
    fisher = sum(p * np.outer(r - mean, r - mean) for p, r in zip(policy, rows, strict=True))
    growth = np.linalg.slogdet(np.eye(6) + 1e-4 * fisher @ scorer.confidence.gram_inv)[1]
    assert growth == pytest.approx(
        1e-4 * Information().statistic(view, Clock(3, 20, 7, 90), REST), rel=1e-3
    )


def test_rows_that_coincide_tell_exactly_nothing() -> None:
    scorer, rows, _ = taught("newton")
    alike = PairFeatures(np.repeat(rows[:1], 5, axis=0))
    assert scorer.bounds(alike, tuple(range(5))).information == 0.0
    assert scorer.bounds(PairFeatures(rows), (3,)).information == 0.0


@pytest.mark.parametrize(
    ("name", "classes", "settings"),
    [
        ("ridge", None, {}),
        ("ridge", None, {"action": "ucb"}),
        ("sgd", None, {}),
        ("ridge", 4, {}),
        ("sgd", 4, {}),
    ],
)
def test_without_fisher_information_it_is_the_width_of_the_choice(name, classes, settings) -> None:
    _, _, view = taught(name, classes, **settings)
    assert view.information == pytest.approx(view.widths[view.choice] ** 2)
    assert view.information > 0.0


def test_scores_that_cancelled_tie_for_the_second_best() -> None:
    """They are rounding beside the bounds, though not beside each other."""
    pairs = np.array([0.0, 0.2, 0.9])
    assert statistics.adpo_statistic(np.array([0.0, 1e-17, 0.0]), pairs, 0) == 0.9
    assert statistics.adpo_statistic(np.array([0.0, 1e-3, 0.0]), pairs, 0) == 0.2
