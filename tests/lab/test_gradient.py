"""`sgd` of studies: several steps a label, a moving reference, a KL target and a clip by median."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.blocks import PairFeatures
from stacksl.types import Label
from stacksl_lab.gradient import (
    StudyGradient,
    StudySettings,
    adjusted_kl_weight,
    clip_at_median,
    make_study_scorer,
)

ALL = (0, 1, 2, 3)


def fresh(dim: int = 5, **settings: Any) -> StudyGradient:
    made = make_study_scorer("sgd", dim=dim, classes=None, settings=StudySettings(**settings))
    assert isinstance(made, StudyGradient)
    return made


def pair_inputs(rng: np.random.Generator) -> PairFeatures:
    phi = rng.normal(size=(4, 5))
    return PairFeatures(phi / np.linalg.norm(phi, axis=1, keepdims=True))


def test_previous_reference_has_no_pull_in_one_step_and_some_in_three() -> None:
    inputs = pair_inputs(np.random.default_rng(2))
    for inner_steps in (1, 3):
        free = fresh(reference="previous", kl_weight=0.0, inner_steps=inner_steps)
        held = fresh(reference="previous", kl_weight=5.0, inner_steps=inner_steps)
        for scorer in (free, held):
            scorer.step(inputs, ALL, 0, Label(1))
        assert np.array_equal(free.theta, held.theta) == (inner_steps == 1)
        before = held.theta.copy()
        if inner_steps == 1:
            held.step(inputs, ALL, 0, None)
            np.testing.assert_allclose(held.theta, before, atol=1e-15)


def test_a_kl_weight_that_is_adjusted_never_makes_theta_diverge() -> None:
    """Against the frozen start KL only grows as labels come in: the pull stays below 1/η."""
    rng = np.random.default_rng(11)
    scorer = fresh(dim=4, learning_rate=0.1, kl_target=1e-4)
    for _ in range(400):
        phi = rng.normal(size=(3, 4))
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        scorer.step(PairFeatures(phi), (0, 1, 2), 0, Label(int(np.argmax(phi[:, 0]))))
    assert np.abs(scorer.theta).max() < 2.0
    assert scorer.kl_weight == pytest.approx(10.0)


def test_ema_reference_follows_theta() -> None:
    rng = np.random.default_rng(4)
    scorer, reference = fresh(reference="ema", ema_decay=0.5), np.zeros(5)
    for _ in range(5):
        scorer.step(pair_inputs(rng), ALL, 0, Label(2))
        reference = 0.5 * reference + 0.5 * scorer.theta
    np.testing.assert_allclose(scorer.reference, reference, atol=1e-15)


def test_the_clip_level_is_a_multiple_of_the_median() -> None:
    rng = np.random.default_rng(6)
    scorer = fresh(clip_multiple=3.0, learning_rate=0.5)
    for turn in range(300):
        assert np.isinf(scorer._level()) == (turn < 20)
        scorer.step(pair_inputs(rng), ALL, 0, Label(int(rng.integers(4))))
    assert scorer._level() == 3.0 * np.median(scorer._losses)
    assert clip_at_median(np.arange(1.0, 102.0), 2.0) == pytest.approx(102.0)


def test_a_moving_scorer_comes_back_bit_for_bit() -> None:
    settings = {"reference": "ema", "kl_target": 1e-3, "inner_steps": 2, "clip_multiple": 1.0}
    one, other = fresh(**settings), fresh(**settings)
    rng = np.random.default_rng(7)
    for _ in range(30):
        one.step(pair_inputs(rng), ALL, 0, Label(1))
    other.restore(one.state())
    assert other.reference.any()
    assert other.kl_weight != 0.1
    inputs = pair_inputs(rng)
    for scorer in (one, other):
        scorer.step(inputs, ALL, 0, Label(2))
    for key, array in one.state().items():
        assert np.array_equal(array, other.state()[key]), key


@given(st.floats(-3, 3), st.floats(-4, -2))
def test_the_kl_weight_settles_where_the_observed_kl_is_near_its_target(start, goal) -> None:
    """A step's KL falls as 1/weight²: the trust region of a quadratic."""
    weight, target = 10.0**start, 10.0**goal
    for _ in range(100):
        observed = 0.01 / (1.0 + weight) ** 2
        weight = adjusted_kl_weight(weight, observed, target)
    observed = 0.01 / (1.0 + weight) ** 2
    assert observed <= 1.5 * target
    assert observed >= target / 1.5 or weight <= 1e-4
