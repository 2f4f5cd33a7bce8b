"""What happens where a batch does not fit in memory: it is halved, down to one item."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stacksl.errors import RunError
from stacksl.lm.scoring.paths import load_torch


def out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left, on a GPU or the CPU."""
    if isinstance(error, MemoryError | load_torch().OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def within_memory(what: str, *, checkpointing: bool = True) -> Iterator[None]:
    """Turn running out of memory for one item into a sentence.

    Args:
        what: what there was not enough memory to do.
        checkpointing: whether gradient checkpointing is on or of no use, so that it is not advised.

    Raises:
        RunError: there was not enough memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        way = "start a run with a smaller max_len_prompt or another model"
        if not checkpointing:
            way = f"go on with `stacksl resume RUN --set checkpointing=true`, or {way}"
        raise RunError(
            f"there was not enough memory to {what}, one item at a time: {way}; the labels are kept"
        ) from None
