"""The four scores by hand, and their temperature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import entr, softmax

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.normalize import (
    NORMALIZATIONS,
    fitted_temperature,
    normalized,
    prior_temperature,
)

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")

ROW = TokenItem("q", (1,), ((2, 3, 4), (5,)), (12, 3))
SUMS = [torch.tensor([-6.0, -3.0])]
ALONE = [torch.tensor([-9.0, -4.0])]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_mean", [-2.0, -3.0]),
        ("sum", [-6.0, -3.0]),
        ("char_mean", [-0.5, -1.0]),
        ("pmi", [3.0, 1.0]),
    ],
)
def test_each_kind_is_its_formula(kind: Any, expected: list[float]) -> None:
    assert normalized(SUMS, [ROW], kind, alone=ALONE)[0].tolist() == expected
    half = normalized(SUMS, [ROW], kind, alone=ALONE, temperature=0.5)[0].tolist()
    assert half == [2 * value for value in expected]
    assert kind in NORMALIZATIONS


# The temperature of scores: by entropy before any label, by likelihood after ---------------------


DRAW = np.random.default_rng(3)
SCORES = [DRAW.normal(size=size) * 7.0 for size in DRAW.integers(2, 6, size=300)]


def entropy(temperature: float) -> float:
    return float(np.mean([entr(softmax(each / temperature)).sum() for each in SCORES]))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 40.0])
def test_the_prior_entropy_is_half_of_a_uniform_guess(scale: float) -> None:
    found = prior_temperature([scale * each for each in SCORES])
    half = 0.5 * np.mean([math.log(len(each)) for each in SCORES])
    assert entropy(found / scale) == pytest.approx(half, rel=1e-4)


def test_equal_scores_have_no_temperature_of_their_own() -> None:
    assert prior_temperature([np.zeros(3), np.full(2, 4.0)]) == 1.0


def test_few_labels_stay_near_the_prior_and_many_do_not() -> None:
    sure = [np.array([3.0, 0.0, 0.0])]
    found = [fitted_temperature(sure * n, [0] * n, 2.0) for n in (0, 1, 5, 500)]
    assert found[0] == 2.0
    assert 2.0 > found[1] > found[2] > found[3] > 0.1
    wrong = fitted_temperature(sure * 5, [1] * 5, 2.0)
    assert 2.0 < wrong < 20.0
