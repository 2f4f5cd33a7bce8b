"""No memory left, as one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stacksl.errors import RunError
from stacksl.lm.scoring.paths import load_torch


@contextmanager
def within_memory(what: str, *, checkpointing: bool = True) -> Iterator[None]:
    """Turn running out of memory, on a GPU or the CPU, into a sentence.

    Args:
        what: what there was not enough memory to do.
        checkpointing: whether gradient checkpointing is on or of no use, so that it is not advised.

    Raises:
        RunError: there was not enough memory.
    """
    torch = load_torch()
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate" not in str(error):
            raise
        more = "" if checkpointing else " or turn checkpointing on"
        raise RunError(
            f"there was not enough memory to {what}: lower batch_tokens{more} (a run goes on with"
            " `stacksl resume RUN --set batch_tokens=N`); its labels are kept"
        ) from None
