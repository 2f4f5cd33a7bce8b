"""The nearest vectors are those of a sort of all products."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core import nearest as search
from stacksl.core.nearest import nearest


def unit(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("cells", [1 << 22, 512 * 64, 1])  # one block, two, and 36
def test_exact_search_is_the_naive_one(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(search, "_CELLS", cells)
    vectors, others = unit(70), unit(900, seed=1)
    naive = np.argsort(-(vectors.astype(float) @ others.T), axis=1, kind="stable")[:, :9]
    found, cosine = nearest(vectors, others, 9)
    assert np.array_equal(found, naive)
    exact = np.take_along_axis(vectors.astype(float) @ others.T, naive, axis=1)
    np.testing.assert_allclose(cosine, exact, atol=1e-6)


def test_ties_go_to_the_first_and_a_few_others_are_given_whole() -> None:
    found = nearest(unit(3), np.repeat(unit(3), 2, axis=0), 64)[0]
    assert found.shape == (3, 6)
    assert found[:, :2].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_vector_of_zeros_gets_the_first_rows() -> None:
    found = nearest(np.zeros((1, 16), np.float32), unit(100), 5)[0]
    assert found.tolist() == [[0, 1, 2, 3, 4]]
