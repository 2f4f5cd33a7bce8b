"""The gate `reserve`: its numbers by hand, and Theorem D of docs/theory.md on any stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.core import Bounds, Clock, SharedBlock
from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.learner import Learner
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl.types import Decision, Label
from stacksl_lab.baselines import statistics
from stacksl_lab.baselines.capacity import corpus_capacity, with_corpus_capacity
from stacksl_lab.baselines.reserve import Reserve
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import Reward, RewardRidge
from stacksl_lab.statistics.estimates import holds

REST = (0.0, 0.0, 0.0)


def a_view(gap: float, information: float, volume: float, radius: float = 1.0) -> Bounds:
    """Two candidates in 4 columns whose contested score is `gap`."""
    half, width = np.array([0.5, 0.5]), np.array([0.0, 1.0])
    scores = np.array([0.0, gap - radius])
    return Bounds((0, 1), scores, half, width, width, radius, 4, 0, information, volume, 1.0)


def test_the_level_the_reserve_and_the_price_by_hand() -> None:
    """d = 4, B = 40, λ = L = 1, κ = ½: dℓ = 4·log 11, v = e^{dℓ/20} − 1."""
    gate, most = Reserve(share=0.5, ahead=0.5, floor=0.01), 4.0 * math.log(11.0)
    v = math.exp(most / 20.0) - 1.0
    assert statistics.capacity(40, 4, 1.0) == pytest.approx(most)
    assert statistics.reserve_held(0.25 * most, most, 40, 0.5, v, 2.0) == pytest.approx(15.0)
    # half of the rounds; labels free: 40 − 15 − 15 = 10 of 20, on schedule: the price is r·v
    clock = Clock(15, 40, 51, 100)
    view = a_view(-9.0, 0.02, 0.25 * most)
    assert gate.statistic(view, clock, REST) == pytest.approx(0.02 / (0.01 * v))
    # above the level whatever the information
    wide = a_view(2.2 * math.sqrt(v), 0.0, 0.25 * most)
    assert gate.statistic(wide, clock, REST) == pytest.approx(1.1)
    # all that is left is the reserve: only the level counts
    spent = Clock(25, 40, 51, 100)
    assert gate.statistic(wide, spent, REST) == pytest.approx(1.1)
    assert gate.statistic(view, spent, REST) < 0.0
    assert gate.threshold(1.1, 0.0, spent, REST) == 1.0
    open_labels = statistics.reserve_square(most, 40, 0.5, 2)
    assert open_labels == pytest.approx(math.exp(3.0 * most / 20.0) - 1.0)


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"ahead": 0.0},
                                   {"floor": 1.0}, {"pending": -1}, {"capacity": 3.0},
                                   {"capacity": 0.0, "counted": 9}, {"reach": 0.0}])  # fmt: skip
def test_settings_outside_their_ranges_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="reserve"):
        Reserve(**wrong)  # type: ignore[arg-type]


@dataclass
class Round:
    """A round as it was decided: its certificate, and what V knew."""

    decision: Decision
    left: int
    held: float
    forced: bool
    growth: float
    regret: float
    reach: float
    covered: bool
    silent: bool = False


def adversary(kind: int, rng: np.random.Generator, gram_inv: np.ndarray, dim: int) -> np.ndarray:
    """Candidates of norm at most 1, chosen with knowledge of V."""
    least_known = np.linalg.eigh(gram_inv)[1][:, -1]
    if kind == 0:  # the least known direction, from both ends
        return np.array([least_known, -least_known])
    rows = rng.normal(size=(int(rng.integers(1, 5)), dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if kind == 1:  # short and long ones
        return np.asarray(rows * rng.random((len(rows), 1)))
    if kind == 2:  # near ties far from the origin
        return np.asarray(0.7 * least_known + 0.01 * rows)
    return rows


def play(
    gate: Reserve,
    *,
    seed: int,
    dim: int,
    budget: int,
    horizon: int,
    ridge: float,
    delays: bool = False,
    nobody: float = 0.0,
    kinds: Callable[[np.random.Generator], int] = lambda rng: int(rng.integers(4)),
) -> list[Round]:
    """Ridge on rewards, the largest UCB asked; at most `gate.pending` answers stay open.

    A share `nobody` of them names no candidate, and is not learned.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=dim)
    noise = 0.3
    numbers = ScorerSettings(ridge=ridge, noise=noise, norm_bound=float(np.linalg.norm(truth)))
    learner = StudyLearner(
        scorer := RewardRidge(dim, numbers),
        gate, asks_ucb=True, budget=budget, horizon=horizon,
    )  # fmt: skip
    most = statistics.capacity(budget, dim, 1.0 / math.sqrt(ridge))
    level = 2.0 * math.sqrt(statistics.reserve_square(most, budget, gate.share, gate.pending))
    asked, played, waiting, silent = 0, [], [], []
    for t in range(horizon):
        trust = scorer.confidence
        inputs = PairFeatures(adversary(kinds(rng), rng, trust.gram_inv, dim))
        view = scorer.bounds(inputs, tuple(range(inputs.size)))
        gap = statistics.contested_statistic(
            view.scores, view.pair_widths, view.choice, view.radius
        )
        [decision] = learner.decide([str(t)], [inputs], [view.presented], asked=asked)
        held = held_by(gate, trust.volume, most, budget, 2.0 / math.sqrt(ridge))
        row = inputs.phi[decision.choice]
        values = inputs.phi @ truth
        covered = holds(trust, truth, scorer.theta, view.radius)
        played.append(
            Round(
                decision, budget - asked, held, gap > level * view.radius * (1 + 1e-9),
                math.log1p(float(row @ trust.gram_inv @ row)),
                float(values.max() - values[view.choice]), level * view.radius, covered,
            )
        )  # fmt: skip
        if decision.status == "wanted":
            decision = decision.reserved()
            asked += 1
            waiting.append(
                (decision, inputs, float(values[decision.choice] + noise * rng.normal()))
            )
        learner.adopt([decision], [inputs])
        while waiting and (len(waiting) > gate.pending or (delays and rng.random() < 0.3)):
            which = int(rng.integers(len(waiting)))  # answers come in any order
            bought, features, value = waiting.pop(which)
            if rng.random() < nobody:
                silent.append(bought.round)
            else:
                learner.learn(bought, features, Reward(value))
    assert asked == min(budget, horizon), "exactly spent"
    for number in silent:
        played[number - 1].silent = True
    return played


