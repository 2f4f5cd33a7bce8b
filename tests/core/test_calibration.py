"""The paper's rules for c, the KL weight, ρ and η."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.blocks import PairFeatures
from stacksl.core.calibration import (
    calibrate_gate_scale,
    clip_at_quantile,
    clip_level,
    warmup_length,
    warmup_spreads,
)
from stacksl.core.learner import presented
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError

spread_lists = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30).map(np.array)


def stream(rounds: int, seed: int = 0) -> list[PairFeatures]:
    rows = np.random.default_rng(seed).normal(size=(rounds, 4, 6))
    sizes = np.linalg.norm(rows, axis=2, keepdims=True)
    lengths = np.random.default_rng([seed, 1]).uniform(0.3, 1.0, size=(rounds, 4, 1))
    return [PairFeatures(phi) for phi in rows / sizes * lengths]


@pytest.mark.parametrize(
    ("horizon", "length"), [(1, 1), (19, 1), (20, 1), (40, 2), (10_178, 500), (20_000, 500)]
)
def test_warmup_length(horizon: int, length: int) -> None:
    assert warmup_length(horizon) == length


def test_warmup_spreads_at_the_start_are_twice_the_largest_width() -> None:
    """At θ = 0: max UCB − min LCB = 2·radius·max‖φ‖/√ridge."""
    settings = ScorerSettings(ridge=0.25)
    scorer = make_scorer("sgd", dim=6, classes=None, settings=settings)
    rows = stream(7)
    shown = presented(rows, scorer, None)
    radius = scorer.bounds(rows[0], shown[0]).radius
    expected = [2 * radius * np.linalg.norm(x.phi, axis=1).max() / 0.5 for x in rows]
    assert warmup_spreads(scorer, rows, shown) == pytest.approx(expected)


@given(spread_lists, st.floats(0.1, 3.0))
def test_c_is_kappa_times_the_median_under_its_cap(spreads, kappa) -> None:
    scale = calibrate_gate_scale(spreads, kappa)
    assert scale == pytest.approx(min(kappa * np.median(spreads), 0.9 * spreads.min()))
    assert scale < spreads.min()


def test_a_spread_of_0_is_refused() -> None:
    with pytest.raises(SettingsError, match="smallest is 0"):
        calibrate_gate_scale(np.array([0.0, 1.0]))


@pytest.mark.parametrize("spreads", [[], [1.0, float("nan")]])
def test_an_unusable_warmup_is_refused(spreads) -> None:
    with pytest.raises(SettingsError, match="warm-up"):
        calibrate_gate_scale(np.array(spreads))


def test_clip_levels() -> None:
    losses = np.arange(1.0, 102.0)
    assert clip_at_quantile(losses) == pytest.approx(96.0)
    assert clip_at_quantile(losses, 0.9) == pytest.approx(91.0)
    assert clip_level(losses[:19], None) == math.inf
    assert clip_level(losses[:20], None) == 19.0
    assert clip_level(losses, 5.0) == 5.0
