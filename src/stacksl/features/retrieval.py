"""The nearest answers of a bank: exact search, and an index for very many searches.

Vectors have norm 1 (or 0), so the cosine is a product. Exact search multiplies blocks of bounded
size. Its sums depend on the shape of a block in their last bits, so a few more answers than wanted
are kept and ranked by sums that do not: the result is a function of the vectors alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.features.encoders import Vectors

EXACT = 20_000_000_000
"""Pairs of a prompt and an answer up to which search is exact: minutes on one core."""

SPARE = 16  # answers beyond M that are ranked exactly
_CELLS = 1 << 24  # scores in memory at a time, 64 MB
_BITS = 24  # products are rounded to multiples of 2^-24 before they are summed

Places = NDArray[np.int32]


def nearest(prompts: Vectors, bank: Vectors, count: int, *, index: bool | None = None) -> Places:
    """The `count` answers with the largest cosine to each prompt, (n, M) rows of the bank.

    The nearest is first; ties go to the lowest row. A prompt of zeros, in which the encoder finds
    no word, has the first rows. A bank of fewer answers is given whole.

    Args:
        prompts: (n, e) unit vectors, float32.
        bank: (N, e) unit vectors, float32.
        count: M.
        index: whether to search by an approximate index; None for one above `EXACT` pairs.
    """
    count = min(count, len(bank))
    if index is None:
        index = len(prompts) * len(bank) > EXACT
    wide = min(count + SPARE, len(bank))
    found = _by_index(prompts, bank, wide) if index else _exact(prompts, bank, wide)
    found = _ranked(prompts, bank, found)[:, :count]
    found[~prompts.any(axis=1)] = np.arange(count)
    return found


def recall(found: Places, exact: Places) -> float:
    """The mean share of each row of `exact` that the same row of `found` holds."""
    shares = [len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, exact, strict=True)]
    return float(np.mean(shares)) if shares else 1.0


def _exact(prompts: Vectors, bank: Vectors, count: int) -> Places:
    """The nearest rows in no order, by blocked products: `_CELLS` scores are held at a time."""
    rows = max(1, min(len(prompts), 256))
    width = max(count, _CELLS // rows)
    out = np.empty((len(prompts), count), np.int32)
    for first in range(0, len(prompts), rows):
        part = prompts[first : first + rows]
        best = np.zeros((len(part), 0), np.float32)
        who = np.zeros((len(part), 0), np.int32)
        for start in range(0, len(bank), width):
            scores = part @ bank[start : start + width].T
            near = _largest(scores, count)
            best = np.hstack([best, np.take_along_axis(scores, near, axis=1)])
            who = np.hstack([who, (near + start).astype(np.int32)])
            keep = _largest(best, count)
            best = np.take_along_axis(best, keep, axis=1)
            who = np.take_along_axis(who, keep, axis=1)
        out[first : first + len(part)] = who
    return out


def _largest(scores: NDArray[Any], count: int) -> NDArray[Any]:
    """The columns of the `count` largest scores of each row, in no order."""
    if scores.shape[1] <= count:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -count, axis=1)[:, -count:]


def _ranked(prompts: Vectors, bank: Vectors, found: Places) -> Places:
    """The rows of `found` in order of cosine, from sums that do not depend on the block."""
    out = np.empty_like(found)
    for row, some in enumerate(found):
        some = np.sort(some)
        products = prompts[row].astype(np.float64) * bank[some]
        cosine = np.sum(np.rint(products * 2**_BITS), axis=1)
        out[row] = some[np.argsort(-cosine, kind="stable")]
    return out


def _by_index(prompts: Vectors, bank: Vectors, count: int) -> Places:
    """The nearest rows by a graph of neighbours; an answer that it does not reach is missed.

    Source: Dong, Moses and Li (2011), "Efficient k-nearest neighbor graph construction".
    """
    from pynndescent import NNDescent

    graph = NNDescent(
        bank, metric="dot", n_neighbors=30, random_state=0, low_memory=True, compressed=False
    )
    found, _ = graph.query(prompts, k=count, epsilon=0.2)
    return np.asarray(found, dtype=np.int32)
