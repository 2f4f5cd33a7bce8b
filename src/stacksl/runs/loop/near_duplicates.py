"""Items of a pool that ask nearly the same: the second label teaches a language model little."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.features.hashing import gram_counts, thinned
from stacksl.types import Item

TWIN = 0.95  # cosine from which two items ask nearly the same
_AT_ONCE = 512


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
        for start in range(0, len(ranked), _AT_ONCE):
            chunk = ranked[start : start + _AT_ONCE]
            vectors, positions = self._vectors(chunk), list[int]()
            twins = np.zeros(len(chunk), bool)
            if taken_vectors.shape[0]:
                twins = (vectors @ taken_vectors.T).max(axis=1).toarray().ravel() >= TWIN
            alike = (vectors @ vectors.T).toarray() >= TWIN
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
        for start in range(0, len(texts), _AT_ONCE):
            counts = gram_counts(texts[start : start + _AT_ONCE])
            frequencies += np.bincount(counts.indices, minlength=len(frequencies))
        return np.log(len(texts) / np.clip(frequencies, 1.0, len(texts)))

    def _vectors(self, rows: Sequence[int]) -> Any:
        """Rows of norm 1, or of zeros."""
        counts = gram_counts([self._text(self._items[row]) for row in rows])
        counts.data = (1.0 + np.log(counts.data)) * self._weights[counts.indices]
        lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        counts.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(counts.indptr))
        return counts
