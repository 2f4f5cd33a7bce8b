"""Named arrays on disk, as safetensors: no code in the file, bits back as they went in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import RunError
from stacksl.runs.folder import write_atomic

__all__ = ["load", "save"]


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` to `path`, whole or not at all."""
    from safetensors.numpy import save as to_bytes

    # not `ascontiguousarray`, which gives a scalar a dimension
    write_atomic(path, to_bytes({k: np.asarray(v, order="C") for k, v in arrays.items()}))


def load(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save` wrote.

    Raises:
        RunError: if the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        return dict(from_bytes(path.read_bytes()))
    except (OSError, SafetensorError) as fault:
        raise RunError(
            f"the arrays in {path} cannot be read ({fault}): restore the file, or run again"
        ) from fault
