"""The learner's round, with a scorer that writes down what it is asked to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from stacksl.core import Bounds, Margin
from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.gates.registry import LLF, First, make_gate
from stacksl.core.gates.rules import Clock
from stacksl.core.learner import Learner, presented
from stacksl.core.rng import uniforms
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl.types import Label
from stacksl_lab.baselines.gates import Contested

from ..learners import LLFStackSL, StackSL


@dataclass
class Noting:
    """A scorer with φ's first column as scores and its second as widths, and a diary."""

    name: str = "noting"
    learned: int = 0
    diary: list[tuple[Any, ...]] = field(default_factory=list)
    settings: ScorerSettings = field(default_factory=ScorerSettings)

    def scores(self, inputs: PairFeatures) -> np.ndarray:
        return inputs.phi[:, 0]

    def bounds(
        self, inputs: PairFeatures, presented: tuple[int, ...], given: np.ndarray | None = None
    ) -> Bounds:
        scores, widths = inputs.phi[list(presented)].T
        scores = scores if given is None else given[list(presented)]
        choice = int(np.argmax(scores))
        pairs = np.where(np.arange(len(scores)) == choice, 0.0, widths)
        policy = np.exp(scores) / np.exp(scores).sum()
        return Bounds(presented, scores, policy, widths, pairs, 2.0, 9, choice)

    def step(self, inputs: PairFeatures, presented, choice, label) -> None:
        self.diary.append(("step", presented, choice, label))

    def skip(self, inputs: PairFeatures, presented, choice) -> None:
        self.diary.append(("skip", presented, choice))

    def state(self) -> dict[str, np.ndarray]:
        return {"noted": np.array(len(self.diary))}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.diary = [("restored", int(state["noted"]))]


def item(*rows: tuple[float, float]) -> PairFeatures:
    return PairFeatures(np.array(rows, dtype=float))


THREE = item((0.0, 0.5), (2.0, 0.25), (1.0, 1.0))
ALL = (0, 1, 2)


def decide(learner: Learner, count: int = 1, asked: int = 0, shown=ALL) -> list:
    ids = [f"i{t}" for t in range(count)]
    return learner.decide(ids, [THREE] * count, [shown] * count, asked=asked)


def test_a_decision_is_the_record_of_its_round() -> None:
    learner = Learner(Noting(), Contested(width_scale=1.0), budget=2, horizon=9)
    [d] = decide(learner)
    assert (d.round, d.item, d.presented, d.choice) == (1, "i0", ALL, 1)
    assert d.score == 2.0
    assert d.probability == pytest.approx(math.exp(2) / (1 + math.exp(2) + math.exp(1)))
    assert d.statistic == 0.0  # max(0 − 2 + 0.5, 1 − 2 + 1)
    assert d.threshold == 0.0
    assert (d.status, d.reason) == ("skipped", "gate")
    assert d.state == d.skip_state == (0.0, 0.0, 0.0, 0.0)


def test_a_purchase_of_a_pool_has_the_numbers_of_a_round_and_changes_nothing() -> None:
    learner = Learner(Noting(), Contested(width_scale=1.0), budget=2, horizon=9)
    [skipped] = decide(learner)
    ranked = learner.rank("i0", THREE, None, asked=0)
    assert ranked == replace(skipped, threshold=-math.inf, reason="rank", status="wanted")
    assert (learner.round, learner.scorer.diary) == (0, [])


def test_an_item_of_a_pool_is_ranked_by_the_probabilities_that_are_given() -> None:
    learner = Learner(Noting(), Contested(width_scale=1.0), budget=2, horizon=9)
    ranked = learner.rank("i0", THREE, np.array([0.1, 0.2, 0.7]), asked=0)
    assert (ranked.round, ranked.choice, ranked.score, ranked.probability) == (1, 2, 0.7, 0.7)


