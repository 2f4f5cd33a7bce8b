"""The features that a language model renews, on disk: one block an epoch.

The block of an epoch holds the items that the run had when the epoch began. Items added during the
epoch have blocks beside it, in folders named like those of the initial features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stacksl.core.blocks import Block, PairBlock, joined
from stacksl.errors import FeatureError
from stacksl.features.store import has_block, items_in, load_block, save_block
from stacksl.files.private import make_private


@dataclass(frozen=True, slots=True)
class Epochs:
    """The blocks of a run's epochs, from 1.

    Attributes:
        folder: the folder of the run's features.
        ids: the ids of all items.
        parts: the folders of the initial features, and the items that each of them holds.
        base: the initial features of all items.
    """

    folder: Path
    ids: tuple[str, ...]
    parts: Mapping[str, slice]
    base: PairBlock

    def has(self, epoch: int, fingerprint: str) -> bool:
        """Whether the complete features of these weights and items are on disk."""
        place = self._place(epoch)
        if not has_block(place):
            return False
        try:
            load_block(place, fingerprint, self.ids)
        except FeatureError:
            return False
        return True

    def save(self, epoch: int, block: Block, fingerprint: str) -> None:
        """Save the features of all items, with which an epoch begins."""
        make_private(self._place(epoch))
        save_block(self._place(epoch), block, fingerprint, self.ids)

    def filled(self, rows: Sequence[int], fresh: PairBlock | None) -> PairBlock:
        """The block with the features of the items in `rows`, and zeros for the others."""
        phi = np.zeros(self.base.phi.shape, dtype=np.float32)
        base = np.zeros(len(phi), dtype=np.float64)
        if fresh is not None:
            where = np.concatenate([np.arange(*self.base.offsets[r : r + 2]) for r in rows])
            phi[where], base[where] = fresh.phi[:], fresh.base
        return PairBlock(phi, np.array(self.base.offsets), base)

    def missing(self, epoch: int) -> dict[str, slice]:
        """The items added after an epoch began that have no features of it yet."""
        return {
            name: part
            for name, part in self._later(epoch).items()
            if not has_block(self._place(epoch) / name)
        }

    def add(self, epoch: int, name: str, block: Block, fingerprint: str) -> None:
        """Save the features of items added during an epoch."""
        place = self._place(epoch) / name
        make_private(place)
        save_block(place, block, fingerprint, self.ids[self.parts[name]])

    def load(self, epoch: int, fingerprint: str) -> Block:
        """The features of an epoch; zeros for items that could not be asked in it.

        Raises:
            FeatureError: they are damaged, or of other weights or items.
        """
        place = self._place(epoch)
        blocks = [load_block(place, fingerprint, self.ids[: items_in(place)])]
        for name, part in self._later(epoch).items():
            found = has_block(place / name)
            blocks.append(
                load_block(place / name, fingerprint, self.ids[part])
                if found
                else self._zeros(part)
            )
        return joined(blocks)

    def _place(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:02d}"

    def _later(self, epoch: int) -> dict[str, slice]:
        """The parts added after an epoch began; none before the first epoch."""
        if not epoch:
            return {}
        began = items_in(self._place(epoch))
        return {name: part for name, part in self.parts.items() if part.start >= began}

    def _zeros(self, part: slice) -> PairBlock:
        offsets = np.array(self.base.offsets[part.start : part.stop + 1])
        rows = int(offsets[-1] - offsets[0])
        return PairBlock(
            np.zeros((rows, self.base.dim), dtype=np.float32),
            offsets - offsets[0],
            None if self.base.base is None else np.zeros(rows, dtype=np.float64),
        )
