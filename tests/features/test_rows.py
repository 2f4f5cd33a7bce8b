from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.features import rows as module
from stacksl.features.rows import class_rows, pair_block, pair_columns, pair_rows
from stacksl.types import Item


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def directions(count: int, dim: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def formula(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The rows of the settings below before any column is left out; too short to be cut."""
    cosine = np.sum(p * c, axis=1, keepdims=True)
    bias = np.full((len(p), 1), 0.05)
    return np.hstack([0.1 * np.sqrt(p.shape[1]) * p * c, 0.2 * (c - p), 0.3 * cosine, bias])


@pytest.mark.parametrize("encoded", [16, 384])
def test_rows_are_the_leading_columns_of_the_formula(encoded: int, monkeypatch) -> None:
    monkeypatch.setattr(module, "WEIGHTS", (0.1, 0.2, 0.3, 0.05))
    p, c = directions(20, encoded, 0), directions(20, encoded, 1)
    whole = formula(p, c)
    expected = np.hstack(
        [whole[:, :encoded][:, :127], whole[:, encoded:-2][:, :255], whole[:, -2:]]
    )
    assert np.linalg.norm(expected, axis=1).max() < 1.0
    np.testing.assert_allclose(pair_rows(p, c), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("encoded", "dim"), [(1, 4), (191, 384), (192, 384), (256, 384), (768, 384)]
)
def test_rows_have_at_most_384_columns(encoded: int, dim: int) -> None:
    assert pair_columns(encoded) == dim
    assert pair_rows(directions(2, encoded, 0), directions(2, encoded, 1)).shape == (2, dim)


@given(st.integers(1, 300), st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_no_row_is_longer_than_one(encoded: int, seed: int, nearness: float) -> None:
    p, c = directions(5, encoded, seed), directions(5, encoded, seed + 1)
    mixed = nearness * p + (1 - nearness) * c
    mixed = unit(np.where(np.linalg.norm(mixed, axis=1, keepdims=True) > 1e-6, mixed, p))
    for other in (mixed, -mixed, p, np.zeros_like(p)):
        norms = np.linalg.norm(pair_rows(p, other).astype(np.float64), axis=1)
        assert norms.max() <= 1.0
        assert norms.min() > 0.0


def test_candidates_keep_their_items_where_k_differs() -> None:
    vectors = directions(5, 8, 0)
    items = [Item("a", "0", ("1", "2", "3")), Item("b", "4", ("1",)), Item("c", "3", ("2", "0"))]
    places = np.array([0, 1, 2, 3, 4, 1, 3, 2, 0])
    block = pair_block(items, vectors, places)
    np.testing.assert_array_equal(block.offsets, [0, 3, 4, 6])
    pairs = [(0, 1), (0, 2), (0, 3), (4, 1), (3, 2), (3, 0)]
    for row, (p, c) in enumerate(pairs):
        expected = pair_rows(vectors[[p]], vectors[[c]])[0]
        np.testing.assert_array_equal(block.phi[row], expected)


def test_class_rows_append_the_bias_only_where_there_is_one() -> None:
    u = directions(3, 4, 0)
    np.testing.assert_allclose(class_rows(u, 0.0), u, atol=1e-6)
    biased = np.hstack([0.8 * u, np.full((3, 1), 0.6)])
    np.testing.assert_allclose(class_rows(u, 0.6), biased, atol=1e-6)
