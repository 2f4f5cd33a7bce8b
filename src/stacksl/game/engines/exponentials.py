"""The exponential of a short array, in vector code: the library's goes one number at a time."""

from __future__ import annotations

import math

import numpy as np

from stacksl.game.engines.compiling import compiled
from stacksl.game.inputs import Array

__all__ = ["exponentials"]

_PER_LN2 = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are 0, so that k times it is exact
_LN2_LOW = 1.90821492927058770002e-10
_LEAST = -700.0  # e to that is 1e-304, still a normal number


@compiled
def exponentials(values: Array, shift: float, powers: Array, out: Array) -> None:
    """Set out_x to exp(values_x − shift), (m,), for values of at most `shift`, or to 1e-304.

    exp z = 2^k·exp r with k = round(z / ln 2) and |r| ≤ ln 2 / 2, where the Taylor polynomial of
    degree 13 is exact to rounding; `powers`, (m,), receives 2^k by its bits.
    """
    bits = powers.view(np.int64)
    for x in range(len(values)):
        z = max(values[x] - shift, _LEAST)
        k = math.floor(z * _PER_LN2 + 0.5)
        r = (z - k * _LN2_HIGH) - k * _LN2_LOW
        p = r * (1 / 6227020800) + 1 / 479001600
        p = p * r + 1 / 39916800
        p = p * r + 1 / 3628800
        p = p * r + 1 / 362880
        p = p * r + 1 / 40320
        p = p * r + 1 / 5040
        p = p * r + 1 / 720
        p = p * r + 1 / 120
        p = p * r + 1 / 24
        p = p * r + 1 / 6
        p = p * r + 0.5
        out[x] = (p * r + 1.0) * r + 1.0
        bits[x] = (np.int64(k) + 1023) << 52
    for x in range(len(values)):
        out[x] *= powers[x]
