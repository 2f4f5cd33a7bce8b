from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.features.rows import ClassRows, PairRows
from stacksl.items import Item


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def directions(count: int, dim: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def test_unprojected_rows_are_the_formula() -> None:
    p, c = directions(20, 16, 0), directions(20, 16, 1)
    rows = PairRows(16, product=0.1, difference=0.2, cosine=0.3, bias=0.05)  # too short to be cut
    product, difference = p * c, np.abs(p - c)
    cosine = np.sum(p * c, axis=1, keepdims=True)
    expected = np.hstack(
        [0.1 * 4.0 * product, 0.2 * difference, 0.3 * cosine, np.full((20, 1), 0.05)]
    )
    assert np.linalg.norm(expected, axis=1).max() < 1.0
    np.testing.assert_allclose(rows.rows(p, c), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("encoded", "dim"), [(1, 4), (191, 384), (192, 384), (256, 384), (768, 384)]
)
def test_large_rows_are_projected_to_384(encoded: int, dim: int) -> None:
    rows = PairRows(encoded)
    assert rows.dim == dim
    assert rows.rows(directions(2, encoded, 0), directions(2, encoded, 1)).shape == (2, dim)


def test_projection_keeps_inner_products_on_average() -> None:
    p, c = directions(200, 384, 0), directions(200, 384, 1)
    small = PairRows(384, difference=0.0, cosine=0.0, bias=0.0).rows(p, c).astype(np.float64)
    large = PairRows(384, largest=2000, difference=0.0, cosine=0.0, bias=0.0).rows(p, c)
    error = small @ small.T - large.astype(np.float64) @ large.T
    # Achlioptas: the variance of an inner product is at most 2/k of the lengths' product
    assert np.abs(error.mean()) < 0.01
    assert error.std() < np.sqrt(2 / 191) * 0.5**2 * 1.5


@given(st.integers(1, 300), st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_no_row_is_longer_than_one(encoded: int, seed: int, nearness: float) -> None:
    p, c = directions(5, encoded, seed), directions(5, encoded, seed + 1)
    mixed = nearness * p + (1 - nearness) * c
    mixed = unit(np.where(np.linalg.norm(mixed, axis=1, keepdims=True) > 1e-6, mixed, p))
    for other in (mixed, -mixed, p, np.zeros_like(p)):
        norms = np.linalg.norm(PairRows(encoded).rows(p, other).astype(np.float64), axis=1)
        assert norms.max() <= 1.0
        assert norms.min() > 0.0


def test_bits_of_a_row_do_not_depend_on_the_block() -> None:
    p, c = directions(37, 384, 0), directions(37, 384, 1)
    rows = PairRows(384)
    whole = rows.rows(p, c)
    for i in range(37):
        np.testing.assert_array_equal(rows.rows(p[i : i + 1], c[i : i + 1])[0], whole[i])


def test_candidates_keep_their_items_where_k_differs() -> None:
    vectors = directions(5, 8, 0)
    items = [Item("a", "0", ("1", "2", "3")), Item("b", "4", ("1",)), Item("c", "3", ("2", "0"))]
    places = np.array([0, 1, 2, 3, 4, 1, 3, 2, 0])
    block = PairRows(8).block(items, vectors, places)
    np.testing.assert_array_equal(block.offsets, [0, 3, 4, 6])
    pairs = [(0, 1), (0, 2), (0, 3), (4, 1), (3, 2), (3, 0)]
    for row, (p, c) in enumerate(pairs):
        expected = PairRows(8).rows(vectors[[p]], vectors[[c]])[0]
        np.testing.assert_array_equal(block.phi[row], expected)


def test_class_rows_append_the_bias_only_where_there_is_one() -> None:
    u = directions(3, 4, 0)
    items = [Item(str(i), str(i), ("x", "y")) for i in range(3)]
    plain = ClassRows(4, 0.0, 2).block(items, u, np.arange(3))
    np.testing.assert_allclose(plain.h, u, atol=1e-6)
    biased = ClassRows(4, 0.6, 2).block(items, u, np.array([2, 1, 1]))
    np.testing.assert_allclose(
        biased.h, np.hstack([0.8 * u[[2, 1, 1]], np.full((3, 1), 0.6)]), atol=1e-6
    )
