"""What a scorer refuses or does not read: settings, names, features and feedback."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.scorers.base import LEAST_RIDGE
from stacksl.errors import FeatureError, SettingsError
from stacksl.runs.settings.resolve import resolve
from stacksl.types import Label

from .scorer_cases import ALL, fresh, pair_inputs, shared_inputs


def test_a_ridge_below_the_floor_is_refused_in_a_run() -> None:
    below = math.nextafter(LEAST_RIDGE, 0.0)
    assert resolve({"scorer.ridge": LEAST_RIDGE}).settings.scorer.ridge == LEAST_RIDGE
    with pytest.raises(
        SettingsError, match=r"scorer.ridge must be greater than or equal to 0\.000001"
    ):
        resolve({"scorer.ridge": below})


def test_make_scorer_refuses_what_cannot_be() -> None:
    with pytest.raises(SettingsError, match="did you mean 'newton'"):
        fresh("newtn")


@pytest.mark.parametrize("name", ["ridge", "newton"])
@pytest.mark.parametrize("classes", [None, 4])
def test_settings_of_the_gradient_step_do_not_reach_the_others(
    name: str, classes: int | None
) -> None:
    rng = np.random.default_rng(20)
    plain = fresh(name, classes=classes)
    other = fresh(
        name,
        classes=classes,
        kl_weight=9.0,
        learning_rate=7.0,
        clip="literal",
        clip_level=0.1,
        reference="previous",
    )
    for _ in range(5):
        inputs = pair_inputs(rng) if classes is None else shared_inputs(rng)
        for scorer in (plain, other):
            scorer.step(inputs, ALL, 0, Label(1))
            scorer.step(inputs, ALL, 0, None)
    np.testing.assert_array_equal(plain.theta, other.theta)


def test_a_state_of_another_dimension_is_refused() -> None:
    with pytest.raises(FeatureError, match="'theta'"):
        fresh("newton").restore(fresh("newton", dim=6).state())
