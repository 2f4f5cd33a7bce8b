"""The paper's gate and its follower: sections 7 and 8 of docs/theory.md by numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stacksl.core import Gate
from stacksl.core.blocks import PairFeatures
from stacksl.core.confidence import radius
from stacksl.core.gates.registry import LLF, Always, First
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.types import Decision, Label
from stacksl_lab.baselines.gates import StudyLLF
from stacksl_lab.learner import StudyLearner
from stacksl_lab.likelihood import LikelihoodSet, label_loss, mixture_loss
from stacksl_lab.rewards import Feedback, Reward, RewardRidge


def rounds_of(
    learner: Any,
    phi: np.ndarray,
    feedback: Callable[[int, int], Feedback],
    watch: Callable[[], None] = lambda: None,
) -> list[Decision]:
    """The (T, K, d) stream `phi` played by `learner`; `feedback` is of a round and a choice."""
    shown, asked, played = tuple(range(phi.shape[1])), 0, []
    for t, rows in enumerate(phi):
        block = [PairFeatures(rows)]
        [decision] = learner.decide([str(t)], block, [shown], asked=asked)
        if decision.status == "wanted":
            decision = decision.reserved()
        learner.adopt([decision], block)
        if decision.asked:
            asked += 1
            learner.learn(decision, block[0], feedback(t, decision.choice))
        played.append(decision)
        watch()
    return played


def play(
    gate: Gate, phi: np.ndarray, truth: np.ndarray, settings: ScorerSettings, budget: int, seed: int
) -> list[Decision]:
    """Ridge under rewards on the (T, K, d) stream `phi`."""
    scorer = RewardRidge(phi.shape[2], settings)
    learner = StudyLearner(scorer, gate, budget=budget, horizon=len(phi))
    noise = settings.noise * np.random.default_rng([seed, 1]).normal(size=len(phi))
    return rounds_of(learner, phi, lambda t, x: Reward(float(phi[t, x] @ truth + noise[t])))


def first_spread(ridge: float, settings: ScorerSettings) -> float:
    return 2.0 * radius(settings.noise, 4, 0, ridge, 0.05, settings.norm_bound) / math.sqrt(ridge)


def test_a_radius_that_counts_rounds_opens_the_gate_late_and_once() -> None:
    """Above the step the same B labels in a row, from the round at which 2β_t L/√λ passes c."""
    rng = np.random.default_rng(4)
    phi = rng.normal(size=(400, 5, 4))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    settings = ScorerSettings(noise=0.3, action="ucb", radius_counts="rounds")
    gate = LLF(gate_scale=1.3 * first_spread(1.0, settings))
    asked = np.flatnonzero([d.asked for d in play(gate, phi, rng.normal(size=4), settings, 30, 4)])
    grown = [2.0 * radius(0.3, 4, t, 1.0, 0.05, settings.norm_bound) for t in range(400)]
    opens = int(np.argmax(np.array(grown) > gate.gate_scale))
    assert opens > 3
    assert abs(int(asked[0]) - opens) <= 1, "whether the round itself is counted is a convention"
    assert list(asked) == list(range(asked[0], asked[0] + 30))


@pytest.mark.parametrize("counts", ["learned", "rounds"])
@pytest.mark.parametrize("reading", ["else", "literal"])
@pytest.mark.parametrize("ridge", [0.003, 2.0])
def test_when_the_papers_gate_is_first_and_when_it_never_asks(
    ridge: float, reading: str, counts: str
) -> None:
    """Proposition 1 for both readings and both radii: just inside the conditions and outside."""
    rng, budget = np.random.default_rng(9), 25
    phi, truth = sphere_rows(rng, 200, 4), rng.normal(size=4)
    settings = ScorerSettings(noise=0.3, ridge=ridge, action="ucb", radius_counts=counts)  # type: ignore[arg-type]

    def asked(scale: float, reading: str = reading) -> list[bool]:
        gate = StudyLLF(gate_scale=scale, reading=reading)  # type: ignore[arg-type]
        return [d.asked for d in play(gate, phi, truth, settings, budget, 9)]

    def spreads(scale: float) -> np.ndarray:
        played = play(LLF(gate_scale=scale), phi, truth, settings, budget, 9)
        return np.array([d.statistic for d in played])

    first, never = spreads(0.0)[:budget] * np.sqrt(np.arange(1, budget + 1)), spreads(1e9)
    edges = (first.min(), never.max()) if reading == "else" else (first.max(), never.min())
    opens, shuts = edges
    step = -1e-6 if reading == "else" else 1e-6
    wanted = [t < budget for t in range(200)]
    assert asked(opens * (1 + step)) == wanted
    assert asked(opens * (1 - step)) != wanted
    assert not any(asked(shuts * (1 - step)))
    assert any(asked(shuts * (1 + step)))
    if ridge >= 1.0 and counts == "learned" and reading == "else":
        assert opens == pytest.approx(shuts), "Proposition 2: nothing in between"
    elif reading == "else" and (ridge < 0.01 or counts == "rounds"):
        assert opens < 0.999 * shuts
        middle = asked(0.5 * (opens + shuts))
        assert any(middle)
        assert middle != wanted


def sphere_rows(rng: np.random.Generator, rounds: int, dim: int) -> np.ndarray:
    rows = rng.normal(size=(rounds, 5, dim))
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def test_at_a_small_ridge_the_papers_gate_skips_the_known_and_asks_about_the_new() -> None:
    """Proposition 4: two directions; the second half's is asked at once, the first's is skipped."""
    phi = np.zeros((200, 2, 2))
    phi[:100, :, 0] = phi[100:, :, 1] = [1.0, -1.0]
    settings = ScorerSettings(noise=0.3, ridge=1e-4, norm_bound=0.1, action="ucb")
    spread = 2.0 * radius(0.3, 2, 0, 1e-4, 0.05, 0.1) / 1e-2
    played = play(LLF(gate_scale=0.9 * spread), phi, np.array([0.05, -0.05]), settings, 40, 1)
    asked = np.flatnonzero([d.asked for d in played])
    assert 0 < (asked < 100).sum() < 40
    assert 100 in asked
    theirs = play(First(), phi, np.array([0.05, -0.05]), settings, 40, 1)
    assert not any(d.asked for d in theirs[100:])


@pytest.mark.parametrize("counts", ["learned", "rounds"])
@pytest.mark.parametrize("scale", [0.5, 1.2, 5.0])
def test_a_follower_makes_the_papers_gate_lose_all_rounds_after_its_labels(
    scale: float, counts: str
) -> None:
    """Section 6, λ ≥ L²: ±e_1 until B labels are bought, then ±e_2, whose sign stays unknown.

    In the mean over the signs the choice costs m on each round without a label of its coordinate.
    """
    horizon, budget, size = 120, 60, 0.5
    settings = ScorerSettings(noise=0.3, action="ucb", radius_counts=counts, norm_bound=1.0)  # type: ignore[arg-type]
    spread = 2.0 * radius(0.3, 2, 0, 1.0, 0.05, 1.0)
    total = 0.0
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        truth, moved = size * np.array(signs, dtype=float), horizon
        for _ in range(2):  # once to see when the labels are spent, then with that follower
            phi = np.zeros((horizon, 2, 2))
            phi[:moved, :, 0] = phi[moved:, :, 1] = [1.0, -1.0]
            played = play(LLF(gate_scale=scale * spread), phi, truth, settings, budget, 2)
            asked = np.flatnonzero([d.asked for d in played])
            moved = int(asked[-1]) + 1 if len(asked) == budget else horizon
        if len(asked):
            assert list(asked) == list(range(asked[0], min(asked[0] + budget, horizon)))
        values = phi @ truth
        got = values[np.arange(horizon), [d.choice for d in played]]
        total += float((values.max(axis=1) - got).sum()) / 4
    assert total >= size * (horizon - budget) - 1e-9


@pytest.mark.parametrize(("action", "stuck"), [("greedy", True), ("ucb", False)])
def test_greedy_under_rewards_can_stay_wrong_for_ever(action: str, stuck: bool) -> None:
    """T6: e_1 and e_2 with true scores 0.5 and 1; the other arm is looked at only by UCB."""
    phi = np.broadcast_to(np.eye(2), (200, 2, 2))
    settings = ScorerSettings(noise=1e-9, action=action)  # type: ignore[arg-type]
    played = play(Always(), phi, np.array([0.5, 1.0]), settings, 200, 0)
    wrong = sum(d.choice == 0 for d in played)
    assert (wrong == 200) is stuck
    assert stuck or wrong < 100


# Confidence sets, losses and prices of docs/theory.md by numbers --------------------------------


@pytest.mark.parametrize(("norm", "held"), [(2.0, True), (9.6, True), (9.8, False), (40.0, False)])
def test_the_ellipsoid_of_newton_is_false_after_one_label_of_a_large_truth(
    norm: float, held: bool
) -> None:
    """Section 4: d = 1, candidates ±1, λ = 1; the label is the better one but for e^(−2S)."""
    scorer = make_scorer("newton", dim=1, classes=None, settings=ScorerSettings(norm_bound=norm))
    inputs = PairFeatures(np.array([[1.0], [-1.0]]))
    scorer.step(inputs, (0, 1), 0, Label(0))
    state = scorer.state()
    assert state["theta"] == pytest.approx([0.5])
    assert 1.0 / state["gram_inv"][0] == pytest.approx([1.786], abs=5e-4)
    reach = scorer.bounds(inputs, (0, 1)).radius
    assert reach == pytest.approx(2.585 + norm, abs=5e-4)
    error = math.sqrt(1.0 / float(state["gram_inv"][0, 0])) * (norm - 0.5)
    assert (error <= reach) is held
    label = label_loss([inputs], [(0, 1)], [0])
    assert LikelihoodSet.of(label, norm, 0.05).contains(np.array([norm]))


def test_the_mixtures_set_keeps_its_promise_whoever_chooses_the_items() -> None:
    """θ* is drawn from the mixture, so that at most δ = 1/2 of the runs ever lose it, and some do.

    A gate that looks at the answers stops buying where the set has lost θ*, and goes on elsewhere:
    the worst that a choice of items can do.
    """
    rng, runs, lost = np.random.default_rng(0), 80, 0
    for _ in range(runs):
        truth = rng.normal(size=2)
        bought: list[tuple[PairFeatures, int]] = []
        out = False
        while not out and len(bought) < 12:
            inputs = PairFeatures(rng.normal(size=(3, 2)))
            gold = int((inputs.phi @ truth + rng.gumbel(size=3)).argmax())
            bought.append((inputs, gold))
            items, golds = zip(*bought, strict=True)
            loss = label_loss(items, [(0, 1, 2)] * len(items), golds)
            out = bool(loss.value(truth) > mixture_loss(loss, 1.0) + math.log(2.0))
        lost += out
    assert 0 < lost <= 0.5 * runs
