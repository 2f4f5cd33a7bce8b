"""What must hold of the learner whatever the stream, the gate and the budget.

Streams are arrays with an oracle that answers at once; `play` is the round of the pseudo-code
without a ledger: a want is granted while the budget lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stacksl.core import GATES, Margin
from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.learner import Learner, presented
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.types import Decision, Label
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.rewards import Feedback

from ..learners import LLFStackSL, StackSL

DIM, CANDIDATES = 5, 4
PLAYED = (*GATES, "uniform", "adpo", "reserve")


def pair_stream(rounds: int, seed: int) -> list[PairFeatures]:
    rows = np.random.default_rng(seed).normal(size=(rounds, CANDIDATES, DIM))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return [PairFeatures(phi) for phi in rows]


def class_stream(rounds: int, seed: int) -> list[SharedFeatures]:
    rows = np.random.default_rng(seed).normal(size=(rounds, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [SharedFeatures(h, CANDIDATES) for h in rows]


def labels_of(rounds: int, seed: int) -> list[Label]:
    drawn = np.random.default_rng([seed, 1]).integers(CANDIDATES, size=rounds)
    return [Label(int(index)) for index in drawn]


def play(learner: Any, stream: list, answers: Sequence[Feedback], block: int = 1) -> list[Decision]:
    """Every round of the stream, `block` rounds decided at a time, answers learned at once."""
    played: list[Decision] = []
    start = learner.round
    for low in range(start, len(stream), block):
        rows = stream[low : low + block]
        shown = presented(rows, learner.scorer, learner.top_k)
        asked = sum(d.asked for d in played)
        ids = [f"item {low + i}" for i in range(len(rows))]
        posted = []
        for decision in learner.decide(ids, rows, shown, asked=asked):
            if decision.status == "wanted":
                granted = asked < learner.budget
                asked += granted
                decision = decision.reserved() if granted else decision.refused()
            posted.append(decision)
        learner.adopt(posted, rows)
        for offset, decision in enumerate(posted):
            if decision.asked:
                learner.learn(decision, rows[offset], answers[low + offset])
        played += posted
    return played


def same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert value.tobytes() == other[key].tobytes(), key


SETTINGS = {
    "sgd as printed": (
        "sgd",
        ScorerSettings(
            track="all",
            radius_counts="rounds",
            action="ucb",
            clip="literal",
            clip_level=5.0,
            kl_weight=0.5,
        ),
    ),
    "sgd with the previous reference": ("sgd", ScorerSettings(reference="previous")),
    "ridge": ("ridge", ScorerSettings()),
    "ridge, ucb": ("ridge", ScorerSettings(action="ucb", track="all", radius_counts="rounds")),
    "newton": ("newton", ScorerSettings()),
}


@pytest.mark.parametrize("classes", [None, CANDIDATES], ids=["pairs", "classes"])
@pytest.mark.parametrize("kl_on_skips", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("top_k", [None, 2])
def test_llf_with_c_0_and_a_full_budget_is_always(setting, kl_on_skips, classes, top_k) -> None:
    """Bit for bit: all but the gate's own numbers (statistic, threshold, reason), which differ."""
    rounds = 40
    name, scorer_settings = SETTINGS[setting]
    stream = pair_stream(rounds, 3) if classes is None else class_stream(rounds, 3)
    answers = labels_of(rounds, 3)

    def fresh() -> Any:
        return make_scorer(name, dim=DIM, classes=classes, settings=scorer_settings)

    options = {"seed": 1, "kl_on_skips": kl_on_skips, "top_k": top_k}
    one = LLFStackSL(fresh(), budget=rounds, horizon=rounds, gate_scale=0.0, **options)
    other = StackSL(fresh(), horizon=rounds, **options)
    ours, theirs = play(one, stream, answers), play(other, stream, answers)

    own = {"statistic": 0.0, "threshold": 0.0, "reason": ""}
    assert [replace(d, **own) for d in ours] == [replace(d, **own) for d in theirs]
    assert all(d.asked for d in ours)
    same_state(one.state(), other.state())
    assert np.abs(one.scorer.state()["theta"]).max() > 0


def gate_named(name: str) -> Any:
    return make_gate(name, gate_scale=3.0) if name == "llf" else make_gate(name)


@st.composite
def games(draw: st.DrawFn, gates: tuple[str, ...] = PLAYED) -> tuple:
    horizon = draw(st.integers(1, 40))
    return (
        draw(st.sampled_from(gates)),
        draw(st.integers(0, horizon)),
        horizon,
        draw(st.integers(1, 7)),
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from(["ridge", "newton", "sgd"])),
    )


@given(games())
@settings(max_examples=150, deadline=None)
def test_asked_never_exceeds_the_budget_and_every_gate_but_llf_uses_it_up(game) -> None:
    name, budget, horizon, block, seed, scorer = game
    learner = Learner(
        make_scorer(scorer, dim=DIM, classes=None),
        gate_named(name),
        budget=budget,
        horizon=horizon,
        seed=seed,
    )
    played = play(learner, pair_stream(horizon, seed), labels_of(horizon, seed), block)
    wanted = sum(d.asked for d in played)
    assert not any(d.status == "refused" for d in played)
    assert wanted <= budget
    if learner.gate.exact_spend:
        assert wanted == budget
    for d in played:
        by_gate = d.reason == "gate"
        assert not by_gate or d.asked == (d.statistic > d.threshold)
        assert d.reason != "must" or d.asked
        assert d.reason != "spent" or not d.asked


