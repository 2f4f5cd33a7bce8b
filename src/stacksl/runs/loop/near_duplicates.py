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

    Two are where their words are equal, or the cosine of their n-grams, weighted by log(n / df), is
    .95 or more: what all items have in common, such as instructions, counts for nothing. Options
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
        picked, known, words = list[int](), self._vectors(taken), set(map(self._words, taken))
        for start in range(0, len(ranked), _AT_ONCE):
            part = ranked[start : start + _AT_ONCE]
            rows = self._vectors(part)
            far = np.ones(len(part), dtype=np.bool_)
            if known.shape[0]:
                far = (rows @ known.T).max(axis=1).toarray()[:, 0] < TWIN
            own = list[int]()
            for place in np.flatnonzero(far).tolist():
                if len(picked) == count:
                    return picked
                said = self._words(part[place])
                if said in words or (own and (rows[own] @ rows[place].T).max() >= TWIN):
                    continue
                words.add(said)
                own.append(place)
                picked.append(part[place])
            known = self._stacked([known, rows[own]])
        chosen = set(picked)
        return [*picked, *islice((row for row in ranked if row not in chosen), count - len(picked))]

    def _text(self, item: Item) -> str:
        return item.prompt if self._classes else "\n".join([item.prompt, *sorted(item.candidates)])

    def _words(self, row: int) -> str:
        return " ".join(re.findall(r"\w+", self._text(self._items[row]).casefold()))

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        """log(n / df) of every n-gram."""
        texts = thinned([self._text(item) for item in self._items])
        found = np.zeros(gram_counts([]).shape[1])
        for start in range(0, len(texts), _AT_ONCE):
            counts = gram_counts(texts[start : start + _AT_ONCE])
            found += np.bincount(counts.indices, minlength=len(found))
        return np.log(len(texts) / np.clip(found, 1.0, len(texts)))

    def _vectors(self, rows: Sequence[int]) -> Any:
        """Rows of norm 1, or of zeros."""
        counts = gram_counts([self._text(self._items[row]) for row in rows])
        counts.data = (1.0 + np.log(counts.data)) * self._weights[counts.indices]
        lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        of_entry = np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(counts.indptr))
        counts.data /= of_entry
        return counts

    def _stacked(self, parts: list[Any]) -> Any:
        import scipy.sparse as sp

        return sp.vstack(parts, format="csr")
