"""The two forms of features, for pairs and for class heads, of one item and of a block of items.

The algorithms never read a prompt or a candidate: a feature map (`stacksl.features`) turns items
into these arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PairFeatures:
    """φ(z, x) of one item's candidates: `phi` is (K, d) float64, rows of norm at most 1.

    `offset` is the fixed part of the scores, (K,) float64 in score units, so that a score is
    offset_x + θᵀφ(z, x); None where there is none. For a language model it holds the model's
    own scores, and θ learns the difference (`docs/paper.md`, D12).
    """

    phi: Array
    offset: Array | None = None

    @property
    def size(self) -> int:
        """K, the number of candidates."""
        return len(self.phi)

    @property
    def dim(self) -> int:
        """d, the number of columns."""
        return int(self.phi.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class SharedFeatures:
    """φ(z, x) = e_x ⊗ h(z) for a fixed set of classes; the K rows of length K·d are never built.

    `h` is (d,) float64 of norm at most 1; `size` is K, the number of candidates.
    """

    h: Array
    size: int

    @property
    def dim(self) -> int:
        """d, the number of columns of h."""
        return len(self.h)


Inputs: TypeAlias = PairFeatures | SharedFeatures


@dataclass(frozen=True, slots=True, eq=False)
class PairBlock(Sequence[PairFeatures]):
    """Pair features of n items.

    `phi` is (ΣK, d), float32 or float64, perhaps memory-mapped; `offsets` is (n + 1,)
    int64, and item i owns the rows offsets[i] to offsets[i + 1]. `base` is (ΣK,), the fixed part
    of every row's score (`PairFeatures.offset`), or None.
    """

    phi: NDArray[Any]
    offsets: NDArray[np.int64]
    base: NDArray[Any] | None = None

    @property
    def dim(self) -> int:
        """d, the number of columns."""
        return int(self.phi.shape[1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> PairFeatures: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PairFeatures]: ...
    def __getitem__(self, index: int | slice) -> PairFeatures | Sequence[PairFeatures]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]  # a negative index would pair the wrong offsets
        start, stop = self.offsets[index], self.offsets[index + 1]
        phi = np.asarray(self.phi[start:stop], dtype=np.float64)
        if self.base is None:
            return PairFeatures(phi)
        return PairFeatures(phi, np.asarray(self.base[start:stop], dtype=np.float64))

    def take(self, indices: Sequence[int]) -> PairBlock:
        """The block of the items at `indices`, in that order."""
        rows = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices]
        sizes = np.array([len(r) for r in rows], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        picked = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        base = None if self.base is None else np.asarray(self.base[picked])
        return PairBlock(np.asarray(self.phi[picked]), offsets, base)


@dataclass(frozen=True, slots=True, eq=False)
class SharedBlock(Sequence[SharedFeatures]):
    """Shared features of n items: `h` is (n, d), float32 or float64, perhaps memory-mapped."""

    h: NDArray[Any]
    classes: int

    @property
    def dim(self) -> int:
        """d, the number of columns of h."""
        return int(self.h.shape[1])

    def __len__(self) -> int:
        return len(self.h)

    @overload
    def __getitem__(self, index: int) -> SharedFeatures: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SharedFeatures]: ...
    def __getitem__(self, index: int | slice) -> SharedFeatures | Sequence[SharedFeatures]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return SharedFeatures(np.asarray(self.h[index], dtype=np.float64), self.classes)

    def take(self, indices: Sequence[int]) -> SharedBlock:
        """The block of the items at `indices`, in that order."""
        return SharedBlock(np.asarray(self.h[np.asarray(indices, dtype=np.int64)]), self.classes)


Block: TypeAlias = PairBlock | SharedBlock


def joined(blocks: Sequence[Block]) -> Block:
    """One block of the items of several of one kind, in order; a single one is unchanged."""
    first_block = blocks[0]
    if len(blocks) == 1:
        return first_block
    if isinstance(first_block, SharedBlock):
        shared = [block for block in blocks if isinstance(block, SharedBlock)]
        return SharedBlock(np.concatenate([block.h for block in shared]), first_block.classes)
    pairs = [block for block in blocks if isinstance(block, PairBlock)]
    sizes = np.concatenate([np.diff(block.offsets) for block in pairs])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    bases = [block.base for block in pairs if block.base is not None]
    base = np.concatenate(bases) if len(bases) == len(pairs) else None
    return PairBlock(np.concatenate([block.phi for block in pairs]), offsets, base)
