"""Pooled states to features: centered per item, fixed directions, rows of norm 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stacksl.errors import FeatureError
from stacksl.lm.scoring.features import StateMap

Array = NDArray[Any]
IDS = [f"i{n}" for n in range(40)]


def make_states(count: int, size: int = 12, seed: int = 0) -> list[Array]:
    """Items of 2 to 5 options about a large common state, their differences of unlike strength."""
    draw = np.random.default_rng(seed)
    strength = np.geomspace(3.0, 0.03, size)
    common = 50.0 * draw.normal(size=size)
    return [
        (common + draw.normal(size=(2 + number % 4, size)) * strength).astype(np.float32)
        for number in range(count)
    ]


def fitted(dim: int = 5, count: int = 40) -> StateMap:
    made = StateMap(dim)
    made.fit(make_states(count), IDS)
    return made


def test_features_are_projections_of_centered_states() -> None:
    """Against a second way: the singular vectors of all centered rows by an SVD."""
    states = make_states(40)
    centered = [s.astype(np.float64) - s.astype(np.float64).mean(0) for s in states]
    _, _, right = np.linalg.svd(np.concatenate(centered), full_matrices=False)
    signs = np.sign(right[np.arange(5), np.abs(right[:5]).argmax(1)])
    for rows, found in zip(centered, fitted().transform(states, IDS), strict=True):
        expected = rows @ (right[:5] * signs[:, None]).T
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        assert found.dtype == np.float32
        assert np.allclose(found, expected, atol=1e-6)


def test_a_row_depends_on_its_item_alone_bit_for_bit() -> None:
    made, states = fitted(7), make_states(23, seed=2)
    together = made.transform(states, IDS)
    for number, rows in enumerate(together):
        assert np.array_equal(made.transform([states[number]], IDS)[0], rows)


@pytest.mark.parametrize(("asked", "dim"), [(5, 5), (64, 12)])  # of 12 that the states have
def test_state_comes_back_bit_for_bit(asked: int, dim: int) -> None:
    made, again = fitted(asked), StateMap(asked)
    again.restore(made.state())
    assert again.fingerprint == made.fingerprint
    assert again.dim == dim
    states = make_states(9, seed=4)
    for one, other in zip(made.transform(states, IDS), again.transform(states, IDS), strict=True):
        assert np.array_equal(one, other)
    assert fitted(asked).fingerprint == made.fingerprint
    assert fitted(4).fingerprint != made.fingerprint


def test_states_that_are_not_finite_are_refused_by_name() -> None:
    made, states = fitted(), make_states(3)
    states[2][1, 4] = np.nan
    with pytest.raises(FeatureError, match="states of item 'c' should be finite"):
        made.transform(states, ids=["a", "b", "c"])
    with pytest.raises(FeatureError, match="states of item 'i2' should be finite"):
        StateMap(2).fit(states, IDS)
