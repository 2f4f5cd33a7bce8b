"""Products with V⁻¹ and its updates, in loops that the compiler turns into vector code.

V⁻¹ is symmetric and C-ordered, so its rows are its columns. Loops over the rows of V⁻¹ are the
outer ones: a row is read once and stays in the nearest cache while all candidates use it.
"""

from __future__ import annotations

import math

import numpy as np

from stacksl.core.blocks import Array
from stacksl_lab.engines.compiling import allocating, compiled, summed

_SMALL = 64  # columns up to which BLAS is faster than our loop for a handful of rows


@summed
def project(rows: Array, theta: Array, scores: Array) -> None:
    """Set `scores` to rows·θ, for (m, d) `rows`, four at a time."""
    m, d = rows.shape
    for x in range(0, m - 3, 4):
        a = b = c = e = 0.0
        for j in range(d):
            weight = theta[j]
            a += rows[x, j] * weight
            b += rows[x + 1, j] * weight
            c += rows[x + 2, j] * weight
            e += rows[x + 3, j] * weight
        scores[x], scores[x + 1], scores[x + 2], scores[x + 3] = a, b, c, e
    for x in range(m - m % 4, m):
        a = 0.0
        for j in range(d):
            a += rows[x, j] * theta[j]
        scores[x] = a


@summed
def combine(target: Array, factor: float, coefficients: Array, rows: Array) -> None:
    """Add factor·Σ_x c_x rows_x to `target`, (d,), four rows at a time."""
    m, d = rows.shape
    for x in range(0, m - 3, 4):
        a, b = factor * coefficients[x], factor * coefficients[x + 1]
        c, e = factor * coefficients[x + 2], factor * coefficients[x + 3]
        for j in range(d):
            target[j] += (
                a * rows[x, j] + b * rows[x + 1, j] + c * rows[x + 2, j] + e * rows[x + 3, j]
            )
    for x in range(m - m % 4, m):
        a = factor * coefficients[x]
        for j in range(d):
            target[j] += a * rows[x, j]


@summed
def image(gram_inv: Array, row: Array, out: Array) -> None:
    """Set `out` to V⁻¹·row, (d,)."""
    for i in range(gram_inv.shape[0]):
        total = 0.0
        for j in range(gram_inv.shape[1]):
            total += gram_inv[i, j] * row[j]
        out[i] = total


@compiled
def images(gram_inv: Array, rows: Array, out: Array) -> None:
    """Set `out` to rows·V⁻¹, (m, d)."""
    if rows.shape[1] <= _SMALL:
        _small_images(gram_inv, rows, out)
    else:
        _tiled_images(gram_inv, rows, out)


@allocating  # it allocates nothing, but numba's dot counts the array it gives back
def _small_images(gram_inv: Array, rows: Array, out: Array) -> None:
    np.dot(rows, gram_inv, out)


@summed
def _tiled_images(matrix: Array, rows: Array, out: Array) -> None:
    """The same in a loop, two rows of the (d, d) `matrix` against four of `rows` at a time."""
    m, d = rows.shape
    for i in range(0, d - 1, 2):
        for x in range(0, m - 3, 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for j in range(d):
                a, b = matrix[i, j], matrix[i + 1, j]
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
                a0 += matrix[i, j] * rows[x, j]
                b0 += matrix[i + 1, j] * rows[x, j]
            out[x, i], out[x, i + 1] = a0, b0
    if d % 2:
        for x in range(m):
            a0 = 0.0
            for j in range(d):
                a0 += matrix[d - 1, j] * rows[x, j]
            out[x, d - 1] = a0


@summed
def norms(rows: Array, products: Array, out: Array) -> None:
    """Set out_x to ‖rows_x‖ in V⁻¹, (m,), from the images."""
    m, d = rows.shape
    for x in range(0, m - 3, 4):
        a = b = c = e = 0.0
        for j in range(d):
            a += rows[x, j] * products[x, j]
            b += rows[x + 1, j] * products[x + 1, j]
            c += rows[x + 2, j] * products[x + 2, j]
            e += rows[x + 3, j] * products[x + 3, j]
        out[x], out[x + 1], out[x + 2], out[x + 3] = a, b, c, e
    for x in range(m - m % 4, m):
        a = 0.0
        for j in range(d):
            a += rows[x, j] * products[x, j]
        out[x] = a
    for x in range(m):
        out[x] = math.sqrt(max(out[x], 0.0))


@summed
def pair_norms(rows: Array, products: Array, choice: int, out: Array) -> None:
    """Set out_x to ‖rows_x − rows_choice‖ in V⁻¹, (m,); exactly 0 at the choice.

    The differences come before the product, as in `confidence.pair_norms`.
    """
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += (rows[x, j] - rows[choice, j]) * (products[x, j] - products[choice, j])
        out[x] = math.sqrt(max(total, 0.0))


@summed
def all_pair_norms(rows: Array, products: Array, out: Array) -> None:
    """Set out_xy to ‖rows_x − rows_y‖ in V⁻¹ for all y above x, (m, m)."""
    for x in range(rows.shape[0]):
        for y in range(x + 1, rows.shape[0]):
            total = 0.0
            for j in range(rows.shape[1]):
                total += (rows[y, j] - rows[x, j]) * (products[y, j] - products[x, j])
            out[x, y] = math.sqrt(max(total, 0.0))


@compiled
def rank_one(gram_inv: Array, row: Array, product: Array) -> float:
    """V ← V + φφᵀ for φ = `row`, given `product` = V⁻¹φ, which is scaled in place.

    Gives the growth of log det V.
    """
    d = gram_inv.shape[0]
    total = 1.0
    for j in range(d):
        total += row[j] * product[j]
    shrink = 1.0 / math.sqrt(total)
    for j in range(d):
        product[j] *= shrink
    for i in range(0, d - 1, 2):
        a, b = product[i], product[i + 1]
        for j in range(d):
            gram_inv[i, j] -= a * product[j]
            gram_inv[i + 1, j] -= b * product[j]
    if d % 2:
        for j in range(d):
            gram_inv[d - 1, j] -= product[d - 1] * product[j]
    return math.log(total)


@summed
def absorb(gram_inv: Array, rows: Array, products: Array, small: Array) -> float:
    """V ← V + Σ_x φ_xφ_xᵀ for (m, d) `rows`, given `products` = rows·V⁻¹, which it overwrites.

    Woodbury with the Cholesky factor L of I + rows·V⁻¹·rowsᵀ in `small`, (m, m):
    V⁻¹ ← V⁻¹ − HᵀH with H = L⁻¹·products. Gives the growth of log det V.
    """
    m, d = rows.shape
    growth = 0.0
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
        growth += math.log(total)
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
    return growth
