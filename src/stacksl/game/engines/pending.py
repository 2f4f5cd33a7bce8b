"""Updates of V⁻¹ that wait: V⁻¹ = G − UᵀU with G as a block found it, U a row an update.

The images Φ·G of many rounds are then one matrix product, and what was learnt since corrects
them: with A = Φ·Uᵀ (`shadows`), ‖φ_x‖² = φ_xᵀGφ_x − ‖A_x‖².
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines.compiling import summed
from stacksl.game.inputs import Array

__all__ = ["Pending", "add_one", "add_rows", "correct", "make_pending", "shaded_norms",
           "shaded_pair_norms"]  # fmt: skip


class Pending(NamedTuple):
    """Updates that wait, and room for their products with the rows of one round.

    `halves` is (n_max, d): U. `entered` is (n_max, d), the rows that U is made of, from which it
    can be made again in a better precision. `shadows` is (K, n_max). `used[0]` is n, the rows of
    U in use; `status[0]` says why a loop stopped.
    """

    halves: Array
    entered: Array
    shadows: Array
    used: NDArray[np.int64]
    status: NDArray[np.int64]


def make_pending(candidates: int, dim: int, most: int) -> Pending:
    """Room for `most` updates; none waits."""
    return Pending(
        np.zeros((most, dim)),
        np.zeros((most, dim)),
        np.zeros((candidates, most)),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@summed
def shaded_norms(rows: Array, images: Array, shadows: Array, count: int, out: Array) -> None:
    """Set out_x to ‖rows_x‖ in V⁻¹, (m,), from the images under G."""
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[x, j] * images[x, j]
        less = 0.0
        for i in range(count):
            less += shadows[x, i] * shadows[x, i]
        out[x] = math.sqrt(max(total - less, 0.0))


@summed
def shaded_pair_norms(
    rows: Array, images: Array, shadows: Array, count: int, choice: int, out: Array
) -> None:
    """Set out_x to ‖rows_x − rows_choice‖ in V⁻¹, (m,); exactly 0 at the choice."""
    for x in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += (rows[x, j] - rows[choice, j]) * (images[x, j] - images[choice, j])
        less = 0.0
        for i in range(count):
            gap = shadows[x, i] - shadows[choice, i]
            less += gap * gap
        out[x] = math.sqrt(max(total - less, 0.0))


@summed
def correct(image: Array, shadow: Array, halves: Array, count: int, out: Array) -> None:
    """Set `out`, (d,), to V⁻¹φ from φ's `image` G·φ and its `shadow` U·φ."""
    d = len(out)
    for j in range(d):
        out[j] = image[j]
    for i in range(0, count - 3, 4):
        a, b, c, e = shadow[i], shadow[i + 1], shadow[i + 2], shadow[i + 3]
        for j in range(d):
            out[j] -= (
                a * halves[i, j]
                + b * halves[i + 1, j]
                + c * halves[i + 2, j]
                + e * halves[i + 3, j]
            )
    for i in range(count - count % 4, count):
        a = shadow[i]
        for j in range(d):
            out[j] -= a * halves[i, j]


@summed
def add_one(pending: Pending, row: Array, product: Array) -> float:
    """V ← V + φφᵀ for φ = `row`, given `product` = V⁻¹φ; gives 1 + ‖φ‖² under the V before."""
    n = pending.used[0]
    total = 1.0
    for j in range(len(row)):
        total += row[j] * product[j]
    shrink = 1.0 / math.sqrt(total)
    for j in range(len(row)):
        pending.halves[n, j] = shrink * product[j]
        pending.entered[n, j] = row[j]
    pending.used[0] = n + 1
    return total


@summed
def add_rows(pending: Pending, rows: Array, products: Array, small: Array) -> None:
    """V ← V + Σ_x φ_xφ_xᵀ for (m, d) `rows`, given `products` = rows·V⁻¹, which it overwrites.

    As `algebra.absorb`: the Cholesky factor L of I + rows·V⁻¹·rowsᵀ is left in the lower triangle
    of `small`, (m, m), and L⁻¹·products in `products`: the new rows of U.
    """
    m, d = rows.shape
    n = pending.used[0]
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
            pending.halves[n + x, j] = products[x, j]
            pending.entered[n + x, j] = rows[x, j]
    pending.used[0] = n + m
