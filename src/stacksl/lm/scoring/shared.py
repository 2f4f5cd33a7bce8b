"""Scores and states of base weights, kept in a folder for other runs over the same items.

The runs of a study begin with the same model and mostly the same items. Within `shared_scores` a
block of items is read by the base weights once; later runs load its numbers, bit for bit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stacksl.core.blocks import Array
from stacksl.files.atomic import write_atomic
from stacksl.lm.prompt.tokens import TokenItem

Read: TypeAlias = list[tuple[Array, ...]]
"""Of each item of a block: log-likelihoods (k,) and, where asked for, states (k, hidden)."""

_FOLDER: ContextVar[Path | None] = ContextVar("shared_scores", default=None)


@contextmanager
def shared_scores(folder: Path) -> Iterator[None]:
    """Keep what base weights score in `folder`, and use what is there."""
    before = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def once(
    by: str, items: Sequence[TokenItem], work: Callable[[], Read], path: Callable[[], str]
) -> tuple[Read, str]:
    """What `work` gives of `items`, computed or loaded, and the scoring path that computed it.

    Args:
        by: names all else that the numbers depend on: weights, computation, kind.
        items: one block.
        work: computes them; the numbers are float32.
        path: the scoring path that it took.
    """
    folder = _FOLDER.get()
    if folder is None:
        return work(), path()
    rows = repr([(i.prompt, i.options, i.spans, i.lost) for i in items])
    file = folder / f"{blake2b(f'{by} {rows}'.encode(), digest_size=16).hexdigest()}.npz"
    if file.exists():
        with np.load(file) as kept:
            parts = [kept[name].astype(np.float64) for name in sorted(kept) if name != "path"]
            taken = str(kept["path"])
        cuts = np.cumsum([len(item.options) for item in items])[:-1]
        return list(zip(*(np.split(part, cuts) for part in parts), strict=True)), taken
    found = work()
    whole = [np.concatenate(each).astype(np.float32) for each in zip(*found, strict=True)]
    arrays = {f"part{n}": each for n, each in enumerate(whole)}
    buffer = io.BytesIO()
    np.savez(buffer, path=np.array(path()), **arrays)  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, buffer.getvalue())
    return found, path()
