"""The matrix V beside the gradient scorer: one for pair features, a block a class, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.core.confidence import ConfidenceSet, norms, pair_norms
from stacksl.core.scorers.rows import presented_rows, restored

Widths: TypeAlias = tuple[Array, Callable[[int], Array]]
"""The (m,) widths, and a function from a position to the (m,) pair widths against it."""


class Tracker(Protocol):
    """Norms in V⁻¹, and updates of V by one vector."""

    @property
    def volume(self) -> float:
        """Log det(V/λI), in nats; NaN without V."""
        ...

    def widths(self, inputs: Inputs, presented: tuple[int, ...]) -> Widths:
        """Widths of the presented candidates, and their pair widths against any of them."""
        ...

    def add(self, inputs: Inputs, candidate: int) -> None:
        """V ← V + φ(z, x)φ(z, x)ᵀ for the candidate's index x in the full list."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays that `restore` takes."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`."""
        ...


class OneMatrix:
    """V of pair features: one (d, d) matrix."""

    def __init__(self, dim: int, ridge: float) -> None:
        self.confidence = ConfidenceSet.empty(dim, ridge)

    @property
    def volume(self) -> float:
        """See `Tracker`."""
        return self.confidence.volume

    def widths(self, inputs: Inputs, presented: tuple[int, ...]) -> Widths:
        """See `Tracker`; O(m d²)."""
        assert isinstance(inputs, PairFeatures)
        rows = presented_rows(inputs, presented)
        images = self.confidence.images(rows)
        return norms(rows, images), lambda choice: pair_norms(rows, images, choice)

    def add(self, inputs: Inputs, candidate: int) -> None:
        """See `Tracker`; O(d²)."""
        assert isinstance(inputs, PairFeatures)
        self.confidence.update(inputs.phi[candidate : candidate + 1])

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Tracker`."""
        volume = np.array([self.confidence.volume])
        return {"gram_inv": self.confidence.gram_inv.copy(), "volume": volume}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Tracker`."""
        self.confidence.gram_inv = restored(state, "gram_inv", self.confidence.gram_inv)
        self.confidence.volume = float(restored(state, "volume", np.zeros(1))[0])


class ClassBlocks:
    """V of class heads: block-diagonal, one (d, d) block a class (DESIGN D14).

    φ(z, x) = e_x ⊗ h moves the block of x alone, so a block is made when its class is first
    chosen; until then it is ridge·I.
    """

    def __init__(self, dim: int, ridge: float) -> None:
        self.dim = dim
        self.ridge = ridge
        self.blocks: dict[int, ConfidenceSet] = {}

    @property
    def volume(self) -> float:
        """See `Tracker`; of all blocks."""
        return sum((self.blocks[owner].volume for owner in sorted(self.blocks)), 0.0)

    def widths(self, inputs: Inputs, presented: tuple[int, ...]) -> Widths:
        """See `Tracker`; O(d²) for every presented class that has a block."""
        assert isinstance(inputs, SharedFeatures)
        row = inputs.h[None, :]
        untouched = math.sqrt(float(inputs.h @ inputs.h) / self.ridge)
        widths = np.full(len(presented), untouched)
        for position, candidate in enumerate(presented):
            if candidate in self.blocks:
                widths[position] = self.blocks[candidate].widths(row)[0]
        return widths, lambda choice: class_pair_widths(widths, choice)

    def add(self, inputs: Inputs, candidate: int) -> None:
        """See `Tracker`; O(d²)."""
        assert isinstance(inputs, SharedFeatures)
        if candidate not in self.blocks:
            self.blocks[candidate] = ConfidenceSet.empty(self.dim, self.ridge)
        self.blocks[candidate].update(inputs.h[None, :])

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Tracker`."""
        owners = sorted(self.blocks)
        blocks = np.zeros((len(owners), self.dim, self.dim))
        for slot, owner in enumerate(owners):
            blocks[slot] = self.blocks[owner].gram_inv
        volumes = np.array([self.blocks[owner].volume for owner in owners])
        classes = np.array(owners, dtype=np.int64)
        return {"block_classes": classes, "blocks": blocks, "volumes": volumes}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Tracker`."""
        count = len(state.get("block_classes", ()))
        blocks = restored(state, "blocks", np.zeros((count, self.dim, self.dim)))
        volumes = restored(state, "volumes", np.zeros(count))
        kept = zip(state["block_classes"], blocks, volumes, strict=True)
        self.blocks = {
            int(owner): ConfidenceSet(np.ascontiguousarray(block), self.ridge, volume=float(volume))
            for owner, block, volume in kept
        }


class NoMatrix:
    """No V (`track="theta"`): every width is NaN."""

    volume = math.nan

    def widths(self, inputs: Inputs, presented: tuple[int, ...]) -> Widths:
        """See `Tracker`."""
        unknown = np.full(len(presented), np.nan)
        return unknown, lambda choice: unknown

    def add(self, inputs: Inputs, candidate: int) -> None:
        """See `Tracker`."""

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Tracker`."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Tracker`."""


def class_pair_widths(widths: Array, choice: int) -> Array:
    """‖e_x ⊗ h − e_i ⊗ h‖ for i = `choice` where V is block-diagonal: sqrt(w_x² + w_i²), 0 at i."""
    pairs: Array = np.hypot(widths, widths[choice])
    pairs[choice] = 0.0
    return pairs
