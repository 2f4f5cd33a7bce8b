"""What a scorer says of information and widths, each against a second computation."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core import Clock
from stacksl.core.blocks import PairFeatures
from stacksl.core.gates.registry import Information
from stacksl_lab.baselines import statistics

from .scorer_cases import taught

REST = (0.0, 0.0, 0.0, 0.0)
M, D = 5, 6


def statistic(gate, view) -> float:
    return gate.statistic(view, Clock(3, 20, 7, 90), REST)


def test_the_information_of_newton_is_to_first_order_the_growth_of_log_det_h() -> None:
    scorer, rows, view = taught("newton")
    policy = view.probabilities
    mean = policy @ rows
    fisher = sum(p * np.outer(r - mean, r - mean) for p, r in zip(policy, rows, strict=True))
    growth = np.linalg.slogdet(np.eye(D) + 1e-4 * fisher @ scorer.confidence.gram_inv)[1]
    assert growth == pytest.approx(1e-4 * statistic(Information(), view), rel=1e-3)


def test_rows_that_coincide_tell_exactly_nothing() -> None:
    scorer, rows, _ = taught("newton")
    alike = PairFeatures(np.repeat(rows[:1], M, axis=0))
    assert scorer.bounds(alike, tuple(range(M))).information == 0.0
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
