"""Texts as vectors of their words and characters, which the model in this folder takes.

The n-grams of a text are hashed, weighted and projected, as stacksl does it for `hashing`.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

BUCKETS = 2**18  # for words; those of characters follow
ALL = 2**32 - 1


class Grams:
    """The n-grams that the model knows, their weights, and the projection."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "grams.npz") as arrays:
            self.known, self.idf, self.basis = (arrays[name] for name in ("grams", "idf", "basis"))

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """A vector of norm 1 for each text, or 0 where no n-gram is known."""
        return {"vector": np.stack([self.vector(text) for text in texts])}

    def vector(self, text: str) -> Any:
        """(1 + log count) · idf of each known n-gram, scaled by kind, projected, of norm 1."""
        grams, counts = np.unique(np.array([*columns(text)], np.int64), return_counts=True)
        known = np.isin(grams, self.known)
        grams, places = grams[known], np.searchsorted(self.known, grams[known])
        x = np.rint((1.0 + np.log(counts[known])) * self.idf[places])
        kind = (grams < BUCKETS).astype(np.int64)  # words and characters have norm 1 each
        squares = np.bincount(kind, x**2, minlength=2)
        x = np.rint(x / np.sqrt(squares[kind] * np.count_nonzero(squares)) * 2**14)
        projected = x @ self.basis[places].astype(np.float64)
        _, exponent = np.frexp(np.max(np.abs(projected), initial=0.0) or 1.0)
        whole = np.rint(np.ldexp(projected, 20 - exponent))
        return (whole / (np.sqrt(whole @ whole) or 1.0)).astype(np.float32)


def columns(text: str) -> Iterator[int]:
    """The bucket of each n-gram: one and two words, and 3 to 5 characters inside words."""
    text = unicodedata.normalize("NFKC", text).lower()
    words = re.findall(r"\b\w+\b", text)
    for gram in [*words, *map(" ".join, pairwise(words))]:
        yield murmur(gram.encode()) % BUCKETS
    for word in (f" {word} " for word in text.split()):
        for size in range(3, min(5, len(word)) + 1):
            for start in range(len(word) - size + 1):
                yield BUCKETS + murmur(word[start : start + size].encode()) % BUCKETS


def murmur(data: bytes) -> int:
    """The absolute value of MurmurHash3, of 32 bits with a sign, from seed 0."""
    found = 0
    for start in range(0, len(data), 4):
        part = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & ALL
        found ^= (part << 15 | part >> 17) * 0x1B873593 & ALL
        if start + 4 <= len(data):
            found = ((found << 13 | found >> 19) * 5 + 0xE6546B64) & ALL
    found ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ found >> shift) * factor & ALL
    return min(found, 2**32 - found)