def test_reasons_and_the_two_rules_above_every_gate() -> None:
    closed = LLF(1e9)
    assert [d.reason for d in decide(Learner(Noting(), closed, budget=3, horizon=3), 3)] == [
        "gate",
        "gate",
        "gate",
    ]
    unwilling = Contested(width_scale=1e-9)
    decisions = decide(Learner(Noting(), unwilling, budget=2, horizon=5), 5)
    assert [d.reason for d in decisions] == ["gate"] * 3 + ["must"] * 2
    assert [d.status for d in decisions] == ["skipped"] * 3 + ["wanted"] * 2
    decisions = decide(Learner(Noting(), First(), budget=2, horizon=5), 5)
    assert [d.reason for d in decisions] == ["gate", "gate", "spent", "spent", "spent"]
    assert [d.status for d in decisions] == ["wanted"] * 2 + ["skipped"] * 3
    decisions = decide(Learner(Noting(), First(), budget=2, horizon=5), 2, asked=1)
    assert [d.status for d in decisions] == ["wanted", "skipped"]


def test_a_statistic_that_is_given_takes_the_place_of_the_gates_own() -> None:
    learner = Learner(Noting(), Margin(), budget=2, horizon=9)
    learner.gate_state = (0.5, 0.0, 1.0, 3.0)
    own = learner.decide(["a"], [THREE], [ALL], asked=0)[0]
    low, high = learner.decide(["a", "b"], [THREE] * 2, [ALL] * 2, asked=0, statistics=[0.5, 0.7])
    assert (own.statistic, low.statistic, high.statistic) == (-1.0, 0.5, 0.7)
    assert (low.status, high.status) == ("skipped", "wanted")
    assert replace(own, statistic=0.5, state=low.state, skip_state=low.skip_state) == low
    assert low.state == learner.gate.advance(0.5, False, Clock(0, 2, 1, 9), learner.gate_state)


def test_the_uniform_of_a_round_is_its_own() -> None:
    learner = Learner(Noting(), make_gate("random"), budget=3, horizon=8, seed=4)
    u = uniforms(4, "gate", 8)
    assert [d.threshold for d in decide(learner, 8)] == u.tolist()
    learner.adopt(decide(learner, 5), [THREE] * 5)
    assert [d.threshold for d in decide(learner, 3, asked=1)] == u[5:].tolist()


def test_unasked_rounds_skip_and_run_the_kl_step_while_a_label_is_left() -> None:
    scorer = Noting()
    learner = LLFStackSL(scorer, budget=1, horizon=6, gate_scale=1e9, kl_on_skips=True)
    learner.adopt(decide(learner), [THREE])
    assert scorer.diary == [("step", ALL, 1, None), ("skip", ALL, 1)]
    scorer.diary.clear()
    learner.adopt(decide(learner, asked=1), [THREE])  # the budget is gone
    assert scorer.diary == [("skip", ALL, 1)]
    scorer.diary.clear()
    plain = LLFStackSL(scorer, budget=1, horizon=6, gate_scale=1e9)
    plain.adopt(decide(plain), [THREE])
    assert scorer.diary == [("skip", ALL, 1)]


def test_a_refused_round_and_those_behind_it_only_predict() -> None:
    scorer = Noting()
    learner = LLFStackSL(scorer, budget=5, horizon=6, gate_scale=0.0, kl_on_skips=True)
    want, after = decide(learner, 2)
    learner.adopt([want.refused(), replace(after, status="skipped")], [THREE, THREE])
    assert scorer.diary == [("skip", ALL, 1)] * 2


def test_in_the_literal_reading_the_kl_step_goes_with_the_purchase() -> None:
    scorer = Noting()
    learner = LLFStackSL(
        scorer, budget=3, horizon=6, gate_scale=1e9, reading="literal", kl_on_skips=True
    )
    [want] = decide(learner)
    assert want.status == "wanted"
    learner.adopt([want.reserved()], [THREE])
    assert scorer.diary == [("step", ALL, 1, None)]
    scorer.diary.clear()
    shut = LLFStackSL(
        scorer, budget=3, horizon=6, gate_scale=0.0, reading="literal", kl_on_skips=True
    )
    shut.adopt(decide(shut), [THREE])
    assert scorer.diary == [("skip", ALL, 1)]


