"""The statistics of the gates of the literature, each against a second computation."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from stacksl.core import Bounds, Clock, SharedBlock
from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.gates.registry import First
from stacksl.core.scorers import ScorerSettings, make_scorer
from stacksl.errors import SettingsError
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.baselines import statistics
from stacksl_lab.baselines.gates import DGS, LUCB, Avoided, Contested, Entropy, Width
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.learner import StudyLearner, widest_of
from stacksl_lab.rewards import Reward, RewardRidge

from ..core.scorer_cases import taught

REST = (0.0, 0.0, 0.0, 0.0)
CLOCK = Clock(3, 20, 7, 90)
M, D = 5, 6


def statistic(gate, view: Bounds, clock: Clock = CLOCK) -> float:
    return gate.statistic(view, clock, REST)


def without(values: np.ndarray, at: int) -> np.ndarray:
    return np.delete(values, at)


@pytest.mark.parametrize("name", ["ridge", "newton"])
def test_lucb_is_the_overlap_of_the_bounds(name) -> None:
    _, _, view = taught(name)
    overlap = without(view.upper, view.choice).max() - view.lower[view.choice]
    assert statistic(LUCB(), view) == pytest.approx(overlap)
    assert LUCB(tolerance=0.3).threshold(1.0, 0.0, CLOCK, REST) == 0.3
    # two norms are at least the norm of the difference
    assert statistic(LUCB(1.5), view) >= statistic(Contested(1.5), view)


def test_width_is_the_widest_pair_over_what_the_budget_can_reach() -> None:
    scorer, rows, view = taught("newton", ridge=0.5)
    apart = (rows[:, None] - rows).reshape(-1, D)
    squares = np.array([row @ scorer.confidence.gram_inv @ row for row in apart])
    reach = math.sqrt(D * math.log(1 + 20 / (0.5 * D)) / 20)
    widest, _ = widest_of(scorer, PairFeatures(rows), view.presented)
    assert widest == pytest.approx(math.sqrt(squares.max()))
    gate = Width(scale=1.5, ridge=0.5)
    assert gate.over(widest, CLOCK, D) * reach == pytest.approx(widest)
    assert gate.threshold(9.0, 0.0, CLOCK, REST) == 1.5
    bbq = Width(exponent=0.5)
    assert bbq.over(widest, CLOCK, D) == pytest.approx(squares.max())
    assert bbq.threshold(9.0, 0.0, CLOCK, REST) == pytest.approx(1 / math.sqrt(7))


def test_width_asks_about_the_wider_end_by_hand() -> None:
    """V = diag(1, 4): of a = (.4, .1), b = (0, 1), c = (−.6, −.8) the pair of b and c has .36 +
    3.24/4, that of a and c 1 + .81/4, and b's score is the best; ‖a‖² = .1625 and ‖c‖² = .52.
    """
    trained = RewardRidge(2, ScorerSettings())
    for _ in range(3):
        trained.reward(PairFeatures(np.array([[0.0, 1.0]])), 0, Reward(1.0))
    inputs = PairFeatures(np.array([[0.4, 0.1], [0.0, 1.0], [-0.6, -0.8]]))
    view = trained.bounds(inputs, (0, 1, 2))
    assert view.choice == 1
    learner = StudyLearner(trained, Width(exponent=0.5), asks_ucb=True, budget=5, horizon=9)
    [decision] = learner.decide(["x"], [inputs], [(0, 1, 2)], asked=0)
    assert (decision.status, decision.choice) == ("wanted", 2)
    assert decision.statistic == pytest.approx(1.0 + 0.81 / 4)
    assert decision.score == pytest.approx(view.scores[2])
    assert decision.probability == view.probabilities[2]
    [decision] = learner.decide(["x"], [inputs], [(0, 1, 2)], asked=5)
    assert (decision.status, decision.choice) == ("skipped", 1)


def test_pairs_and_ends_that_tie_give_the_first() -> None:
    pairs = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0 + 1e-12], [2.0, 2.0 + 1e-12, 0.0]])
    assert statistics.widest_pair(pairs, np.array([1.0, 1.0, 1.0 + 1e-12])) == (2.0 + 1e-12, 0)
    assert statistics.widest_pair(pairs, np.array([1.0, 1.0, 1.1]))[1] == 2
    assert statistics.widest_pair(pairs[:1, :1], np.array([1.0])) == (-math.inf, 0)
    assert math.isnan(statistics.widest_pair(np.full((2, 2), math.nan), np.ones(2))[0])


@pytest.mark.parametrize("name", ["ridge", "newton", "sgd"])
def test_in_class_heads_that_share_a_matrix_no_end_is_wider(name) -> None:
    scorer, rows, view = taught(name, 4)
    widest, end = widest_of(scorer, SharedFeatures(rows[0], 4), view.presented)
    if name == "sgd":  # a block a class
        assert widest == pytest.approx(max(np.hypot(v, w) for v, w in permutations(view.widths, 2)))
        assert end == view.widths.argmax()
        return
    assert end is None
    assert widest == view.pair_widths.max()
    assert statistic(Width(exponent=0.5), view) == pytest.approx(widest**2)


def test_entropy_is_that_of_the_policy_in_nats() -> None:
    from scipy.stats import entropy

    _, _, view = taught("newton")
    assert statistic(Entropy(), view) == pytest.approx(entropy(view.probabilities))
    fresh = make_scorer("sgd", dim=D, classes=None)
    even = fresh.bounds(PairFeatures(np.eye(M, D)), tuple(range(M)))
    assert statistic(Entropy(), even) == pytest.approx(math.log(M))
    alone = fresh.bounds(PairFeatures(np.eye(M, D)), (2,))
    assert statistic(Entropy(), alone) == -math.inf


def test_a_probability_of_zero_adds_no_entropy() -> None:
    assert statistics.entropy_statistic(np.array([0.5, 0.0, 0.5])) == pytest.approx(math.log(2))
    assert statistics.entropy_statistic(np.array([0.0, 1.0, 0.0])) == 0.0


def gain(gap: float, spread: float) -> float:
    """E max(0, −gap + spread·ε) for a standard normal ε, by quadrature."""
    from scipy.integrate import quad
    from scipy.stats import norm

    start = gap / spread
    value, _ = quad(lambda e: (spread * e - gap) * norm.pdf(e), start, start + 40.0)
    return float(value)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("action", ["greedy", "ucb"])
def test_avoided_is_the_mean_gain_of_knowing_the_pair(scale, action) -> None:
    _, _, view = taught("ridge", action=action)
    gaps = without(view.scores[view.choice] - view.scores, view.choice)
    spreads = scale * without(view.pair_widths, view.choice)
    expected = max(gain(g, s) for g, s in zip(gaps, spreads, strict=True))
    assert statistic(Avoided(scale), view) == pytest.approx(expected, rel=1e-7)


def of_pair(gap: float, width: float) -> Bounds:
    scores, widths = np.array([gap, 0.0]), np.array([0.0, width])
    return Bounds((0, 1), scores, np.array([0.5, 0.5]), widths, widths, 1.0, 4, 0)


@pytest.mark.parametrize("gap", [1.0, 5.0, 20.0])
def test_avoided_far_in_the_tail(gap) -> None:
    """h(u) by the continued fraction of Mills' ratio, which does not cancel."""
    ratio = 0.0
    for k in range(4000, 0, -1):
        ratio = k / (gap + ratio)
    mills = 1.0 / (gap + ratio)
    density = math.exp(-0.5 * gap * gap) / math.sqrt(2 * math.pi)
    expected = density * (1.0 - gap * mills)
    ours = statistic(Avoided(), of_pair(2.0 * gap, 2.0))
    assert ours == pytest.approx(2.0 * expected, rel=1e-9)


