"""The confidence set of a linear scorer: the inverse of V, norms in it, and the radius."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from stacksl.core.blocks import Array

_CHUNK = 64  # rows of one rank-k update: the small system stays small, the matrix is read once


@dataclass(slots=True, eq=False)
class ConfidenceSet:
    """The ellipsoid {θ : ‖θ − θ̂‖_V ≤ radius} of V = ridge·I + Σ w φφᵀ, kept as V⁻¹.

    The inverse is updated in place by the Sherman-Morrison formula, or by its form for several
    rows at once (Woodbury); no matrix is inverted.

    Attributes:
        gram_inv: V⁻¹, (d, d) float64, symmetric, C-ordered.
        ridge: λ of V_0 = λI, above 0.
        learned: labels that entered V.
        volume: log det(V/λI), the growth of log det V since V_0 (nats).

    >>> trust = ConfidenceSet.empty(2, ridge=1.0)
    >>> trust.update(np.array([[1.0, 0.0]]))
    >>> trust.widths(np.eye(2)).round(4)
    array([0.7071, 1.    ])

    Source: paper, Section 5 (V_t). Deviation: float64 for features of any type, since a float32
    inverse breaks where candidates repeat (`docs/paper.md`, D17).
    """

    gram_inv: Array
    ridge: float
    learned: int = 0
    volume: float = 0.0

    @classmethod
    def empty(cls, dim: int, ridge: float) -> ConfidenceSet:
        """The set before any label: V = ridge·I in `dim` dimensions."""
        return cls(np.eye(dim) / ridge, ridge)

    def images(self, rows: Array) -> Array:
        """V⁻¹φ of each of the (m, d) `rows`: the one product that all norms need."""
        product: Array = rows @ self.gram_inv
        return product

    def widths(self, rows: Array) -> Array:
        """‖φ_x‖ in V⁻¹ of each of the (m, d) `rows`."""
        return norms(rows, self.images(rows))

    def update(self, rows: Array, weights: Array | None = None, labels: int = 1) -> None:
        """V ← V + Σ_x w_x φ_x φ_xᵀ in place, for (m, d) `rows` and (m,) `weights` (default 1).

        `labels` is added to `learned`: 1 for all rows of one label together, 0 for rows whose label
        was not bought.
        """
        scaled = rows if weights is None else rows * np.sqrt(weights)[:, None]
        for start in range(0, len(scaled), _CHUNK):
            self._add(scaled[start : start + _CHUNK])
        self.learned += labels

    def _add(self, rows: Array) -> None:
        if len(rows) == 1:
            image = self.gram_inv @ rows[0]
            growth = 1.0 + float(rows[0] @ image)
            self.volume += math.log(growth)
            image /= math.sqrt(growth)  # the vector, not the product: V⁻¹ stays exactly symmetric
            _blas().dger(-1.0, image, image, a=self.gram_inv.T, overwrite_a=1)
            return
        images = self.images(rows)
        lower = np.linalg.cholesky(np.eye(len(rows)) + images @ rows.T)
        self.volume += 2.0 * float(np.log(np.diag(lower)).sum())
        halves = np.linalg.solve(lower, images)
        target = self.gram_inv.T
        _blas().dgemm(-1.0, halves.T, halves.T, 1.0, target, trans_b=1, overwrite_c=1)


def norms(rows: Array, images: Array) -> Array:
    """‖φ_x‖ in V⁻¹ from the (m, d) `rows` and their `images` V⁻¹φ_x."""
    return _roots(np.einsum("ij,ij->i", rows, images))


def pair_norms(rows: Array, images: Array, choice: int) -> Array:
    """‖φ_x − φ_i‖ in V⁻¹ for i = `choice`, from the (m, d) `rows` and their `images`.

    The differences are taken before the product: v_x + v_i − 2c cancels where rows nearly
    coincide, while this loses only the rounding of the difference itself.
    """
    return _roots(np.einsum("ij,ij->i", rows - rows[choice], images - images[choice]))


def radius(
    noise: float, dim: int, count: int, ridge: float, delta: float, norm_bound: float
) -> float:
    """β_n = σ·sqrt(d·log(1 + n/(λd)) + 2·log(1/δ)) + sqrt(λ)·S of rows of norm at most 1, in score
    units.

    Proved for ridge on rewards; under labels the ellipsoid it makes is false in general
    (`docs/theory.md`, section 4). σ is `noise`, d is `dim`, n is `count`, λ is `ridge`, δ is
    `delta` and S is `norm_bound`.

    Source: paper, Section 5, the confidence radius. Deviation: n counts labels, not rounds, unless
    a setting says otherwise (`docs/paper.md`, D2).

    >>> radius(1.0, dim=20, count=0, ridge=1.0, delta=1.0, norm_bound=3.0)
    3.0
    """
    volume = dim * math.log1p(count / (ridge * dim))
    return noise * math.sqrt(volume + 2.0 * math.log(1.0 / delta)) + math.sqrt(ridge) * norm_bound


def _roots(squares: Array) -> Array:
    # rounding can make the square negative for a direction that is almost known
    return np.sqrt(np.maximum(squares, 0.0))


@cache
def _blas() -> Any:
    from scipy.linalg import blas

    return blas
