"""Named arrays on disk, as safetensors: no code in the file, and restored bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import RunError
from stacksl.files.atomic import write_atomic
from stacksl.files.formats import DIGEST, expect_digest


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` and their digest to `path`, atomically."""
    write_atomic(path, to_bytes(arrays))


def load(path: Path, remedy: str = "restore it from a copy, or start a new run") -> dict[str, Any]:
    """The arrays that `save` wrote; the `remedy` says what to do where they cannot be read.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        return from_bytes(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): {remedy}") from fault


def to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """`arrays` as the content of a file, with their digest."""
    from safetensors.numpy import save

    # not `ascontiguousarray`, which gives a scalar a dimension
    content = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    digest = np.frombuffer(sha256(save(content)).digest(), np.uint8)
    return bytes(save({**content, DIGEST: digest}))


def from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in bytes written by `to_bytes`.

    Raises:
        ValueError: the bytes do not match their digest.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    try:
        arrays = dict(load(data))
    except SafetensorError as fault:
        raise ValueError(str(fault)) from fault
    digest = arrays.pop(DIGEST, None)
    stored_digest = None if digest is None else digest.tobytes()
    expect_digest(stored_digest, sha256(save(arrays)).digest())
    return arrays
