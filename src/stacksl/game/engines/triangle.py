"""Products with a symmetric matrix of which the lower triangle alone is kept, and with class heads.

The strict upper triangle is neither read nor written. Rows are taken four at a time, so that what
is loaded once serves four sums.
"""

from __future__ import annotations

import numpy as np

from stacksl.game.engines.compiling import compiled, summed
from stacksl.game.inputs import Array

__all__ = ["add_outer", "full", "image", "project_heads", "rank_one"]


@summed
def image(lower: Array, h: Array, out: Array) -> float:
    """Set `out` to A·h for A given by its `lower` triangle, (d, d); gives hᵀA·h."""
    d = len(h)
    for j in range(d):
        out[j] = 0.0
    for i in range(0, d - 3, 4):
        a, b, c, e = lower[i], lower[i + 1], lower[i + 2], lower[i + 3]
        ha, hb, hc, he = h[i], h[i + 1], h[i + 2], h[i + 3]
        ta = tb = tc = te = 0.0
        for j in range(i):
            ta += a[j] * h[j]
            tb += b[j] * h[j]
            tc += c[j] * h[j]
            te += e[j] * h[j]
            out[j] += a[j] * ha + b[j] * hb + c[j] * hc + e[j] * he
        out[i] += ta + a[i] * ha + b[i] * hb + c[i] * hc + e[i] * he
        out[i + 1] += tb + b[i] * ha + b[i + 1] * hb + c[i + 1] * hc + e[i + 1] * he
        out[i + 2] += tc + c[i] * ha + c[i + 1] * hb + c[i + 2] * hc + e[i + 2] * he
        out[i + 3] += te + e[i] * ha + e[i + 1] * hb + e[i + 2] * hc + e[i + 3] * he
    for i in range(d - d % 4, d):
        total = lower[i, i] * h[i]
        for j in range(i):
            total += lower[i, j] * h[j]
            out[j] += lower[i, j] * h[i]
        out[i] += total
    square = 0.0
    for j in range(d):
        square += h[j] * out[j]
    return square


@compiled
def rank_one(lower: Array, product: Array, shrink: float) -> None:
    """A⁻¹ ← A⁻¹ − uuᵀ for u = shrink·`product`, which is scaled in place."""
    for j in range(len(product)):
        product[j] *= shrink
    for i in range(len(product)):
        weight = product[i]
        for j in range(i + 1):
            lower[i, j] -= weight * product[j]


@summed
def project_heads(theta: Array, h: Array, scores: Array) -> None:
    """Set `scores` to θ·h, (K,), for the heads `theta`, (K, d)."""
    classes, d = theta.shape
    for x in range(0, classes - 3, 4):
        a, b, c, e = theta[x], theta[x + 1], theta[x + 2], theta[x + 3]
        ta = tb = tc = te = 0.0
        for j in range(d):
            ta += a[j] * h[j]
            tb += b[j] * h[j]
            tc += c[j] * h[j]
            te += e[j] * h[j]
        scores[x], scores[x + 1], scores[x + 2], scores[x + 3] = ta, tb, tc, te
    for x in range(classes - classes % 4, classes):
        total = 0.0
        for j in range(d):
            total += theta[x, j] * h[j]
        scores[x] = total


@compiled
def add_outer(theta: Array, weights: Array, row: Array) -> None:
    """θ ← θ + weights·rowᵀ, (K, d)."""
    for x in range(theta.shape[0]):
        weight = weights[x]
        for j in range(theta.shape[1]):
            theta[x, j] += weight * row[j]


def full(lower: Array) -> Array:
    """The whole symmetric matrix, (d, d)."""
    strict: Array = np.tril(lower, -1)
    return strict + strict.T + np.diag(np.diag(lower))
