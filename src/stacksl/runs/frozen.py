"""The features a run uses: frozen before round 1, hashed row by row, read back memory-mapped.

Each row has a hash of its own, so that one row can be erased later and the others still verify.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError
from stacksl.game.inputs import Block, PairBlock, SharedBlock
from stacksl.runs.folder import write_atomic

__all__ = ["erase", "freeze", "is_frozen", "items_in", "thaw"]

DIGEST = 16  # bytes of BLAKE2b per row
KEYS = {"kind", "classes", "dim", "fingerprint", "offsets"}  # of features.json


def is_frozen(folder: Path) -> bool:
    """Whether `folder` holds complete features: the description is written last."""
    return (folder / "features.json").is_file()


def items_in(folder: Path) -> int:
    """How many items a frozen block is of.

    Raises:
        FeatureError: it cannot be read.
    """
    return int(_about(folder)["items"])


def freeze(folder: Path, block: Block, fingerprint: str, ids: Sequence[str] = ()) -> None:
    """Write `block` of the items `ids`, in their order; `fingerprint` names the feature map.

    The fixed part of the scores, where pair features have one, is hashed with its row.
    """
    rows = block.h if isinstance(block, SharedBlock) else block.phi
    _save(folder / "rows.npy", np.ascontiguousarray(rows))
    if isinstance(block, PairBlock):
        _save(folder / "offsets.npy", block.offsets)
    base = _base_of(block)
    if base is not None:
        _save(folder / "base.npy", base)
    write_atomic(folder / "rows.blake2b", b"".join(_digests(rows, base)))
    about = {
        "kind": "shared" if isinstance(block, SharedBlock) else "pairs",
        "classes": block.classes if isinstance(block, SharedBlock) else None,
        "items": len(block),
        "dim": block.dim,
        "fingerprint": fingerprint,
        "order": _order(ids),
        "offsets": _digest(block.offsets).hex() if isinstance(block, PairBlock) else None,
        "base": base is not None,
    }
    write_atomic(folder / "features.json", json.dumps(about))


def thaw(folder: Path, fingerprint: str | None = None, ids: Sequence[str] | None = None) -> Block:
    """The frozen block, memory-mapped, every row verified against its hash.

    Raises:
        FeatureError: if a file is missing or damaged, another feature map made it, or the items
            `ids` are not in the order of its rows.
    """
    about = _about(folder)
    if ids is not None and about.get("order") != _order(ids):
        raise FeatureError(
            "the data file should have the items it had when the run began, in the same order, but"
            " they differ: restore the file's rows and their order"
        )
    if fingerprint is not None and about["fingerprint"] != fingerprint:
        raise FeatureError(
            f"the run's features were made by {about['fingerprint'][:12]}, but the feature map here"
            f" is {fingerprint[:12]}: resume with the versions and weights in resolved.toml"
        )
    rows = _load(folder / "rows.npy")
    base = _load(folder / "base.npy") if about.get("base") else None
    _verify(rows, base, folder)
    if rows.ndim != 2 or rows.shape[1] != about["dim"]:
        raise FeatureError(
            f"the run's features should have dimension {about['dim']}, but rows.npy has shape"
            f" {rows.shape}: restore the folder {folder} or start a new run"
        )
    if about["kind"] == "shared":
        return SharedBlock(rows, int(about["classes"]))
    offsets = np.array(_load(folder / "offsets.npy"))
    if _digest(offsets).hex() != about["offsets"]:
        raise FeatureError(
            f"{folder / 'offsets.npy'} does not match its hash: the file was changed; restore it"
            " or start a new run"
        )
    return PairBlock(rows, offsets, base)


def erase(folder: Path, row: int, ids: Sequence[str]) -> None:
    """Overwrite the features of item number `row` by zeros; `ids` are all ids from now on.

    The bytes are overwritten where they lie. Doing it again after a crash completes it.

    Raises:
        FeatureError: a file is missing, or has another number of rows.
    """
    about = _about(folder)
    first, last = _span(folder, about, row)
    rows = _load(folder / "rows.npy", mode="r+")
    base = _load(folder / "base.npy", mode="r+") if about.get("base") else None
    if last > len(rows):
        raise FeatureError(
            f"the run's features should have a row {last}, but rows.npy has {len(rows)}: restore"
            f" the folder {folder}"
        )
    for array in (rows, base):
        if array is not None:
            array[first:last] = 0
            array.flush()
    digests = bytearray((folder / "rows.blake2b").read_bytes())
    part = None if base is None else base[first:last]
    digests[first * DIGEST : last * DIGEST] = b"".join(_digests(rows[first:last], part))
    write_atomic(folder / "rows.blake2b", bytes(digests))
    write_atomic(folder / "features.json", json.dumps({**about, "order": _order(ids)}))


def _span(folder: Path, about: Mapping[str, Any], row: int) -> tuple[int, int]:
    """Which rows of the array are those of item number `row`."""
    if about["kind"] == "shared":
        return row, row + 1
    offsets = _load(folder / "offsets.npy")
    return int(offsets[row]), int(offsets[row + 1])


def _base_of(block: Block) -> NDArray[np.float64] | None:
    if isinstance(block, SharedBlock) or block.base is None:
        return None
    return np.ascontiguousarray(block.base, dtype=np.float64)


def _order(ids: Sequence[str]) -> str:
    return hashlib.blake2b("\x1f".join(ids).encode(), digest_size=DIGEST).hexdigest()


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = dict(json.loads((folder / "features.json").read_text()))
        if missing := KEYS - about.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        return about
    except (OSError, ValueError, TypeError) as fault:
        raise FeatureError(f"the run's features in {folder} cannot be read: {fault}") from fault


def _save(path: Path, array: NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_atomic(path, buffer.getvalue())


def _load(path: Path, mode: Literal["r", "r+"] = "r") -> np.memmap[Any, Any]:
    try:
        return np.lib.format.open_memmap(path, mode=mode)
    except (OSError, ValueError) as fault:
        raise FeatureError(f"the run's features in {path} cannot be read: {fault}") from fault


def _digest(row: NDArray[Any]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=DIGEST).digest()


def _digests(rows: NDArray[Any], base: NDArray[Any] | None) -> Iterator[bytes]:
    """The hash of each row, and of its entry of `base` with it."""
    for number, row in enumerate(rows):
        extra = b"" if base is None else base[number].tobytes()
        yield hashlib.blake2b(row.tobytes() + extra, digest_size=DIGEST).digest()


def _verify(rows: NDArray[Any], base: NDArray[Any] | None, folder: Path) -> None:
    try:
        digests = (folder / "rows.blake2b").read_bytes()
    except OSError as fault:
        raise FeatureError(f"the hashes of the run's features are missing: {fault}") from fault
    if len(digests) != DIGEST * len(rows):
        raise FeatureError(
            f"the run has {len(digests) // DIGEST} hashes of features but {len(rows)} rows:"
            f" restore the folder {folder} or start a new run"
        )
    if base is not None and base.shape != (len(rows),):
        raise FeatureError(
            f"the run's features should have {len(rows)} fixed parts of scores, but base.npy has"
            f" the shape {base.shape}: restore the folder {folder} or start a new run"
        )
    for number, digest in enumerate(_digests(rows, base)):
        if digests[number * DIGEST : (number + 1) * DIGEST] != digest:
            files = "rows.npy" if base is None else "rows.npy or base.npy beside it"
            raise FeatureError(
                f"row {number} of the run's features does not match its hash: the file"
                f" {folder / files} was changed; restore it or start a new run"
            )
