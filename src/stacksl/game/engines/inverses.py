"""V⁻¹ (or H⁻¹) between blocks, in three precisions: images of many rows, and updates at once.

`exact` keeps and multiplies it in float64. `mixed` keeps it in float64 and multiplies a float32
copy. `float32` has nothing but float32, and moves to `exact` where that is not enough.

Where images are taken of many rows at once, the lower triangle alone is kept (`half`): an update
then has half of the work, and the product takes no longer. For a few rows it takes thrice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines.choosing import Precision
from stacksl.game.engines.pending import Pending
from stacksl.game.inputs import Array

__all__ = ["Exact", "Inverse", "Mixed", "Single", "make_inverse"]

_LEAST, _CLOSE = 1e-2, 1e-5
_TILE = 128  # columns of a square that stays in the cache while it is transposed


class Inverse(Protocol):
    """V⁻¹ as a block finds it."""

    @property
    def least(self) -> float:
        """The least share of a direction that may be unknown, as in `stops.Care`."""
        ...

    @property
    def close(self) -> float:
        """The relative distance from a tie below which `better` images decide."""
        ...

    def images(self, rows: Array, out: Array) -> None:
        """Set `out` to rows·V⁻¹, (m, d)."""
        ...

    def absorb(self, waits: Pending) -> None:
        """Take in the updates that wait."""
        ...

    def better(self) -> Inverse:
        """The same matrix, its products in float64."""
        ...

    def estimate(self, moment: Array, theta: Array) -> None:
        """Set `theta` to V⁻¹·moment, (d,), where that is better than a θ that was updated."""
        ...

    def full(self) -> Array:
        """V⁻¹, (d, d) float64."""
        ...


@final
@dataclass(slots=True, eq=False)
class Exact:
    """V⁻¹ in float64; `gram_inv` is (d, d), updated in place."""

    gram_inv: Array
    half: bool
    least: float = 0.0
    close: float = 0.0

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        _multiply(rows, self.gram_inv, out, self.half)

    def absorb(self, waits: Pending) -> None:
        """See `Inverse`."""
        _subtract(self.gram_inv, waits.halves[: waits.used[0]], self.half)

    def better(self) -> Inverse:
        """Itself."""
        return self

    def estimate(self, moment: Array, theta: Array) -> None:
        """See `Inverse`."""
        theta[:] = _blas().dsymv(1.0, self.gram_inv.T, moment)

    def full(self) -> Array:
        """See `Inverse`."""
        return _mirrored(self.gram_inv)


@final
@dataclass(slots=True, eq=False)
class Mixed:
    """V⁻¹ in float64, its images in float32.

    What waits was found from float32 images, so it is found anew from the rows that entered: the
    matrix never drifts.
    """

    gram_inv: Array
    half: bool
    least: float
    close: float
    copy: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.copy = self.gram_inv.astype(np.float32)

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        _multiply_single(rows, self.copy, out, self.half)

    def absorb(self, waits: Pending) -> None:
        """V⁻¹ ← V⁻¹ − HᵀH with H = L⁻¹·images, L the Cholesky factor of I + images·rowsᵀ."""
        rows = waits.entered[: waits.used[0]]
        images = np.empty_like(rows)
        _multiply(rows, self.gram_inv, images, self.half)
        lower = np.linalg.cholesky(np.eye(len(rows)) + images @ rows.T)
        _blas().dtrsm(1.0, lower.T, images.T, side=1, overwrite_b=1)
        _subtract(self.gram_inv, images, self.half)
        np.copyto(self.copy, self.gram_inv, casting="same_kind")

    def better(self) -> Inverse:
        """The float64 matrix itself."""
        return Exact(self.gram_inv, self.half)

    def estimate(self, moment: Array, theta: Array) -> None:
        """See `Inverse`."""
        theta[:] = _blas().dsymv(1.0, self.gram_inv.T, moment)

    def full(self) -> Array:
        """See `Inverse`."""
        return _mirrored(self.gram_inv)


@final
@dataclass(slots=True, eq=False)
class Single:
    """V⁻¹ in float32."""

    gram_inv: NDArray[np.float32]
    half: bool
    least: float
    close: float

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        _multiply_single(rows, self.gram_inv, out, self.half)

    def absorb(self, waits: Pending) -> None:
        """See `Inverse`."""
        halves = waits.halves[: waits.used[0]].astype(np.float32)
        _subtract(self.gram_inv, halves, self.half)

    def better(self) -> Inverse:
        """A float64 matrix that goes on from here, with the errors made so far."""
        return Exact(self.gram_inv.astype(np.float64), self.half)

    def estimate(self, moment: Array, theta: Array) -> None:
        """Nothing: θ was updated in float64."""

    def full(self) -> Array:
        """See `Inverse`."""
        return _mirrored(self.gram_inv.astype(np.float64))


def make_inverse(precision: Precision, gram_inv: Array, half: bool) -> Inverse:
    """The inverse in a precision, from the one before round 1."""
    if precision == "mixed":
        return Mixed(gram_inv, half, _LEAST, _CLOSE)
    if precision == "float32":
        return Single(gram_inv.astype(np.float32), half, _LEAST, _CLOSE)
    return Exact(gram_inv, half)


def _multiply(rows: Array, gram_inv: Array, out: Array, half: bool) -> None:
    """Set `out` to rows·G: BLAS sees the transposes of C-ordered arrays."""
    if half:
        _blas().dsymm(1.0, gram_inv.T, rows.T, c=out.T, overwrite_c=1)
    else:
        np.dot(rows, gram_inv, out=out)


def _multiply_single(rows: Array, gram_inv: NDArray[np.float32], out: Array, half: bool) -> None:
    narrow = rows.astype(np.float32)
    np.copyto(out, _blas().ssymm(1.0, gram_inv.T, narrow.T).T if half else narrow @ gram_inv)


def _subtract(gram_inv: NDArray[Any], halves: NDArray[Any], half: bool) -> None:
    """G ← G − UᵀU in place."""
    double = gram_inv.dtype == np.float64
    if half:
        update = _blas().dsyrk if double else _blas().ssyrk
        update(-1.0, halves.T, 1.0, gram_inv.T, overwrite_c=1)
    else:
        update = _blas().dgemm if double else _blas().sgemm
        update(-1.0, halves.T, halves.T, 1.0, gram_inv.T, trans_b=1, overwrite_c=1)


def _mirrored(gram_inv: Array) -> Array:
    """The whole matrix, its upper triangle set in place from the lower one, tile by tile."""
    side = len(gram_inv)
    for top in range(0, side, _TILE):
        own = gram_inv[top : top + _TILE, top : top + _TILE]
        own[:] = np.tril(own) + np.tril(own, -1).T
        for left in range(top + _TILE, side, _TILE):
            below = gram_inv[left : left + _TILE, top : top + _TILE]
            gram_inv[top : top + _TILE, left : left + _TILE] = below.T
    return gram_inv


@cache
def _blas() -> Any:
    from scipy.linalg import blas

    return blas