@given(games())
@settings(max_examples=60, deadline=None)
def test_decide_changes_nothing(game) -> None:
    name, budget, horizon, block, seed, scorer = game
    learner = Learner(
        make_scorer(scorer, dim=DIM, classes=None),
        gate_named(name),
        budget=budget,
        horizon=horizon + block,
        seed=seed,
    )
    stream = pair_stream(horizon, seed)
    asked = sum(d.asked for d in play(learner, stream, labels_of(horizon, seed)))
    before = learner.state()
    rows = pair_stream(block, seed + 1)
    shown = presented(rows, learner.scorer, learner.top_k)
    ids = [str(i) for i in range(block)]
    first = learner.decide(ids, rows, shown, asked=asked)
    second = learner.decide(ids, rows, shown, asked=asked)
    assert first == second
    same_state(before, learner.state())


@given(games(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_permuting_candidates_permutes_everything(game, random) -> None:
    name, budget, horizon, block, seed, scorer = game
    horizon = min(horizon, 15)
    budget = min(budget, horizon)
    stream, answers = pair_stream(horizon, seed), labels_of(horizon, seed)
    orders = [random.sample(range(CANDIDATES), CANDIDATES) for _ in range(horizon)]
    moved = [PairFeatures(x.phi[order]) for x, order in zip(stream, orders, strict=True)]
    heard = [Label(order.index(a.index)) for a, order in zip(answers, orders, strict=True)]

    def learner() -> Learner:
        made = make_scorer(scorer, dim=DIM, classes=None)
        for inputs in pair_stream(3, seed + 1):  # away from θ = 0, where all scores tie
            made.step(inputs, tuple(range(CANDIDATES)), 0, Label(0))
        return Learner(made, gate_named(name), budget=budget, horizon=horizon, seed=seed)

    plain = play(learner(), stream, answers, block)
    permuted = play(learner(), moved, heard, block)
    if name in (
        "llf",
        "margin",
        "contested",
        "adpo",
    ):  # a gate on the fence may fall to either side
        assume(all(abs(d.statistic - d.threshold) > 1e-9 for d in plain))
    for order, ours, theirs in zip(orders, permuted, plain, strict=True):
        assert order[ours.choice] == theirs.choice
        assert ours.asked == theirs.asked
        for field in ("score", "probability", "statistic"):
            expected = pytest.approx(getattr(theirs, field), rel=1e-9, abs=1e-12)
            assert getattr(ours, field) == expected, field


@given(games(), st.integers(1, 40))
@settings(max_examples=80, deadline=None)
def test_a_block_decides_as_single_rounds_do_when_nothing_is_learned_between(game, size) -> None:
    name, budget, horizon, _, seed, scorer = game
    stream = pair_stream(horizon, seed)

    def learner() -> Learner:
        made = make_scorer(scorer, dim=DIM, classes=None)
        return Learner(made, gate_named(name), budget=budget, horizon=horizon, seed=seed)

    def silent(learner: Learner, block: int) -> list[Decision]:
        played: list[Decision] = []
        for low in range(0, horizon, block):
            rows = stream[low : low + block]
            shown = presented(rows, learner.scorer, learner.top_k)
            asked = sum(d.asked for d in played)
            decided = learner.decide([str(low)] * len(rows), rows, shown, asked=asked)
            posted = [d.reserved() if d.status == "wanted" else d for d in decided]
            learner.adopt(posted, rows)
            played += [replace(d, item="") for d in posted]
        return played

    one, many = learner(), learner()
    assert silent(one, 1) == silent(many, size)
    assert one.gate_state == many.gate_state
    assert one.round == many.round == horizon


@given(games(), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_restored_learner_goes_on_bit_for_bit(game, cut) -> None:
    name, budget, horizon, _, seed, scorer = game
    cut = min(cut, horizon)
    stream, answers = pair_stream(horizon, seed), labels_of(horizon, seed)

    def learner() -> Learner:
        made = make_scorer(scorer, dim=DIM, classes=None)
        return Learner(made, gate_named(name), budget=budget, horizon=horizon, seed=seed)

    whole = learner()
    undisturbed = play(whole, stream, answers)
    half = learner()
    early = play(half, stream[:cut], answers)
    resumed = learner()
    resumed.restore(half.state())
    asked = sum(d.asked for d in early)
    for t in range(cut, horizon):
        rows = stream[t : t + 1]
        [decision] = resumed.decide([f"item {t}"], rows, [tuple(range(CANDIDATES))], asked=asked)
        if decision.status == "wanted":
            decision = decision.reserved()
            asked += 1
        resumed.adopt([decision], rows)
        if decision.asked:
            resumed.learn(decision, rows[0], answers[t])
        assert decision == undisturbed[t]
    same_state(whole.state(), resumed.state())


def test_the_paced_margin_keeps_its_recursion() -> None:
    """Threshold and decisions against the rule written out a second time."""
    horizon, budget, pace = 300, 60, 0.01
    stream = pair_stream(horizon, 4)
    learner = Learner(
        make_scorer("newton", dim=DIM, classes=None),
        Margin(pace=pace, adaptive=False),
        budget=budget,
        horizon=horizon,
    )
    played = play(learner, stream, labels_of(horizon, 4))
    level, left = None, budget
    for d in played:
        rounds_left = horizon - d.round + 1
        if level is None:
            asks, level = True, d.statistic
        else:
            assert d.threshold == pytest.approx(level, abs=1e-12)
            asks = left > 0 and (left >= rounds_left or d.statistic > d.threshold)
        assert d.asked == asks
        level += pace * (asks - left / rounds_left)
        left -= asks
    assert left == 0
