"""The learner of studies: optimism in asked rounds alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures
from stacksl.core.confidence import radius
from stacksl.core.gates.registry import First
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import Reward, RewardRidge


def test_asked_rounds_hope_where_a_reward_is_bought() -> None:
    """After φ = e₁ was rewarded once, e₁ has the largest score and e₂ the largest UCB."""
    scorer = RewardRidge(2, ScorerSettings())
    rows = PairFeatures(np.eye(2))
    scorer.reward(rows, 0, Reward(0.2))
    learner = StudyLearner(scorer, First(), asks_ucb=True, budget=1, horizon=2)
    wanted, skipped = learner.decide(["a", "b"], [rows] * 2, [(0, 1)] * 2, asked=0)
    assert (wanted.status, wanted.choice) == ("wanted", 1)
    assert (skipped.status, skipped.choice) == ("skipped", 0)
    reach = radius(1.0, 2, 1, 1.0, 0.05, 1.0)
    assert (wanted.score, wanted.upper) == pytest.approx((0.0, reach))
    assert (skipped.score, skipped.upper) == pytest.approx((0.1, 0.1 + reach * math.sqrt(0.5)))
    # The gate score is the greedy action's in both: −0.1 + √2·sqrt(1/2 + 1).
    assert wanted.gate_score == skipped.gate_score == pytest.approx(-0.1 + math.sqrt(3.0))


def test_optimism_in_asked_rounds_needs_a_greedy_action() -> None:
    scorer = make_scorer("ridge", dim=2, classes=None, settings=ScorerSettings(action="ucb"))
    with pytest.raises(SettingsError, match="asks_ucb"):
        StudyLearner(scorer, First(), asks_ucb=True, budget=1, horizon=2)
