"""Designs blind to the answers: section 3.2 of docs/theory.md, for the gate `width`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures
from stacksl.core.scorers import ScorerSettings
from stacksl_lab.baselines.gates import Width
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import Reward, RewardRidge

CANDIDATES, ROUNDS, BUDGET, DELTA, NOISE = 5, 200, 120, 0.05, 1.0


@dataclass
class Played:
    """What a run of `width` shows.

    Attributes:
        along: the largest |Dᵀ(θ − θ*)|/‖D‖ over rounds and pairs.
        ellipsoid: the largest ‖θ − θ*‖ in V over rounds.
        asked: what was played in asked rounds, by round.
        own: the labels that the gate asked, not the last rule.
        skips: the largest regret of a skipped round.
        regret: Σ r_t of the predictions, asked rounds included.
    """

    along: float
    ellipsoid: float
    asked: dict[int, int]
    own: int
    skips: float
    regret: float


def level(dim: int, scale: float) -> float:
    return scale * math.sqrt(dim * math.log1p(BUDGET / dim) / BUDGET)


def blind_run(seed: int, dim: int, scale: float = math.sqrt(8.0), noise_seed: int = 0) -> Played:
    """The learner with `width` on candidates fixed in advance; rewards of the end asked about."""
    rng, noise = np.random.default_rng([seed, dim]), np.random.default_rng([noise_seed, seed, dim])
    truth = rng.normal(size=dim)
    truth /= np.linalg.norm(truth)
    phi = rng.normal(size=(ROUNDS, CANDIDATES, dim))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    scorer = RewardRidge(dim, ScorerSettings())
    gate = Width(scale=scale)
    learner = StudyLearner(scorer, gate, asks_ucb=True, budget=BUDGET, horizon=ROUNDS)
    first, second = np.triu_indices(CANDIDATES, 1)
    found = Played(0.0, 0.0, {}, 0, 0.0, 0.0)
    for t, rows in enumerate(phi):
        inverse, error = scorer.confidence.gram_inv, scorer.theta - truth
        apart = rows[first] - rows[second]
        widths = np.sqrt(np.einsum("ij,jk,ik->i", apart, inverse, apart))
        found.along = max(found.along, float(np.abs(apart @ error / widths).max()))
        found.ellipsoid = max(found.ellipsoid, math.sqrt(error @ np.linalg.solve(inverse, error)))
        inputs, shown = PairFeatures(rows), tuple(range(CANDIDATES))
        values = rows @ truth
        loss = float(values.max() - values[scorer.bounds(inputs, shown).choice])
        found.regret += loss
        [decision] = learner.decide([str(t)], [inputs], [shown], asked=len(found.asked))
        if decision.status == "wanted":
            decision = decision.reserved()
            found.asked[t] = decision.choice
            found.own += decision.reason == "gate"
        else:
            found.skips = max(found.skips, loss)
        learner.adopt([decision], [inputs])
        if decision.asked:
            value = float(values[decision.choice] + NOISE * noise.normal())
            learner.learn(decision, inputs, Reward(value))
    return found


def gamma() -> float:
    """σ√(2 log(K²T/δ)) + √λ·S with λ = S = 1."""
    return NOISE * math.sqrt(2.0 * math.log(CANDIDATES**2 * ROUNDS / DELTA)) + 1.0


@pytest.mark.parametrize("dim", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_all_pairs_are_within_gamma_and_regret_within_its_bound(dim: int) -> None:
    cost = gamma() * level(dim, math.sqrt(8.0))
    for seed in range(2):
        played = blind_run(seed, dim)
        assert played.along <= gamma()
        assert 0 < played.own < BUDGET, "the gate never uses up the budget"
        assert len(played.asked) == BUDGET, "the last rule does"
        assert played.skips <= cost
        assert played.regret <= cost * (ROUNDS + BUDGET / 4)


def test_neither_asking_nor_what_is_asked_about_depends_on_answers() -> None:
    for seed in range(2):
        one, other = (blind_run(seed, 4, 0.9, noise_seed) for noise_seed in (0, 1))
        assert one.asked == other.asked
        assert one.own > 20
        assert one.regret != other.regret, "the answers did differ"
