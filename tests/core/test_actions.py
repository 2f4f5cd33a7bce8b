"""Which candidate a scorer takes, and by how much: ties, optimism, margin and spread."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures
from stacksl.core.scorers import tie_argmax
from stacksl.types import Reward

from .scorer_cases import fresh


def test_ties_go_to_the_lowest_candidate_whatever_the_order() -> None:
    values = np.array([1.0, 3.0, 3.0 - 1e-10])
    assert tie_argmax(values, 3.0) == 1
    assert tie_argmax(values, 3.0, (5, 4, 2)) == 2
    assert tie_argmax(values, 1e-3, (5, 4, 2)) == 1
    view = fresh("ridge").bounds(PairFeatures(np.eye(5)), (4, 2, 3))
    assert view.choice == 1


def test_optimism_prefers_the_unknown_and_greed_the_known() -> None:
    inputs = PairFeatures(np.eye(5)[:2])
    greedy, hopeful = fresh("ridge"), fresh("ridge", action="ucb")
    for scorer in (greedy, hopeful):
        for _ in range(20):
            scorer.step(inputs, (0, 1), 0, Reward(0.1))
    assert greedy.bounds(inputs, (0, 1)).choice == 0
    assert hopeful.bounds(inputs, (0, 1)).choice == 1


def test_spread() -> None:
    scorer, inputs = fresh("ridge"), PairFeatures(np.eye(5))
    scorer.theta = np.array([1.0, 0.4, -2.0, 0.0, 0.0])
    view = scorer.bounds(inputs, (0, 1, 2))
    assert view.spread == pytest.approx(3.0 + 2.0 * view.radius)