@given(
    seed=st.integers(0, 9999),
    dim=st.integers(1, 5),
    share=st.sampled_from([0.2, 0.5, 0.9]),
    ridge=st.sampled_from([0.001, 0.3, 1.0, 20.0]),
    budget=st.integers(1, 60),
    floor=st.sampled_from([1e-6, 0.1]),
)
@settings(max_examples=12, deadline=None)
def test_the_reserve_is_never_breached(seed, dim, share, ridge, budget, floor) -> None:
    """Theorem D (1) at n = 0, for any λ; each forced label pays for itself."""
    gate = Reserve(share=share, floor=floor)
    most = statistics.capacity(budget, dim, 1.0 / math.sqrt(ridge))
    v = statistics.reserve_square(most, budget, share, 0)
    played = play(gate, seed=seed, dim=dim, budget=budget, horizon=150, ridge=ridge)
    if v >= 1.0 / ridge:  # nothing can be forced, and nothing is held
        assert not any(seen.forced or seen.held for seen in played)
        return
    for seen in played:
        if seen.decision.reason == "must":
            break  # from here on every round is asked
        assert seen.left >= seen.held - 1e-9
        if seen.forced:
            assert seen.decision.status == "wanted"
            assert seen.growth > most / (share * budget) * (1 - 1e-9)
            assert v > 2.5 or seen.growth >= v / 2.0  # level²/8
    else:
        pytest.fail("labels are left for the last round")


