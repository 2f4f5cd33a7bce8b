"""The leading subspace of a sparse matrix, found in arithmetic that is exact on every machine.

A truncated SVD from LAPACK differs in its last bits between processors and thread counts, and close
singular values turn such bits into other vectors. Here every sum is a sum of integers below 2^53
held in float64: neither its order nor fused instructions can change it. What is not a sum
(Cholesky, division, square root) is done element by element in one fixed order, which IEEE 754
pins down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array

ENTRY_BITS = 14  # entries of the matrix are integers of absolute value at most 2^14
_BLOCK_BITS = 18  # 2^14 entries x 2^18 x 2^15 rows, and (2^18)^2 x 2^15 rows, stay below 2^53
_FACTOR_BITS = 22
_RANK_TOLERANCE = 1e-7


def leading_subspace(matrix: Any, dim: int, *, iterations: int = 5) -> Array:
    """An orthonormal basis (m, dim) of the leading right singular subspace of `matrix`.

    Orthogonal iteration on XᵀX from a start of fixed random signs: Q ← orth(Xᵀ(XQ)).

    Args:
        matrix: X, a SciPy CSR matrix (n, m) of float64 that hold integers of absolute value at
            most 2^ENTRY_BITS, with n and m at most 2^15.
        dim: the number of columns wanted.
        iterations: rounds of the iteration; the error of a direction falls by the squared ratio
            of its singular value to the (dim + 1)-th each time.

    Returns:
        Q, its columns orthonormal to some 1e-5; a column is zero where the rank of X is below
        `dim`.

    Source: Halko, Martinsson, Tropp (2011), "Finding structure with randomness", algorithm 4.4;
        Cholesky QR twice as in Yamamoto et al. (2015).
    """
    rng = np.random.Generator(np.random.PCG64(20240229))  # a constant: no run's seed moves features
    start = rng.integers(0, 2, size=(matrix.shape[1], dim)).astype(np.float64) * 2.0 - 1.0
    transposed = matrix.T.tocsr()
    basis = _orthonormal(start)
    for _ in range(iterations):
        # A direction far weaker than the first ones drowns in their rounding and comes out as 0:
        # start it again, orthogonal to those that were found, so that they no longer cover it.
        lost = ~basis.any(axis=0)
        basis = _orthonormal(np.where(lost, start, basis)) if lost.any() else basis
        image = _as_integers(matrix @ _as_integers(basis))
        basis = _orthonormal(transposed @ image)
    return basis


def _orthonormal(block: Array) -> Array:
    """Columns of `block` made orthonormal; twice, as one Cholesky QR loses what it squares."""
    return _cholesky_qr(_cholesky_qr(block))


def _cholesky_qr(block: Array) -> Array:
    whole = _as_integers(block)
    inverse = _inverse_factor(whole.T @ whole)  # (k, k), rows t with (tᵀ wholeᵀ) orthonormal
    peak = np.max(np.abs(inverse), axis=1, keepdims=True)
    scale = _power_of_two(peak, _FACTOR_BITS)
    product: Array = (whole @ np.rint(inverse * scale).T) / scale.T
    return product


def _inverse_factor(gram: Array) -> Array:
    """L⁻¹ of gram = L Lᵀ; a zero row where the pivot says that the column depends on earlier ones.

    Right-looking and by whole rows: each entry meets the same operations in the same order.
    """
    size = len(gram)
    both, update = gram.copy(), np.empty((size, size))  # L⁻¹ up to column j, what is left after it
    smallest = _RANK_TOLERANCE * np.diagonal(gram)
    for j in range(size):
        row, below = both[j], both[j + 1 :]
        if row[j] <= smallest[j] or row[j] <= 0.0:
            row[: j + 1] = below[:, j] = 0.0
            continue
        pivot = np.sqrt(row[j])
        column = below[:, j] / pivot
        below[:, j] = 0.0
        row[j] = 1.0
        row[: j + 1] /= pivot
        row[j + 1 :] = column
        below -= np.multiply(column[:, None], row, out=update[j + 1 :])
    return np.tril(both)


def _as_integers(block: Array) -> Array:
    """Each column scaled by a power of two to below 2^18 and rounded; its direction is kept."""
    peak = np.max(np.abs(block), axis=0, keepdims=True, initial=0.0)
    rounded: Array = np.rint(block * _power_of_two(peak, _BLOCK_BITS))
    return rounded


def _power_of_two(peak: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """The power of two that brings `peak` to at most 2^bits; 1 where the peak is 0."""
    _, exponent = np.frexp(np.where(peak > 0.0, peak, 1.0))
    scale: NDArray[np.float64] = np.ldexp(1.0, bits - exponent)
    return scale
