"""What many tests compute alike, computed once in a session of all its processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typer.main import get_command

from stacksl.features.hashing import leading_subspace

MOST = 20_000  # n-grams: the built-in sample has 17,769, a data set of few tests has more


def shared_folder(factory: Any) -> Path:
    """A folder of this session that all workers of xdist have in common."""
    base = Path(factory.getbasetemp())
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(folder: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, kept in `folder` under its name for all processes."""
    with (folder / f"{make.__module__}.{make.__qualname__}").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not file.tell():
            pickle.dump(make(), file)
        file.seek(0)
        return pickle.load(file)


def remember_subspaces(folder: Path) -> Any:
    """`leading_subspace` that keeps in `folder` what it found, for all processes."""

    def found(matrix: Any, dim: int) -> Any:
        if matrix.shape[1] > MOST:
            return leading_subspace(matrix, dim)
        digest = hashlib.sha256(repr((matrix.shape, dim)).encode())
        for part in (matrix.data, matrix.indices, matrix.indptr):
            digest.update(part.tobytes())
        kept = folder / f"{digest.hexdigest()}.npy"
        if not kept.exists():
            mine = folder / f"{os.getpid()}.part"
            with mine.open("wb") as file:
                np.save(file, leading_subspace(matrix, dim))
            mine.rename(kept)
        return np.load(kept)

    return found


def remember_commands() -> Any:
    """Typer's `get_command` that builds the parser of an app once: 50 ms of each call."""
    made: dict[tuple[Any, ...], Any] = {}

    def kept(app: Any) -> Any:
        key = app, *app.registered_commands, *app.registered_groups
        if key not in made:
            made[key] = get_command(app)
        return made[key]

    return kept