def test_avoided_at_its_ends() -> None:
    assert statistic(Avoided(), of_pair(0.0, 3.0)) == pytest.approx(3.0 / math.sqrt(2 * math.pi))
    assert statistic(Avoided(), of_pair(1.0, 0.0)) == 0.0
    assert statistic(Avoided(), of_pair(1.0, 1e-310)) == 0.0
    assert statistic(Avoided(), of_pair(-1.0, 1e-310)) == 1.0
    assert math.isnan(statistic(Avoided(), of_pair(1.0, math.nan)))


def test_dgs_by_hand() -> None:
    scores, pairs = np.array([0.2, 1.0, 0.7, -3.0]), np.array([0.9, 0.0, 0.5, 2.0])
    view = Bounds((0, 1, 2, 3), scores, np.full(4, 0.25), pairs, pairs, 1.0, 4, 1)
    clock = Clock(6, 20, 11, 90)
    potential = 2 * 4 * math.log(1 + 6 / (0.5 * 4))
    bound = 0.25 * (1 + 4 * potential + 36 * math.log(11 / 0.1))
    gate = DGS(scale=0.02, ridge=0.5, delta=0.1)
    assert statistic(gate, view, clock) == pytest.approx(0.02 * bound - 0.3**2)
    # an optimistic choice that is behind has no lead
    behind = Bounds((0, 1, 2, 3), scores, np.full(4, 0.25), pairs, pairs[[1, 0, 2, 3]], 1.0, 4, 0)
    assert statistic(gate, behind, clock) == pytest.approx(
        0.02 * 0.9**2 * (1 + 4 * potential + 36 * math.log(11 / 0.1))
    )
    assert gate.threshold(1.0, 0.0, clock, REST) == 0.0


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("lucb", {"width_scale": 0.0}, "width_scale above 0"),
        ("lucb", {"tolerance": -0.1}, "tolerance of at least 0"),
        ("width", {"scale": 0.0}, "scale and a ridge above 0"),
        ("width", {"exponent": 1.0}, "exponent in"),
        ("entropy", {"reserve": 1.5}, "reserve in"),
        ("avoided", {"width_scale": 0.0}, "width_scale above 0"),
        ("avoided", {"floor": 0.0}, "the defaults are 0.7 and 0.001"),
        ("dgs", {"scale": math.nan}, "scale and a ridge above 0"),
        ("dgs", {"delta": 1.0}, "delta in"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(name, parameters, sentence) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_gate(name, **parameters)


def test_a_width_that_is_nan_is_not_passed_over_for_a_later_one() -> None:
    scores = np.array([1.0, 0.5, 0.5])
    for place in (1, 2):
        pairs = np.array([0.0, 0.3, 0.3])
        pairs[place] = math.nan
        assert math.isnan(statistics.avoided_statistic(scores, pairs, 0, 1.0))


def test_unknown_names_are_those_of_no_gate_at_all() -> None:
    with pytest.raises(SettingsError, match="did you mean 'lucb'"):
        make_gate("lucbb")
    with pytest.raises(SettingsError, match="did you mean 'margin'"):
        make_gate("margn")


@pytest.mark.parametrize(("labeler", "pending"), [("oracle", 0), ("file", 6)])
def test_a_run_sets_the_labels_that_may_be_open_from_its_batch(labeler: str, pending: int) -> None:
    given = {"gate": "reserve", "labeler": labeler, "open_questions": 7, "mode": "stream",
             "plugins": "stacksl_lab.baselines.plugin"}  # fmt: skip
    learner = build_learner(resolve(given).settings, SharedBlock(np.eye(4), 3), range(4), 2)
    assert (learner.gate.pending, learner.gate.reach) == (pending, 2.0**0.5)


# Optimism in asked rounds alone ------------------------------------------------------------------


def test_asked_rounds_hope_where_a_reward_is_bought() -> None:
    """After φ = e₁ was rewarded once, e₁ has the largest score and e₂ the largest UCB."""
    scorer = RewardRidge(2, ScorerSettings())
    rows = PairFeatures(np.eye(2))
    scorer.reward(rows, 0, Reward(0.2))
    learner = StudyLearner(scorer, First(), asks_ucb=True, budget=1, horizon=2)
    wanted, skipped = learner.decide(["a", "b"], [rows] * 2, [(0, 1)] * 2, asked=0)
    assert (wanted.status, wanted.choice) == ("wanted", 1)
    assert (skipped.status, skipped.choice) == ("skipped", 0)
    assert (wanted.score, skipped.score) == pytest.approx((0.0, 0.1))


def test_optimism_in_asked_rounds_needs_a_greedy_action() -> None:
    scorer = make_scorer("ridge", dim=2, classes=None, settings=ScorerSettings(action="ucb"))
    with pytest.raises(SettingsError, match="asks_ucb"):
        StudyLearner(scorer, First(), asks_ucb=True, budget=1, horizon=2)
