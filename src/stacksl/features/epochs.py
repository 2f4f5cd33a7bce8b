"""The features that a language model renews, as they lie on disk: one block an epoch.

The block of an epoch has the items that the run had when the epoch began. Items that were added in
the middle of it have blocks beside it, in folders named like those of the initial features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stacksl.core.blocks import Block, PairBlock, joined
from stacksl.errors import FeatureError
from stacksl.features.store import freeze, is_frozen, items_in, thaw
from stacksl.files.private import make_private


@dataclass(frozen=True, slots=True)
class Epochs:
    """The blocks of a run's epochs, from 1.

    Attributes:
        folder: of the run's features.
        ids: of all items.
        parts: the folders of the initial features and the items whose rows each of them holds.
        base: the initial features of all items.
    """

    folder: Path
    ids: tuple[str, ...]
    parts: Mapping[str, slice]
    base: PairBlock

    def has(self, epoch: int, fingerprint: str) -> bool:
        """Whether a run that was cut off left the whole features of these weights and items."""
        place = self._place(epoch)
        if not is_frozen(place):
            return False
        try:
            thaw(place, fingerprint, self.ids)
        except FeatureError:
            return False
        return True

    def save(self, epoch: int, block: Block, fingerprint: str) -> None:
        """Keep the features of all items, with which an epoch begins."""
        make_private(self._place(epoch))
        freeze(self._place(epoch), block, fingerprint, self.ids)

    def missing(self, epoch: int) -> dict[str, slice]:
        """The items that were added after an epoch had begun and have no features of it yet."""
        return {
            name: part
            for name, part in self._later(epoch).items()
            if not is_frozen(self._place(epoch) / name)
        }

    def add(self, epoch: int, name: str, block: Block, fingerprint: str) -> None:
        """Keep the features of items that were added in the middle of an epoch."""
        place = self._place(epoch) / name
        make_private(place)
        freeze(place, block, fingerprint, self.ids[self.parts[name]])

    def load(self, epoch: int, fingerprint: str) -> Block:
        """The features of an epoch; zeros for items that nobody could ask for in it.

        Raises:
            FeatureError: they are damaged, or of other weights or items.
        """
        place = self._place(epoch)
        blocks = [thaw(place, fingerprint, self.ids[: items_in(place)])]
        for name, part in self._later(epoch).items():
            found = is_frozen(place / name)
            blocks.append(
                thaw(place / name, fingerprint, self.ids[part]) if found else self._zeros(part)
            )
        return joined(blocks)

    def _place(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:02d}"

    def _later(self, epoch: int) -> dict[str, slice]:
        """The parts behind the items that an epoch began with; none before the first epoch."""
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
