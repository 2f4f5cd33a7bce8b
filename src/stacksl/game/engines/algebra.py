"""Products with V⁻¹ and its updates, in loops that the compiler turns into vector code.

V⁻¹ is symmetric and C-ordered, so its rows are its columns. Loops over the rows of V⁻¹ are the
outer ones: a row is read once and stays in the nearest cache while all candidates use it.
"""

from __future__ import annotations

import math

from stacksl.game.engines.compiling import compiled, summed
from stacksl.game.inputs import Array

__all__ = ["absorb", "combine", "image", "images", "pair_squares", "project", "rank_one", "squares"]


@summed
def project(rows: Array, theta: Array, scores: Array) -> None:
    """Set `scores` to rows·θ, for (m, d) `rows`."""
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * theta[j]
        scores[x] = total


@summed
def combine(target: Array, factor: float, coefficients: Array, rows: Array) -> None:
    """Add factor·Σ_x c_x rows_x to `target`, (d,)."""
    for x in range(rows.shape[0]):
        weight = factor * coefficients[x]
        for j in range(rows.shape[1]):
            target[j] += weight * rows[x, j]


@summed
def image(gram_inv: Array, row: Array, out: Array) -> None:
    """Set `out` to V⁻¹·row, (d,)."""
    for i in range(gram_inv.shape[0]):
        total = 0.0
        for j in range(gram_inv.shape[1]):
            total += gram_inv[i, j] * row[j]
        out[i] = total


@summed
def images(gram_inv: Array, rows: Array, out: Array) -> None:
    """Set `out` to rows·V⁻¹, (m, d): two rows of V⁻¹ against four rows at a time."""
    m, d = rows.shape
    for i in range(0, d - 1, 2):
        for x in range(0, m - 3, 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for j in range(d):
                a, b = gram_inv[i, j], gram_inv[i + 1, j]
                r0, r1, r2, r3 = rows[x, j], rows[x + 1, j], rows[x + 2, j], rows[x + 3, j]
                a0 += a * r0
                a1 += a * r1
                a2 += a * r2
                a3 += a * r3
                b0 += b * r0
                b1 += b * r1
                b2 += b * r2
                b3 += b * r3
            out[x, i], out[x + 1, i], out[x + 2, i], out[x + 3, i] = a0, a1, a2, a3
            out[x, i + 1], out[x + 1, i + 1] = b0, b1
            out[x + 2, i + 1], out[x + 3, i + 1] = b2, b3
        for x in range(m - m % 4, m):
            a0 = b0 = 0.0
            for j in range(d):
                a0 += gram_inv[i, j] * rows[x, j]
                b0 += gram_inv[i + 1, j] * rows[x, j]
            out[x, i], out[x, i + 1] = a0, b0
    if d % 2:
        for x in range(m):
            a0 = 0.0
            for j in range(d):
                a0 += gram_inv[d - 1, j] * rows[x, j]
            out[x, d - 1] = a0


@summed
def squares(rows: Array, products: Array, out: Array) -> None:
    """Set out_x to rows_x·products_x, (m,): squared norms in V⁻¹ from the images."""
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * products[x, j]
        out[x] = total


@summed
def pair_squares(rows: Array, products: Array, choice: int, out: Array) -> None:
    """Set out_x to ‖rows_x − rows_choice‖² in V⁻¹, (m,); exactly 0 at the choice.

    The differences come before the product, as in `confidence.pair_norms`.
    """
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += (rows[x, j] - rows[choice, j]) * (products[x, j] - products[choice, j])
        out[x] = total


@compiled
def rank_one(gram_inv: Array, row: Array, product: Array) -> None:
    """V ← V + φφᵀ for φ = `row`, given `product` = V⁻¹φ, which is scaled in place."""
    d = gram_inv.shape[0]
    total = 1.0
    for j in range(d):
        total += row[j] * product[j]
    shrink = 1.0 / math.sqrt(total)
    for j in range(d):
        product[j] *= shrink
    for i in range(d):
        weight = product[i]
        for j in range(d):
            gram_inv[i, j] -= weight * product[j]


@summed
def absorb(gram_inv: Array, rows: Array, products: Array, small: Array) -> None:
    """V ← V + Σ_x φ_xφ_xᵀ for (m, d) `rows`, given `products` = rows·V⁻¹, which it overwrites.

    Woodbury with the Cholesky factor L of I + rows·V⁻¹·rowsᵀ in `small`, (m, m):
    V⁻¹ ← V⁻¹ − HᵀH with H = L⁻¹·products.
    """
    m, d = rows.shape
    for x in range(m):
        for y in range(x + 1):
            total = 1.0 if x == y else 0.0
            for j in range(d):
                total += products[x, j] * rows[y, j]
            small[x, y] = total
    for x in range(m):
        for y in range(x):
            total = small[x, y]
            for z in range(y):
                total -= small[x, z] * small[y, z]
            small[x, y] = total / small[y, y]
        total = small[x, x]
        for z in range(x):
            total -= small[x, z] * small[x, z]
        small[x, x] = math.sqrt(total)
    for x in range(m):
        for y in range(x):
            weight = small[x, y]
            for j in range(d):
                products[x, j] -= weight * products[y, j]
        shrink = 1.0 / small[x, x]
        for j in range(d):
            products[x, j] *= shrink
    for i in range(d):
        for x in range(m):
            weight = products[x, i]
            for j in range(d):
                gram_inv[i, j] -= weight * products[x, j]
