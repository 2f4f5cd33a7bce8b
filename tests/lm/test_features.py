"""Pooled states to features: centered per item, fixed directions, rows of norm 1 or 0."""

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


@pytest.mark.parametrize(("seed", "dim"), [(0, 1), (5, 7)])
def test_rows_have_norm_one(seed: int, dim: int) -> None:
    for rows in fitted(dim).transform(make_states(3, seed=seed), IDS):
        assert rows.shape[1] == dim
        assert np.linalg.norm(rows.astype(np.float64), axis=1) == pytest.approx(1.0, abs=1e-6)


def test_options_that_are_alike_have_zero_rows() -> None:
    same = np.tile(make_states(1)[0][:1], (3, 1))
    nearly = same.astype(np.float64) + 1e-9 * np.random.default_rng(3).normal(size=same.shape)
    lone = same[:1]
    for rows in fitted().transform([same, nearly, lone], IDS):
        assert not rows.any()
    flat = StateMap(3)
    flat.fit([same, lone], IDS)  # allowed: nothing differs anywhere
    assert not flat.transform([same], IDS)[0].any()


def test_a_row_depends_on_its_item_alone_bit_for_bit() -> None:
    made, states = fitted(7), make_states(23, seed=2)
    together = made.transform(states, IDS)
    for number, rows in enumerate(together):
        assert np.array_equal(made.transform([states[number]], IDS)[0], rows)


def test_state_comes_back_bit_for_bit() -> None:
    made, again = fitted(), StateMap(5)
    again.restore(made.state())
    assert again.fingerprint == made.fingerprint
    assert len(made.fingerprint) == 64
    assert again.dim == 5
    states = make_states(9, seed=4)
    for one, other in zip(made.transform(states, IDS), again.transform(states, IDS), strict=True):
        assert np.array_equal(one, other)
    assert fitted().fingerprint == made.fingerprint
    assert fitted(4).fingerprint != made.fingerprint
    made.state()["directions"][:] = 0.0  # a copy: the map is not to be reached through it
    assert fitted().fingerprint == made.fingerprint


def test_a_state_is_restored_whole() -> None:
    whole, again = StateMap(64), StateMap(64)
    whole.fit(make_states(5), IDS)
    again.restore(whole.state())  # 12 of 12: as many as the states have
    assert again.dim == 12
    assert again.fingerprint == whole.fingerprint


def test_states_that_are_not_finite_are_refused_by_name() -> None:
    made, states = fitted(), make_states(3)
    states[2][1, 4] = np.nan
    with pytest.raises(FeatureError, match="states of item 'c' should be finite"):
        made.transform(states, ids=["a", "b", "c"])
    with pytest.raises(FeatureError, match="states of item 'i2' should be finite"):
        StateMap(2).fit(states, IDS)
