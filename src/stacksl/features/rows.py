"""Rows: from the vectors of an item's texts to its features.

There is no matrix product here, and sums are of integers below 2^53 or run left to right: the bits
of a row depend on its own vectors alone, not on the block that it is computed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, LazyRows, PairBlock, SharedBlock
from stacksl.features.encoders import Vectors
from stacksl.types import Item

Places = NDArray[np.int64]

_BITS = 24  # products are rounded to multiples of 2^-24 before they are summed
_PAIRS_AT_ONCE = 4096
LARGE = 1 << 28  # bytes of pair features above which they are computed where they are read


@dataclass(frozen=True, slots=True)
class ClassRows:
    """h(z) of the prompt alone, for items whose candidates are one fixed set of classes.

    h = [√(1 − b²)·u, b] where the bias b is above 0 (u is the prompt's unit vector, or 0 where
    nothing in it is known), and h = u where b is 0.
    """

    encoded: int
    bias: float
    classes: int

    @property
    def dim(self) -> int:
        """d, the number of columns of h."""
        return self.encoded + (self.bias > 0.0)

    @property
    def description(self) -> str:
        """What fixes the rows, for fingerprints."""
        return f"class rows 1: {self.encoded} to {self.dim}, bias {self.bias}"

    def texts(self, item: Item) -> tuple[str, ...]:
        """The texts that are encoded: the prompt."""
        return (item.prompt,)

    def block(
        self, items: Sequence[Item], vectors: Vectors, places: NDArray[np.int64]
    ) -> SharedBlock:
        """The vectors h (n, d) of `items`.

        Args:
            items: the items.
            vectors: (m, e), of the distinct texts.
            places: for each text of each item, in order, its row in `vectors`.
        """
        h = np.full((len(items), self.dim), self.bias, np.float32)
        scale = np.float32(np.sqrt(1.0 - self.bias**2) * (1.0 - 2.0**-22))  # rounding stays below 1
        np.multiply(vectors[places], scale, out=h[:, : self.encoded])
        return SharedBlock(h, self.classes)


@dataclass(frozen=True, slots=True)
class PairRows:
    """φ(z, x) = [a·√e·(p ∘ c), b·(c − p), g·pᵀc, h], cut to norm 1 where it is longer.

    p and c are the unit vectors (e,) of prompt and candidate. The difference has its sign: its part
    in p is the same for all candidates of an item and drops out of a softmax, so it depends on the
    candidate alone. Where 2e + 2 is above `largest`, the product keeps its first third
    and the difference its first two thirds of the columns, leading coordinates first; the cosine
    is always that of the whole vectors. The weights a, b, g, h are the same for every row, so a
    row's length keeps its meaning; only the few rows longer than 1 are scaled down.

    Args:
        encoded: e, the columns of p and c.
        largest: the most columns that φ may have.
        product, difference, cosine, bias: the weights a, b, g, h.
        scale: what pᵀc is multiplied by in the fixed part of the score; 0 for no fixed part.

    Source: the parts are those of InferSent (Conneau et al. 2017), the difference signed; weights,
        sign and the choice of leading coordinates are measured in `docs/features.md`.
    """

    encoded: int
    largest: int = 384
    product: float = 0.2
    difference: float = 0.6
    cosine: float = 0.35
    bias: float = 0.1
    scale: float = 0.0

    @property
    def products(self) -> int:
        """The columns of p ∘ c that are kept."""
        fits = 2 * self.encoded + 2 <= self.largest
        return self.encoded if fits else self.largest - 2 - self.differences

    @property
    def differences(self) -> int:
        """The columns of c − p that are kept."""
        fits = 2 * self.encoded + 2 <= self.largest
        return self.encoded if fits else min(self.encoded, 2 * (self.largest - 2) // 3 + 1)

    @property
    def dim(self) -> int:
        """d, the number of columns of φ."""
        return self.products + self.differences + 2

    @property
    def description(self) -> str:
        """What fixes the rows, for fingerprints."""
        weights = (self.product, self.difference, self.cosine, self.bias)
        fixed = f", {self.scale} cosines" if self.scale else ""
        kept = f"{self.products}+{self.differences}"
        return f"pair rows 1: {self.encoded} to {kept}, {weights}{fixed}"

    def texts(self, item: Item) -> tuple[str, ...]:
        """The texts that are encoded: the prompt, then the candidates."""
        return (item.prompt, *item.candidates)

    def block(
        self, items: Sequence[Item], vectors: Vectors, places: NDArray[np.int64]
    ) -> PairBlock:
        """The rows φ (ΣK, d) of `items`.

        Args:
            items: the items.
            vectors: (m, e), of the distinct texts.
            places: for each text of each item, in order, its row in `vectors`.
        """
        sizes = np.array([len(item.candidates) for item in items], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = offsets[:-1] + np.arange(len(items))  # the position of an item's prompt in `places`
        candidates = np.delete(places, first)
        prompts = np.repeat(places[first], sizes)
        base = self._fixed(vectors, prompts, candidates) if self.scale else None
        if 4 * len(candidates) * self.dim > LARGE:
            used, index = np.unique(candidates, return_inverse=True)
            own = vectors[places[first]], vectors[used], index.astype(np.int32)
            return PairBlock(Gathered(*own, offsets), offsets, base)
        phi = np.empty((len(candidates), self.dim), np.float32)
        for start in range(0, len(phi), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            phi[part] = self.rows(vectors[prompts[part]], vectors[candidates[part]])
        return PairBlock(phi, offsets, base)

    def _fixed(self, vectors: Vectors, prompts: Places, candidates: Places) -> Array:
        """The fixed part of the scores, (ΣK,), of prompts and candidates by their rows."""
        base = np.empty(len(candidates))
        for start in range(0, len(base), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            p = vectors[prompts[part]].astype(np.float64)
            base[part] = self.scale * _cosines(p * vectors[candidates[part]])
        return base

    def rows(self, prompts: Vectors, candidates: Vectors) -> Vectors:
        """φ (n, d) of n pairs, from the vectors (n, e) of their prompts and candidates."""
        p, c = prompts.astype(np.float64), candidates.astype(np.float64)
        product = p * c
        phi = np.empty((len(p), self.dim))
        phi[:, : self.products] = product[:, : self.products] * self.product * np.sqrt(self.encoded)
        phi[:, self.products : -2] = (c - p)[:, : self.differences] * self.difference
        phi[:, -2] = _cosines(product) * self.cosine
        phi[:, -1] = self.bias
        return _cut(phi)


Rows: TypeAlias = ClassRows | PairRows
"""Which texts of an item are encoded, and how their vectors become features."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(LazyRows):
    """The rows φ (ΣK, d) of pairs, computed where they are read: vectors are kept, not pairs.

    Args:
        prompts: (n, e), one an item.
        candidates: (m, e), distinct ones; items may share them.
        index: (ΣK,) int32, the row in `candidates` of each pair.
        offsets: (n + 1,), item i having the pairs offsets[i] to offsets[i + 1].
    """

    prompts: Vectors
    candidates: Vectors
    index: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """(ΣK, d)."""
        return len(self.index), self._rows.dim

    def __getitem__(self, places: slice | NDArray[np.int64]) -> Vectors:
        if isinstance(places, slice):
            places = np.arange(*places.indices(len(self.index)))
        owners = np.searchsorted(self.offsets, places, side="right") - 1
        phi = np.empty((len(places), self.shape[1]), np.float32)
        for start in range(0, len(places), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            candidates = self.candidates[self.index[places[part]]]
            phi[part] = self._rows.rows(self.prompts[owners[part]], candidates)
        return phi

    @property
    def _rows(self) -> PairRows:
        return PairRows(self.prompts.shape[1])


def _cosines(products: Array) -> Array:
    """The sums of the rows of `products`, (n, e), in any order of summation the same."""
    found: Array = np.sum(np.rint(products * 2**_BITS), axis=1) * 2.0**-_BITS
    return found


def _cut(phi: Array) -> Vectors:
    """Float32 rows, those longer than 1 scaled down to a norm just below it."""
    length = np.sqrt(np.add.accumulate(phi * phi, axis=1)[:, -1:])  # left to right: a fixed order
    cut: Vectors = (phi / np.maximum(length * (1.0 + 1e-6), 1.0)).astype(np.float32)
    return cut
