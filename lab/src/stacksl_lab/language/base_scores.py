"""What base weights score, kept in a folder between the runs of a study.

They begin with the same model and mostly the same items: within `shared_scores` the base weights
read a block of items once, and later runs load its numbers, bit for bit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stacksl.core.blocks import Array
from stacksl.files.atomic import write_atomic
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Use
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.worker import Worker

Read: TypeAlias = list[tuple[Array, ...]]
"""Of each item of a block: log-likelihoods (k,) and, where asked for, states (k, hidden)."""


@contextmanager
def shared_scores(folder: Path) -> Iterator[None]:
    """Keep what base weights score in `folder`, and use what is there.

    It holds for the language models that this process makes within the block: `LanguageModel` takes
    its worker from its module, where another one stands meanwhile.
    """
    language_model = import_module("stacksl.lm.model")

    class Keeping(KeepingWorker):
        kept_in = folder

    before = language_model.Worker
    language_model.Worker = Keeping  # type: ignore[attr-defined]
    try:
        yield
    finally:
        language_model.Worker = before  # type: ignore[attr-defined]


class KeepingWorker(Worker):
    """A `Worker` that reads a block with base weights once.

    Attributes:
        kept_in: the folder of what was read.
    """

    kept_in: Path

    @cached_property
    def _computed(self) -> str:
        """What the numbers of the base depend on besides the items."""
        base, choices = self.base, self._choices
        return repr(
            (base.fingerprint, base.dtype, base.device, choices.path, choices.batch_tokens,
             load_torch().get_num_threads())
        )  # fmt: skip

    def _block_sums(self, block: Sequence[TokenItem]) -> list[Array]:
        read = super()._block_sums
        found = self._once("without", block, lambda: [(sums,) for sums in read(block)])
        return [sums for (sums,) in found]

    def _block_states(self, block: Sequence[TokenItem]) -> list[tuple[Array, Array]]:
        read = super()._block_states
        found = self._once("states", block, lambda: [*read(block)])
        return [(sums, states) for sums, states in found]

    def _once(self, use: Use, block: Sequence[TokenItem], work: Callable[[], Read]) -> Read:
        """What `work` gives of a block, computed or, under base weights, loaded."""
        if self.moved:
            return work()
        rows = repr([(i.prompt, i.options, i.spans, i.lost) for i in block])
        name = blake2b(f"{use} {self._computed} {rows}".encode(), digest_size=16).hexdigest()
        file, used = self.kept_in / f"{name}.npz", self.likelihood.used
        if file.exists():
            with np.load(file) as kept:
                parts = [kept[each].astype(np.float64) for each in sorted(kept) if each != "path"]
                used[use] = str(kept["path"])
            cuts = np.cumsum([len(item.options) for item in block])[:-1]
            return list(zip(*(np.split(part, cuts) for part in parts), strict=True))
        found = work()
        whole = [np.concatenate(each).astype(np.float32) for each in zip(*found, strict=True)]
        arrays = {f"part{n}": each for n, each in enumerate(whole)}
        buffer = io.BytesIO()
        np.savez(buffer, path=np.array(used[use]), **arrays)  # type: ignore[arg-type]
        self.kept_in.mkdir(parents=True, exist_ok=True)
        write_atomic(file, buffer.getvalue())
        return found
