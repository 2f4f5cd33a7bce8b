"""What many runs of the same few texts compute alike, computed once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.features.hashing import leading_subspace

MOST = 1000  # n-grams: more are those of a data set that few tests have


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