@given(
    seed=st.integers(0, 9999), dim=st.integers(1, 4), pending=st.integers(1, 4),
    budget=st.integers(5, 60), delays=st.booleans(),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_delayed_answers_leave_a_label_for_every_forced_round(
    seed, dim, pending, budget, delays
) -> None:
    """Theorem D (1) with up to n labels open, answered in any order."""
    gate = Reserve(share=0.9, floor=1e-6, pending=pending)
    for seen in play(
        gate, seed=seed, dim=dim, budget=budget, horizon=120, ridge=0.01, delays=delays
    ):
        if seen.decision.reason == "must":
            break
        if seen.held:
            assert seen.decision.reason == "gate", "labels run out through the last rule alone"
        assert not seen.forced or seen.decision.status == "wanted"


def test_a_skip_costs_at_most_the_level() -> None:
    """Theorem D (2): wherever the truth is in the set, and it is."""
    gate, budget, dim = Reserve(), 150, 4
    skipped = covered = 0
    most = statistics.capacity(budget, dim, 1.0)
    for seed in range(2):
        for seen in play(gate, seed=seed, dim=dim, budget=budget, horizon=600, ridge=1.0):
            covered += seen.covered
            if seen.decision.status == "skipped" and seen.covered:
                skipped += 1
                assert seen.regret <= seen.reach * (1 + 1e-9)
                bound = math.sqrt(8.0 * most / (gate.share * budget))  # ε_B/√κ over β
                assert seen.reach <= seen.reach / rules_level(most, budget, gate) * bound
    assert covered > 0.95 * 2 * 600
    assert skipped > 300


def held_by(gate: Reserve, volume: float, most: float, budget: int, widest: float) -> float:
    """R of the gate."""
    square = statistics.reserve_square(most, budget, gate.share, gate.pending)
    return statistics.reserve_held(volume, most, budget, gate.share, square, widest)


def rules_level(most: float, budget: int, gate: Reserve) -> float:
    return 2.0 * math.sqrt(statistics.reserve_square(most, budget, gate.share, gate.pending))


def growths(
    learner: Learner,
    items: np.ndarray,
    classes: int,
    most: float,
    widest: float,
    seed: int,
    nobody: float = 0.0,
) -> list[float]:
    """By how much each forced label grew the volume; every round leaves the reserve whole.

    A share `nobody` of the answers names none of the classes.
    """
    head, gate, budget, shown = learner.scorer, learner.gate, learner.budget, tuple(range(classes))
    rng, asked, found = np.random.default_rng(seed), 0, []
    for t, h in enumerate(items):
        inputs = SharedFeatures(h, classes)
        [decision] = learner.decide([str(t)], [inputs], [shown], asked=asked)
        if decision.reason == "must":
            break
        before = head.confidence.volume
        held = held_by(gate, before, most, budget, widest)
        assert held > 0.0 or before >= most
        assert budget - asked >= held - 1e-9
        view = head.bounds(inputs, shown)
        gap = statistics.contested_statistic(
            view.scores, view.pair_widths, view.choice, view.radius
        )
        forced = gap > rules_level(most, budget, gate) * view.radius * (1 + 1e-9)
        assert decision.status == "wanted" or not forced
        if decision.status == "wanted":
            decision, asked = decision.reserved(), asked + 1
        learner.adopt([decision], [inputs])
        if decision.asked and rng.random() < nobody:
            learner.learn_none(inputs)
        elif decision.asked:
            learner.learn(decision, inputs, Label(int(rng.integers(classes))))
        found += [head.confidence.volume - before] if forced else []
    return found


@pytest.mark.parametrize("scorer", ["ridge", "newton"])
@pytest.mark.parametrize("nobody", [0.0, 0.4])
def test_class_heads_keep_the_reserve_under_labels(scorer: str, nobody: float) -> None:
    """Also where a share of the answers names none of the classes, and is learned as that."""
    gate, budget, dim = Reserve(share=0.7, floor=1e-6), 30, 3
    h = np.eye(dim)[np.arange(300) // 100] + 0.1 * np.random.default_rng(7).normal(size=(300, dim))
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    head = make_scorer(scorer, dim=dim, classes=4, settings=ScorerSettings(ridge=0.1))
    learner = StudyLearner(head, gate, budget=budget, horizon=300)
    most = statistics.capacity(budget, dim, 1.0 / math.sqrt(0.1))
    found = growths(learner, h, 4, most, 2.0 / math.sqrt(0.1), 5, nobody)
    assert min(found) > most / (gate.share * budget)
    assert len(found) >= 3, "each direction is forced at least once"


def test_the_volume_is_the_log_determinant_and_is_kept_in_checkpoints() -> None:
    rng = np.random.default_rng(0)
    for name in ("sgd", "ridge", "newton"):
        scorer = make_scorer(name, dim=3, classes=None, settings=ScorerSettings(ridge=0.5))
        for _ in range(5):
            rows = rng.normal(size=(4, 3)) / 3.0
            scorer.step(PairFeatures(rows), (0, 1, 2, 3), 1, Label(2))
        inputs = PairFeatures(np.eye(3))
        volume = scorer.bounds(inputs, (0, 1)).volume
        state = scorer.state()  # that of sgd has a matrix for each block, here one
        exact = -np.linalg.slogdet(0.5 * state.get("gram_inv", state.get("blocks", [None])[0]))[1]
        assert volume == pytest.approx(exact, rel=1e-9)
        again = make_scorer(name, dim=3, classes=None, settings=ScorerSettings(ridge=0.5))
        again.restore(scorer.state())
        assert again.bounds(inputs, (0, 1)).volume == volume


@given(
    seed=st.integers(0, 9999), dim=st.integers(1, 4), budget=st.integers(5, 60),
    nobody=st.sampled_from([0.1, 0.5]),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_an_answer_that_names_no_candidate_costs_one_of_the_labels_held(
    seed, dim, budget, nobody
) -> None:
    """Labels left are at least R less the forced labels that were answered so."""
    gate = Reserve(share=0.6, floor=1e-6)
    silent = 0
    for seen in play(gate, seed=seed, dim=dim, budget=budget, horizon=120, ridge=1.0,
                     nobody=nobody):  # fmt: skip
        if seen.decision.reason in ("must", "spent"):
            break
        assert seen.left >= seen.held - silent - 1e-9
        silent += seen.silent and seen.forced


def a_corpus(kind: int, rng: np.random.Generator, items: int, dim: int) -> np.ndarray:
    """Rows of norm at most 1: any, alike, of few directions, of very different lengths."""
    rows = rng.normal(size=(items, dim))
    if kind == 1:
        rows = rows[:1] + 0.05 * rows
    if kind == 2:
        rows = np.eye(dim)[rng.integers(dim, size=items)]
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows * 10.0 ** -rng.integers(0, 4, size=(items, 1))) if kind == 3 else rows


def growth(rows: np.ndarray, ridge: float) -> float:
    """log det(I + Σ φφᵀ/λ)."""
    return float(np.linalg.slogdet(np.eye(rows.shape[1]) + rows.T @ rows / ridge)[1])


@given(
    seed=st.integers(0, 9999), kind=st.integers(0, 3), dim=st.integers(1, 6),
    items=st.integers(1, 30), labels=st.integers(1, 40), ridge=st.sampled_from([0.001, 1.0, 20.0]),
    steps=st.integers(1, 12),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_no_choice_of_rows_exceeds_the_capacity(seed, kind, dim, items, labels, ridge, steps):
    rng = np.random.default_rng(seed)
    rows = a_corpus(kind, rng, items, dim)
    bound = corpus_capacity(rows, labels, ridge, steps=steps)
    assert bound <= statistics.capacity(labels, dim, ridge**-0.5) * (1 + 1e-8)
    chosen: list[int] = []  # the greedy choice, which is nearly the best, and some others
    for _ in range(min(labels, items)):
        rest = [row for row in range(items) if row not in chosen]
        chosen.append(max(rest, key=lambda row: growth(rows[[*chosen, row]], ridge)))
    drawn = [rng.permutation(items)[:labels] for _ in range(5)]
    assert max(growth(rows[pick], ridge) for pick in (chosen, *drawn)) <= bound


@given(
    seed=st.integers(0, 9999), dim=st.integers(1, 5), items=st.integers(1, 12),
    labels=st.integers(1, 14), together=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_no_choice_of_items_with_several_rows_exceeds_it(seed, dim, items, labels, together):
    """All of an item's rows together, or a mean of their products."""
    rng = np.random.default_rng(seed)
    corpus = np.stack([a_corpus(kind, rng, items, dim) for kind in (0, 1, 3)], axis=1)
    bound = corpus_capacity(corpus, labels, 0.3, together=together, steps=4)
    weights = np.ones((items, 3)) if together else rng.dirichlet(np.full(3, 0.2), size=items)
    scaled = corpus * np.sqrt(weights)[:, :, None]
    for _ in range(8):
        pick = rng.permutation(items)[:labels]
        assert growth(scaled[pick].reshape(-1, dim), 0.3) <= bound


def test_the_capacity_is_exact_where_all_are_asked_or_all_alike() -> None:
    rows = a_corpus(0, np.random.default_rng(3), 9, 4)
    assert corpus_capacity(rows, 9, 0.5) == pytest.approx(growth(rows, 0.5), rel=1e-6)
    same = np.tile([[0.6, 0.8, 0.0]], (50, 1))
    found = corpus_capacity(same, 7, 1.0, steps=400)
    assert found == pytest.approx(math.log(8.0), rel=0.01)
    assert found < 0.6 * statistics.capacity(7, 3, 1.0)
    assert corpus_capacity(same, 0, 1.0) == 0.0
    with pytest.raises(SettingsError, match="ridge above 0"):
        corpus_capacity(same, 7, 0.0)


@pytest.mark.parametrize("scorer", ["ridge", "newton"])
def test_a_known_corpus_lowers_the_level_and_keeps_the_reserve(scorer: str) -> None:
    """Items near a plane of eight dimensions: by dℓ nothing could be forced."""
    rng = np.random.default_rng(11)
    h = rng.normal(size=(400, 8)) * np.array([1.0, 1.0, *np.full(6, 0.02)])
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    budget = 30
    head = make_scorer(scorer, dim=8, classes=3, settings=ScorerSettings(ridge=0.2))
    plain = Reserve(share=0.8, floor=1e-6, reach=math.sqrt(2.0))
    gate = with_corpus_capacity(plain, SharedBlock(h, 3), budget, head)
    prior = 1.0 / math.sqrt(0.2)
    most = gate.most(budget, 8, prior)
    assert most < 0.75 * plain.most(budget, 8, prior)
    exact = growth(h * math.sqrt(1.0 if scorer == "ridge" else 0.5), 0.2)
    assert with_corpus_capacity(plain, SharedBlock(h, 3), 400, head).most(
        400, 8, prior
    ) == pytest.approx(exact)
    assert gate.most(2 * budget, 8, prior) == pytest.approx(2.0 * most)
    assert gate.most(budget // 2, 8, prior) == pytest.approx(most)
    assert gate.reach == pytest.approx(math.sqrt(2.0))
    learner = Learner(head, gate, budget=budget, horizon=400)
    assert len(growths(learner, h, 3, most, gate.reach * prior, 11)) >= 2


def test_nothing_is_held_where_no_round_can_be_forced() -> None:
    """The level is above every gap: all labels are free, at the price of the widest pair."""
    gate = Reserve(reach=math.sqrt(2.0))
    most = statistics.capacity(40, 4, 1.0)
    few = statistics.capacity(4, 4, 1.0)
    assert rules_level(few, 4, gate) > math.sqrt(2.0) > rules_level(most, 40, gate)
    square = statistics.reserve_square(few, 4, 0.6, 0)
    assert statistics.reserve_held(0.0, few, 4, 0.6, square, math.sqrt(2.0)) == 0.0
    held = held_by(gate, 0.0, most, 40, math.sqrt(2.0))
    assert held == pytest.approx(24.0)
    # on schedule, 3 of 4 labels and 3 of 4 rounds left: the price is 0.1 of 2/4
    view = a_view(1.0, 0.06, 0.5)
    assert gate.statistic(view, Clock(1, 4, 26, 100), REST) == pytest.approx(0.06 / 0.05)
    # the last label is free too
    late = Clock(3, 4, 76, 100)
    assert gate.statistic(view, late, REST) == pytest.approx(0.06 / 0.05)
    assert gate.statistic(a_view(1.41, 0.0, 0.5), late, REST) < 1.0
    # with many labels open nothing can be forced, and spending goes on
    waiting = Reserve(reach=math.sqrt(2.0), pending=24)
    assert waiting.statistic(view, Clock(10, 40, 26, 100), REST) == pytest.approx(0.06 / 0.05)


def test_ridge_learns_that_no_class_is_right_as_a_target_of_zero() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(6, 3))
    head = make_scorer("ridge", dim=3, classes=2, settings=ScorerSettings(ridge=0.7))
    learner = StudyLearner(head, Reserve(), budget=6, horizon=6)
    targets = np.zeros((6, 2))
    for t, h in enumerate(rows):
        inputs = SharedFeatures(h, 2)
        [decision] = learner.decide([str(t)], [inputs], [(0, 1)], asked=t)
        learner.adopt([decision.reserved()], [inputs])
        if t % 2:
            learner.learn_none(inputs)
        else:
            targets[t, t % 4 // 2] = 1.0
            learner.learn(decision.reserved(), inputs, Label(t % 4 // 2))
    exact = np.linalg.solve(0.7 * np.eye(3) + rows.T @ rows, rows.T @ targets).T
    np.testing.assert_allclose(head.theta, exact, atol=1e-12)
    assert head.learned == 6
    pairs = make_scorer("newton", dim=3, classes=None, settings=ScorerSettings())
    with pytest.raises(SettingsError, match="names no candidate"):
        StudyLearner(pairs, Reserve(), budget=6, horizon=6).learn_none(PairFeatures(rows))
