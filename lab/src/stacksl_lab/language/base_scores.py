"""What base weights score, kept in a folder between the runs of a study.

They begin with the same model and mostly the same items: within `shared_scores` the base weights
read a block of items once, and later runs load its numbers, bit for bit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import numpy as np

from stacksl.files.atomic import write_atomic
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Quantity
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.worker import Numbers, Worker


@contextmanager
def shared_scores(folder: Path) -> Iterator[None]:
    """Keep what base weights score in `folder`, and use what is there.

    It holds for the language models that this process makes within the block: `LanguageModel` takes
    its worker from its module, where another one stands meanwhile.
    """
    language_model = import_module("stacksl.lm.model")

    class CachingHere(CachingWorker):
        cache = folder

    before = language_model.Worker
    language_model.Worker = CachingHere  # type: ignore[attr-defined]
    try:
        yield
    finally:
        language_model.Worker = before  # type: ignore[attr-defined]


class CachingWorker(Worker):
    """A `Worker` that reads a block with base weights once.

    Attributes:
        cache: the folder of what was read.
    """

    cache: Path

    @cached_property
    def _computed(self) -> str:
        """What the numbers of the base depend on besides the items."""
        base, choices = self.base, self._choices
        return repr(
            (base.fingerprint, base.dtype, base.device, choices.batch_tokens,
             load_torch().get_num_threads())
        )  # fmt: skip

    def _block(self, block: Sequence[TokenItem], quantity: Quantity) -> list[Numbers]:
        """What is read of a block, computed or, under base weights, loaded."""
        if self.moved:
            return super()._block(block, quantity)
        rows = repr([(item.prompt, item.options) for item in block])
        name = blake2b(f"{quantity} {self._computed} {rows}".encode(), digest_size=16).hexdigest()
        file, used = self.cache / f"{name}.npz", self.likelihood.used
        if file.exists():
            with np.load(file) as saved:
                names = [key for key in sorted(saved) if key != "path"]
                parts = [saved[key].astype(np.float64) for key in names]
                used[quantity] = str(saved["path"])  # type: ignore[assignment]
            cuts = np.cumsum([len(item.options) for item in block])[:-1]
            cut = [np.split(part, cuts) for part in parts]
            return list(zip(cut[0], cut[1] if cut[1:] else [None] * len(block), strict=True))
        numbers = super()._block(block, quantity)
        joined = [np.concatenate([sums for sums, _ in numbers]).astype(np.float32)]
        if quantity == "states":
            state_rows = [states for _, states in numbers if states is not None]
            joined.append(np.concatenate(state_rows).astype(np.float32))
        arrays = {f"part{n}": part for n, part in enumerate(joined)}
        buffer = io.BytesIO()
        np.savez(buffer, path=np.array(used[quantity]), **arrays)  # type: ignore[arg-type]
        self.cache.mkdir(parents=True, exist_ok=True)
        write_atomic(file, buffer.getvalue())
        return numbers