@pytest.mark.parametrize("scorer", ["newton", "ridge", "sgd"])
@pytest.mark.parametrize("classes", [None, 6])
def test_what_a_follower_hides_does_not_change_what_a_label_teaches(scorer, classes) -> None:
    rng = np.random.default_rng(5)
    thetas = []
    made = [make_scorer(scorer, dim=4, classes=classes) for _ in range(2)]
    for one, top_k in zip(made, (None, 1), strict=True):
        rng = np.random.default_rng(5)
        learner = StackSL(one, horizon=30, top_k=top_k)
        for number in range(30):
            rows = rng.normal(size=(6, 4)) / 4
            inputs = PairFeatures(rows) if classes is None else SharedFeatures(rows[0], 6)
            shown = presented([inputs], one, top_k)
            [d] = learner.decide([str(number)], [inputs], shown, asked=number)
            learner.adopt([d.reserved()], [inputs])
            learner.learn(d, inputs, Label(int(rng.integers(6))))
        thetas.append(one.state()["theta"])
    np.testing.assert_array_equal(*thetas)


def test_a_gate_without_the_widths_it_needs_is_refused() -> None:
    class Bare(type(make_scorer("sgd", dim=4, classes=3))):  # type: ignore[misc]
        """Keeps no matrix."""

        def bounds(self, *given):
            view = super().bounds(*given)
            unknown = np.full(len(view.widths), math.nan)
            return replace(view, widths=unknown, pair_widths=unknown)

    def learner(gate) -> Learner:
        return Learner(Bare(4, 3, ScorerSettings()), gate, budget=1, horizon=2)

    item = SharedFeatures(np.ones(4) / 2, 3)
    for gate in (Contested(), LLF(1.0)):
        with pytest.raises(SettingsError, match=f"'{gate.name}' should give.*needs widths"):
            learner(gate).decide(["a"], [item], [ALL], asked=0)
    learner(Margin()).decide(["a"], [item], [ALL], asked=0)


class Odd(Margin):
    """A gate that gives what it is told to."""

    gives: ClassVar[dict[str, Any]] = {}

    def statistic(self, *given):
        return self.gives.get("statistic", 0.5)

    def threshold(self, *given):
        return self.gives.get("threshold", 0.1)

    def advance(self, *given):
        return self.gives.get("state", (0.0,) * 4)

    def start(self):
        return self.gives.get("start", (0.0,) * 4)


@pytest.mark.parametrize("wrong", [None, "yes", [0.5], math.nan])
@pytest.mark.parametrize("what", ["statistic", "threshold", "state", "start"])
def test_a_gate_that_gives_no_numbers_is_refused(monkeypatch, what, wrong) -> None:
    monkeypatch.setattr(Odd, "gives", {what: wrong})
    words = "'margin' should give (a|4) numbers? as its (statistic|threshold|state)"
    with pytest.raises(SettingsError, match=words):
        decide(Learner(Noting(), Odd(), budget=1, horizon=2), 1)
    if what in ("statistic", "start"):  # a pool reads nothing else of its gate
        with pytest.raises(SettingsError, match=words):
            Learner(Noting(), Odd(), budget=1, horizon=2).rank("a", THREE, None, asked=0)


def test_more_rounds_than_the_horizon_are_refused() -> None:
    learner = Learner(Noting(), First(), budget=1, horizon=2)
    with pytest.raises(SettingsError, match="made for 2 rounds, got round 3"):
        decide(learner, 3)


def test_a_refused_want_inside_a_block_is_a_skip_too() -> None:
    learner = Learner(Noting(), Margin(pace=0.1, adaptive=False), budget=2, horizon=8)
    want, after = decide(learner, 2)
    learner.adopt([want.refused(), after], [THREE, THREE])
    # the skip's state, then a round in which no label is left: the threshold stays
    assert learner.gate_state[0] == want.skip_state[0]
    assert learner.gate_state != after.state
    assert learner.round == 2


def test_a_late_answer_is_learned_at_the_current_theta() -> None:
    """In two orders the same answers give the same ridge estimate, whichever was late."""
    rng = np.random.default_rng(0)
    rows = [PairFeatures(phi / 3) for phi in rng.normal(size=(3, 3, 4))]
    thetas = []
    for order in ([0, 1, 2], [2, 0, 1]):
        learner = StackSL(make_scorer("ridge", dim=4, classes=None), horizon=3)
        posted = [d.reserved() for d in learner.decide("abc", rows, [ALL] * 3, asked=0)]
        learner.adopt(posted, rows)
        for t in order:
            learner.learn(posted[t], rows[t], Label(t))
        assert learner.scorer.learned == 3
        thetas.append(learner.scorer.state()["theta"])
    assert thetas[0] == pytest.approx(thetas[1], abs=1e-12)
