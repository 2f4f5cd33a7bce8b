"""Batch selection: the items with the smallest margins, spread over the pool.

All items of a batch are ranked by one head, and items with small margins are often near-duplicates,
whose labels add little to each other. So the predicted classes take turns, and no two items of a
batch may be nearly the same. A language model's features compare no items, but the texts can be
compared (`NearDuplicates`): the second label of two that ask nearly the same teaches it little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, PairBlock
from stacksl.core.scorers import Head
from stacksl.features.hashing import gram_counts, thinned
from stacksl.types import Item

TWIN = 0.8  # cosine from which two items count as near-duplicates
NEARLY_SAME = 0.95  # cosine of the n-grams of two texts that ask nearly the same


_AT_ONCE = 1024  # rows scored at a time
_COMPARED = 512  # texts compared at a time
_CANDIDATES = 20  # ranked items considered for each item of the batch


def margins(
    head: Head, block: Block, rows: Sequence[int]
) -> tuple[Array, NDArray[np.int64] | None]:
    """Minus the difference of the two largest probabilities of each item, (n,), and its class.

    The class is the most probable one, (n,); None for pair features, whose candidates differ from
    item to item. An item with one candidate has −inf, since its label is known.
    """
    statistics = np.empty(len(rows))
    predicted_classes = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        chunk = slice(start, start + _AT_ONCE)
        policies = head.probabilities(block.take(rows[chunk]))
        if isinstance(policies, np.ndarray):
            predicted_classes[chunk] = np.argmax(policies, axis=1)
            best = np.partition(policies, -2, axis=1)
            statistics[chunk] = best[:, -2] - best[:, -1]
        else:
            statistics[chunk] = [_margin(policy) for policy in policies]
    return statistics, None if isinstance(block, PairBlock) else predicted_classes


def surest(head: Head, block: Block, rows: Sequence[int]) -> Array:
    """The probability of the head's choice for each item, (n,)."""
    largest = [np.zeros(0)]
    for start in range(0, len(rows), _AT_ONCE):
        policies = head.probabilities(block.take(rows[start : start + _AT_ONCE]))
        if isinstance(policies, np.ndarray):
            largest.append(policies.max(axis=1))
        else:
            largest.append(np.array([policy.max() for policy in policies]))
    return np.concatenate(largest)


def _margin(policy: Array) -> float:
    if len(policy) < 2:
        return float("-inf")
    second_largest, largest = np.partition(policy, -2)[-2:]
    return float(second_largest - largest)


def spread_out(
    ranked: Sequence[int],
    count: int,
    block: Block,
    predicted: Sequence[int] | None = None,
) -> list[int]:
    """`count` of the rows in `ranked`: near the top, and different from one another.

    The predicted classes take turns, each with its best row left, and near-duplicates of selected
    rows are skipped. Where too few rows are left, the best of the skipped ones fill up.

    Args:
        ranked: rows of the block, the best first; the first 20·`count` are considered.
        count: how many to select; all of them if there are fewer.
        block: the features that are compared: h of an item, or the mean of its φ.
        predicted: the class of each of `ranked`; None where there are none.
    """
    candidates = list(ranked[: _CANDIDATES * count])
    directions = _directions(block, candidates)
    positions: list[int] = []
    for position in _in_turns(predicted, len(candidates)):
        if len(positions) == count:
            break
        if not positions or float((directions[positions] @ directions[position]).max()) < TWIN:
            positions.append(position)
    picked_rows = [candidates[position] for position in positions]
    picked_set = set(picked_rows)
    remaining_rows = (row for row in ranked if row not in picked_set)
    return [*picked_rows, *islice(remaining_rows, count - len(picked_rows))]


def _in_turns(predicted: Sequence[int] | None, count: int) -> list[int]:
    """The first `count` positions, the best of each class first, then the second best of each."""
    if predicted is None:
        return list(range(count))
    counts: Counter[int] = Counter()
    turns = []
    for position in range(count):
        turns.append((counts[predicted[position]], position))
        counts[predicted[position]] += 1
    return [position for _, position in sorted(turns)]


def _directions(block: Block, rows: Sequence[int]) -> NDArray[Any]:
    """(n, d): the features of each item, of length 1, or 0 where they are zero."""
    features = block.take(rows)
    if isinstance(features, PairBlock):
        spans = pairwise(features.offsets)
        means = [features.phi[a:b].mean(axis=0) for a, b in spans]
        vectors = np.array(means, dtype=np.float64).reshape(-1, features.dim)
    else:
        vectors = np.asarray(features.h, dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


class NearDuplicates:
    """Which items of a pool are nearly the same.

    Two are where their n-grams, weighted by log(n / df), have a cosine of .95 or more: equal words
    have 1, and what all items have in common, such as instructions, counts for nothing. Options
    that an item brings of its own belong to its text.

    Args:
        items: of the pool, by row.
        classes: whether all share the same options.
    """

    def __init__(self, items: Sequence[Item], *, classes: bool) -> None:
        self._items, self._classes = items, classes

    def without(self, ranked: Sequence[int], taken: Sequence[int], count: int) -> list[int]:
        """The first `count` of the rows in `ranked` of which none is nearly another or one `taken`.

        Where too few are left, the first of the others fill up.
        """
        import scipy.sparse as sp

        picked_rows, taken_vectors = list[int](), self._vectors(taken)
        for start in range(0, len(ranked), _COMPARED):
            chunk = ranked[start : start + _COMPARED]
            vectors, positions = self._vectors(chunk), list[int]()
            twins = np.zeros(len(chunk), bool)
            if taken_vectors.shape[0]:
                twins = (vectors @ taken_vectors.T).max(axis=1).toarray().ravel() >= NEARLY_SAME
            alike = (vectors @ vectors.T).toarray() >= NEARLY_SAME
            for position in np.flatnonzero(~twins).tolist():
                if len(picked_rows) == count:
                    return picked_rows
                if not alike[position, positions].any():
                    picked_rows.append(chunk[position])
                    positions.append(position)
            taken_vectors = sp.vstack([taken_vectors, vectors[positions]], format="csr")
        picked_set = set(picked_rows)
        other_rows = (row for row in ranked if row not in picked_set)
        return [*picked_rows, *islice(other_rows, count - len(picked_rows))]

    def _text(self, item: Item) -> str:
        texts = [item.prompt] if self._classes else [item.prompt, *sorted(item.candidates)]
        return " ".join(re.findall(r"\w+", " ".join(texts)))

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        """log(n / df) of every n-gram."""
        texts = thinned([self._text(item) for item in self._items])
        frequencies = np.zeros(gram_counts([]).shape[1])
        for start in range(0, len(texts), _COMPARED):
            counts = gram_counts(texts[start : start + _COMPARED])
            frequencies += np.bincount(counts.indices, minlength=len(frequencies))
        return np.log(len(texts) / np.clip(frequencies, 1.0, len(texts)))

    def _vectors(self, rows: Sequence[int]) -> Any:
        """Rows of norm 1, or of zeros."""
        counts = gram_counts([self._text(self._items[row]) for row in rows])
        counts.data = (1.0 + np.log(counts.data)) * self._weights[counts.indices]
        lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        counts.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(counts.indptr))
        return counts
