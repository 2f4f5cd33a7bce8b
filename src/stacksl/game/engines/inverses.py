"""V⁻¹ (or H⁻¹) between blocks, in three precisions: images of many rows, and updates at once.

`exact` keeps and multiplies it in float64. `mixed` keeps it in float64 and multiplies a float32
copy. `float32` has nothing but float32, and moves to `exact` where that is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines.pending import Pending
from stacksl.game.inputs import Array

__all__ = ["Exact", "Inverse", "Mixed", "Precision", "Single", "make_inverse"]

Precision = Literal["exact", "mixed", "float32"]


class Inverse(Protocol):
    """V⁻¹ as a block finds it.

    Attributes:
        least, close: what images are held to, as in `deferred.Care`.
    """

    @property
    def least(self) -> float:
        """The least share of a direction that may be unknown."""
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
        """The same matrix, its products in float64; both see later updates while both are used."""
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
    least: float = 0.0
    close: float = 0.0

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        np.dot(rows, self.gram_inv, out=out)

    def absorb(self, waits: Pending) -> None:
        """See `Inverse`."""
        _subtract(self.gram_inv, waits.halves[: waits.used[0]])

    def estimate(self, moment: Array, theta: Array) -> None:
        """See `Inverse`."""
        np.dot(self.gram_inv, moment, out=theta)

    def better(self) -> Inverse:
        """Itself."""
        return self

    def full(self) -> Array:
        """See `Inverse`."""
        return self.gram_inv


@final
@dataclass(slots=True, eq=False)
class Mixed:
    """V⁻¹ in float64, its images in float32.

    What waits was found from float32 images, so it is found anew from the rows that entered: the
    matrix never drifts.
    """

    gram_inv: Array
    least: float = 1e-2
    close: float = 1e-5
    copy: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.copy = self.gram_inv.astype(np.float32)

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        np.copyto(out, rows.astype(np.float32) @ self.copy)

    def absorb(self, waits: Pending) -> None:
        """See `Inverse`."""
        rows = waits.entered[: waits.used[0]]
        images = rows @ self.gram_inv
        lower = np.linalg.cholesky(np.eye(len(rows)) + images @ rows.T)
        _subtract(self.gram_inv, _solved(lower, images))
        np.copyto(self.copy, self.gram_inv, casting="same_kind")

    def estimate(self, moment: Array, theta: Array) -> None:
        """See `Inverse`."""
        np.dot(self.gram_inv, moment, out=theta)

    def better(self) -> Inverse:
        """The float64 matrix itself."""
        return Exact(self.gram_inv)

    def full(self) -> Array:
        """See `Inverse`."""
        return self.gram_inv


@final
@dataclass(slots=True, eq=False)
class Single:
    """V⁻¹ in float32."""

    gram_inv: NDArray[np.float32]
    least: float = 1e-2
    close: float = 1e-5

    def images(self, rows: Array, out: Array) -> None:
        """See `Inverse`."""
        np.copyto(out, rows.astype(np.float32) @ self.gram_inv)

    def absorb(self, waits: Pending) -> None:
        """See `Inverse`."""
        _subtract(self.gram_inv, waits.halves[: waits.used[0]].astype(np.float32))

    def estimate(self, moment: Array, theta: Array) -> None:
        """Nothing: θ was updated in float64."""

    def better(self) -> Inverse:
        """A float64 matrix that goes on from here, with the errors made so far."""
        return Exact(self.full())

    def full(self) -> Array:
        """See `Inverse`."""
        return self.gram_inv.astype(np.float64)


def make_inverse(precision: Precision, gram_inv: Array) -> Inverse:
    """The inverse in a precision, from the one before round 1."""
    if precision == "mixed":
        return Mixed(gram_inv)
    return Exact(gram_inv) if precision == "exact" else Single(gram_inv.astype(np.float32))


def _subtract(gram_inv: NDArray[Any], halves: NDArray[Any]) -> None:
    """G ← G − UᵀU in place."""
    product = _blas().dgemm if gram_inv.dtype == np.float64 else _blas().sgemm
    product(-1.0, halves.T, halves.T, 1.0, gram_inv.T, trans_b=1, overwrite_c=1)


def _solved(lower: NDArray[Any], right: NDArray[Any]) -> Array:
    from scipy.linalg import solve_triangular

    solved: Array = solve_triangular(lower, right, lower=True, check_finite=False)
    return solved


@cache
def _blas() -> Any:
    from scipy.linalg import blas

    return blas
