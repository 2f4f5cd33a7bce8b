from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from stacksl.features.hashing import ENTRY_BITS, leading_subspace


def matrix(rows: int, columns: int, rank: int, seed: int = 0) -> sp.csr_matrix:
    """Sparse integers with a fast falling spectrum of about `rank` directions."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(rows, rank)) * 0.8 ** np.arange(rank)
    dense = left @ rng.normal(size=(rank, columns))
    dense[rng.random(dense.shape) < 0.5] = 0.0
    return sp.csr_matrix(np.rint(dense / np.abs(dense).max() * 2**ENTRY_BITS))


def test_basis_is_orthonormal_and_captures_what_the_svd_captures() -> None:
    x = matrix(300, 200, 12)
    basis = leading_subspace(x, 8)
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=2e-5)
    _, singular, _ = svds(x, k=8, random_state=0)
    captured = np.linalg.norm(x @ basis) ** 2
    assert captured >= 0.995 * np.sum(singular**2)
    assert captured <= (1 + 1e-4) * np.sum(singular**2)


def test_bits_do_not_depend_on_the_order_of_the_rows_nor_on_blas_threads() -> None:
    from threadpoolctl import threadpool_limits

    x = matrix(500, 300, 40)
    with threadpool_limits(1):
        one = leading_subspace(x, 32)
    with threadpool_limits(2):
        two = leading_subspace(x[np.random.default_rng(1).permutation(500)], 32)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("shape", [(1, 1), (3, 20), (20, 3), (6, 6), (0, 5), (4, 0)])
def test_rank_below_the_dimension_leaves_zero_columns(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    x = sp.csr_matrix(rng.integers(1, 2**ENTRY_BITS, size=shape).astype(float))
    basis = leading_subspace(x, 10)
    rank = min(shape)
    norms = np.linalg.norm(basis, axis=0)
    assert np.sum(norms > 0.5) == rank
    assert np.sum(norms < 1e-12) == 10 - rank
    np.testing.assert_allclose((x @ basis) @ basis.T, x.toarray(), atol=1e-2 * 2**ENTRY_BITS)
