"""Rows: from the vectors of an item's texts to its features.

There is no matrix product here, and sums are of integers below 2^53 or run left to right: the bits
of a row depend on its own vectors alone, not on the block that it is computed in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import PairBlock
from stacksl.core.nearest import cosines
from stacksl.features.encoders import Vectors
from stacksl.types import Item

MOST = 384  # columns of φ
WEIGHTS = (0.2, 0.6, 0.35, 0.1)  # a, b, g, h of `pair_rows`
_PAIRS_AT_ONCE = 4096


def class_rows(vectors: Vectors, bias: float) -> Vectors:
    """The rows h (n, d) of prompts with the unit vectors u (n, e), which are 0 where nothing in
    the prompt is known: h = [√(1 − b²)·u, b] where the bias b is above 0, else u.
    """
    encoded = vectors.shape[1]
    h = np.full((len(vectors), encoded + (bias > 0.0)), bias, np.float32)
    scale = np.float32(np.sqrt(1.0 - bias**2) * (1.0 - 2.0**-22))  # rounding stays below 1
    np.multiply(vectors, scale, out=h[:, :encoded])
    return h


def widths(encoded: int) -> tuple[int, int]:
    """How many columns of p ∘ c and of c − p are kept of vectors of `encoded` columns."""
    if 2 * encoded + 2 <= MOST:
        return encoded, encoded
    differences = min(encoded, 2 * (MOST - 2) // 3 + 1)
    return MOST - 2 - differences, differences


def pair_columns(encoded: int) -> int:
    """d, the columns of φ for vectors of `encoded` columns."""
    return sum(widths(encoded)) + 2


def pair_rows(prompts: Vectors, candidates: Vectors) -> Vectors:
    """φ(z, x) = [a·√e·(p ∘ c), b·(c − p), g·pᵀc, h], cut to norm 1 where it is longer.

    p and c are the unit vectors of prompt and candidate. The difference has its sign: its part in p
    is the same for all candidates of an item and drops out of a softmax, so it depends on the
    candidate alone. Where 2e + 2 is above `MOST`, the product keeps its first third and the
    difference its first two thirds of the columns, leading coordinates first; the cosine is always
    that of the whole vectors. The weights a, b, g, h are the same for every row, so a row's length
    keeps its meaning; only the few rows longer than 1 are scaled down.

    Args:
        prompts: (n, e), the vectors p of n pairs.
        candidates: (n, e), the vectors c.

    Source: the parts are those of InferSent (Conneau et al. 2017), the difference signed; weights,
        sign and the choice of leading coordinates are measured in `docs/features.md`.
    """
    p, c = prompts.astype(np.float64), candidates.astype(np.float64)
    encoded = p.shape[1]
    products, differences = widths(encoded)
    a, b, g, h = WEIGHTS
    product = p * c
    phi = np.empty((len(p), products + differences + 2))
    phi[:, :products] = product[:, :products] * a * np.sqrt(encoded)
    phi[:, products:-2] = (c - p)[:, :differences] * b
    phi[:, -2] = cosines(product) * g
    phi[:, -1] = h
    length = np.sqrt(np.add.accumulate(phi * phi, axis=1)[:, -1:])  # left to right: a fixed order
    cut: Vectors = (phi / np.maximum(length * (1.0 + 1e-6), 1.0)).astype(np.float32)
    return cut


def pair_block(items: Sequence[Item], vectors: Vectors, text_rows: NDArray[np.int64]) -> PairBlock:
    """The rows φ (ΣK, d) of `items`.

    Args:
        vectors: (m, e), of the distinct texts.
        text_rows: for each text of each item, the prompt and then the candidates, its row in
            `vectors`.
    """
    sizes = np.array([len(item.candidates) for item in items], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    prompts = offsets[:-1] + np.arange(len(items))  # their places in `text_rows`
    candidates = np.delete(text_rows, prompts)
    owners = np.repeat(text_rows[prompts], sizes)
    phi = np.empty((len(candidates), pair_columns(vectors.shape[1])), np.float32)
    for start in range(0, len(phi), _PAIRS_AT_ONCE):
        chunk = slice(start, start + _PAIRS_AT_ONCE)
        phi[chunk] = pair_rows(vectors[owners[chunk]], vectors[candidates[chunk]])
    return PairBlock(phi, offsets)
