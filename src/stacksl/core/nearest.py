"""The nearest vectors, by exact search.

Vectors have norm 1 (or 0), so the cosine is a product, of blocks of bounded size. Its sums depend
on the shape of a block in their last bits, so a few more vectors than wanted are kept and ranked
by sums that do not: the result is a function of the vectors alone. The search of scikit-learn adds
up in float64, which takes 1.3 times as long, and its import takes a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array

SPARE = 16  # vectors beyond M that are ranked exactly
_CELLS = 1 << 22  # scores in memory at a time, 16 MB
_BITS = 24  # products are rounded to multiples of 2^-24 before they are summed

Places = NDArray[np.int32]
Vectors = NDArray[np.float32]


def nearest(vectors: Vectors, pool: Vectors, count: int) -> tuple[Places, Array]:
    """The `count` rows of `pool` with the largest cosine to each vector, and the cosines, (n, M).

    The nearest is first; ties go to the lowest row. A vector of zeros has the first rows. Where
    there are fewer others than `count`, all are given.

    Args:
        vectors: (n, e) unit vectors, float32.
        pool: (N, e) unit vectors, float32.
        count: M.
    """
    count = min(count, len(pool))
    candidates = _exact(vectors, pool, min(count + SPARE, len(pool)))
    rows, cosine = _ranked(vectors, pool, candidates)
    rows, cosine = rows[:, :count], cosine[:, :count]
    rows[~vectors.any(axis=1)] = np.arange(count)
    return rows, cosine


def cosines(products: Array) -> Array:
    """The sums of the rows of `products`, (n, e), in any order of summation the same."""
    sums: Array = np.sum(np.rint(products * 2**_BITS), axis=1) * 2.0**-_BITS
    return sums


def _exact(vectors: Vectors, pool: Vectors, count: int) -> Places:
    """The nearest rows in no order, by blocked products: `_CELLS` scores are held at a time."""
    block_rows = max(1, min(len(vectors), 256))
    width = max(count, _CELLS // block_rows)
    out = np.empty((len(vectors), count), np.int32)
    for offset in range(0, len(vectors), block_rows):
        block = vectors[offset : offset + block_rows]
        best = np.zeros((len(block), 0), np.float32)
        index = np.zeros((len(block), 0), np.int32)
        for start in range(0, len(pool), width):
            scores = block @ pool[start : start + width].T
            columns = np.arange(scores.shape[1], dtype=np.int32)
            if start:  # few are nearer to any vector than those it has
                columns = columns[(scores > best.min(axis=1, keepdims=True)).any(axis=0)]
                scores = scores[:, columns]
            best = np.hstack([best, scores])
            index = np.hstack([index, np.broadcast_to(columns + np.int32(start), scores.shape)])
            if best.shape[1] > count:
                keep = np.argpartition(best, -count, axis=1)[:, -count:]
                best = np.take_along_axis(best, keep, axis=1)
                index = np.take_along_axis(index, keep, axis=1)
        out[offset : offset + len(block)] = index
    return out


def _ranked(vectors: Vectors, pool: Vectors, rows: Places) -> tuple[Places, Array]:
    """The `rows` of `pool` in order of cosine, from sums that do not depend on the block."""
    out, cosine = np.empty_like(rows), np.empty(rows.shape)
    for row, candidates in enumerate(rows):
        candidates = np.sort(candidates)
        exact = cosines(vectors[row].astype(np.float64) * pool[candidates])
        order = np.argsort(-exact, kind="stable")
        out[row], cosine[row] = candidates[order], exact[order]
    return out, cosine
