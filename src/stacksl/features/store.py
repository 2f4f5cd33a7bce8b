"""The features a run uses: computed once, hashed row by row, then memory-mapped.

Each row has a hash of its own, so that one row can be erased later and the others still verify.
`features.json` is written last; it holds the shape and type of each array, so that the headers of
the `.npy` files, which no hash covers, are not read. The features that a language model renews are
a block an epoch, of the items that the run had when the epoch began; items added during the epoch
have blocks beside it, in folders named like those of the initial features.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Block, LazyRows, PairBlock, SharedBlock, joined
from stacksl.errors import FeatureError
from stacksl.features.rows import Gathered
from stacksl.files import formats
from stacksl.files.atomic import make_private, write_atomic

DIGEST = 16  # bytes of BLAKE2b per row
_AT_ONCE = 4096  # rows written or hashed
ABOUT = "features.json"
_ONE_HASH = ("candidates", "index", "base")  # arrays of gathered pairs beside the rows
REMEDY = "restore the folder from a copy, or start a new run"


def has_block(folder: Path) -> bool:
    """Whether `folder` holds complete features: the description is written last."""
    return (folder / ABOUT).is_file()


def items_in(folder: Path) -> int:
    """The number of items of a saved block.

    Raises:
        FeatureError: it cannot be read.
    """
    return int(_about(folder)["items"])


def save_block(folder: Path, block: Block, fingerprint: str, ids: Sequence[str] = ()) -> None:
    """Write `block` of the items `ids`, in their order; `fingerprint` is the feature map's.

    The fixed part of the scores, where pair features have one, is hashed with its row. Of gathered
    pairs the rows are the prompts' vectors; the candidates' vectors have one hash.
    """
    tables: dict[str, Any]
    if isinstance(block, SharedBlock):
        tables = {"rows": block.h}
    elif isinstance(block.phi, Gathered):
        lazy = block.phi
        tables = {"rows": lazy.prompts, "candidates": lazy.candidates, "index": lazy.index}
    else:
        tables = {"rows": np.asarray(block.phi)}
    gathered = "index" in tables
    if isinstance(block, PairBlock):
        tables["offsets"] = block.offsets
        if block.base is not None:
            tables["base"] = np.asarray(block.base, dtype=np.float64)
    arrays = {name: _save(folder / f"{name}.npy", table) for name, table in tables.items()}
    digests = {name: _digest(tables[name]).hex() for name in _ONE_HASH if name in tables}
    base = None if gathered else tables.get("base")
    write_atomic(folder / "rows.blake2b", b"".join(_digests(tables["rows"], base)))
    about = {
        "kind": "shared" if isinstance(block, SharedBlock) else "pairs",
        "gathered": digests if gathered else {},
        "classes": block.classes if isinstance(block, SharedBlock) else None,
        "items": len(block),
        "dim": block.dim,
        "fingerprint": fingerprint,
        "order": _order(ids),
        "offsets": _digest(block.offsets).hex() if isinstance(block, PairBlock) else None,
        "arrays": arrays,
    }
    write_atomic(folder / ABOUT, formats.to_json(about))


def load_block(
    folder: Path, fingerprint: str | None = None, ids: Sequence[str] | None = None
) -> Block:
    """Load the block, memory-mapped, after checking every row against its hash.

    Raises:
        FeatureError: a file is missing or damaged, another feature map made it, or the items
            `ids` are not in the order of its rows.
    """
    about = _about(folder)
    if ids is not None and about["order"] != _order(ids):
        raise FeatureError(
            f"the features in {folder} should be of the run's items, in the same order, but are of"
            f" others: {REMEDY}"
        )
    if fingerprint is not None and about["fingerprint"] != fingerprint:
        raise FeatureError(
            f"the run's features were made by {about['fingerprint'][:12]}, but the feature map here"
            f" is {fingerprint[:12]}: resume with the versions and weights that it began with"
        )
    rows = _load(folder, about, "rows")
    gathered = about["gathered"]
    own = "base" in about["arrays"] and not gathered
    base = _load(folder, about, "base") if own else None
    _verify(rows, base, folder)
    if about["kind"] == "shared":
        return SharedBlock(rows, int(about["classes"]))
    found = {
        name: _checked(folder, about, name, digest)
        for name, digest in {**gathered, "offsets": about["offsets"]}.items()
    }
    offsets = np.array(found["offsets"])
    if not gathered:
        return PairBlock(rows, offsets, base)
    lazy = Gathered(rows, found["candidates"], found["index"], offsets)
    return PairBlock(lazy, offsets, found.get("base"))


def _checked(folder: Path, about: Mapping[str, Any], name: str, digest: str) -> NDArray[Any]:
    """An array that has one hash, after checking it."""
    array = _load(folder, about, name)
    if _digest(array).hex() != digest:
        raise FeatureError(
            f"{folder / name}.npy does not match its hash: the file was changed; {REMEDY}"
        )
    return array


def erase(folder: Path, row: int, ids: Sequence[str]) -> None:
    """Overwrite the features of item number `row` with zeros; `ids` are all ids from now on.

    The bytes are overwritten in place. Calling it again after a crash completes it.

    Raises:
        FeatureError: a file is missing, or has another number of rows.
    """
    about = _about(folder)
    gathered = dict(about["gathered"])
    first, last = row, row + 1
    if about["kind"] == "pairs":
        first, last = map(int, _load(folder, about, "offsets")[row : row + 2])

    def zeroed(name: str, first: int, last: int) -> np.memmap[Any, Any]:
        array = _load(folder, about, name, mode="r+")
        if last > len(array):
            raise FeatureError(
                f"the run's features should have a row {last}, but {name}.npy has {len(array)}:"
                f" {REMEDY}"
            )
        array[first:last] = 0
        array.flush()
        return array

    for name in gathered.keys() - {"candidates"}:  # which answers are near tells of the prompt
        gathered[name] = _digest(zeroed(name, first, last)).hex()
    base = None
    if gathered:
        first, last = row, row + 1
    elif "base" in about["arrays"]:
        base = zeroed("base", first, last)
    rows = zeroed("rows", first, last)
    digests = bytearray((folder / "rows.blake2b").read_bytes())
    own = None if base is None else base[first:last]
    digests[first * DIGEST : last * DIGEST] = b"".join(_digests(rows[first:last], own))
    write_atomic(folder / "rows.blake2b", bytes(digests))
    changed = {"order": _order(ids), "gathered": gathered}
    write_atomic(folder / ABOUT, formats.to_json({**about, **changed}))


def _order(ids: Sequence[str]) -> str:
    return hashlib.blake2b("\x1f".join(ids).encode(), digest_size=DIGEST).hexdigest()


def _about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    try:
        return formats.from_json(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise FeatureError(f"{path} cannot be read ({fault}): {REMEDY}") from fault


def _save(path: Path, array: NDArray[Any] | LazyRows) -> dict[str, Any]:
    """Write an array block by block; gives its type, its shape and its place in the file."""
    dtype = np.dtype(np.float32) if isinstance(array, LazyRows) else array.dtype
    about = {"descr": dtype.str, "fortran_order": False, "shape": array.shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, about)
    write_atomic(path, header.getvalue(), (block.data for _, block in _blocks(array)))
    start = len(header.getvalue())
    return {"dtype": dtype.str, "shape": list(array.shape), "start": start}


def _blocks(array: NDArray[Any] | LazyRows) -> Iterator[tuple[int, NDArray[Any]]]:
    """The first row of each block of an array, and the block."""
    for start in range(0, len(array), _AT_ONCE):
        yield start, np.ascontiguousarray(array[start : start + _AT_ONCE])


def _load(
    folder: Path, about: Mapping[str, Any], name: str, mode: Literal["r", "r+"] = "r"
) -> np.memmap[Any, Any]:
    """Memory-map the array `name`; a file of another length is refused, as `r+` would extend it."""
    path, found = folder / f"{name}.npy", about["arrays"][name]
    dtype, shape, start = np.dtype(found["dtype"]), tuple(found["shape"]), int(found["start"])
    size = start + math.prod(shape) * dtype.itemsize
    try:
        if path.stat().st_size != size:
            raise ValueError(f"it should have {size} bytes, but has {path.stat().st_size}")
        return np.memmap(path, dtype, mode, start, shape)
    except (OSError, ValueError) as fault:
        raise FeatureError(f"{path} cannot be read ({fault}): {REMEDY}") from fault


def _digest(row: NDArray[Any]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=DIGEST).digest()


def _digests(rows: NDArray[Any] | LazyRows, base: NDArray[Any] | None) -> Iterator[bytes]:
    """The hash of each row, and of its entry of `base` with it."""
    for start, block in _blocks(rows):
        for number, row in enumerate(np.asarray(block), start):
            extra = b"" if base is None else base[number].tobytes()
            yield hashlib.blake2b(row.tobytes() + extra, digest_size=DIGEST).digest()


def _verify(rows: NDArray[Any], base: NDArray[Any] | None, folder: Path) -> None:
    try:
        digests = (folder / "rows.blake2b").read_bytes()
    except OSError as fault:
        raise FeatureError(
            f"the hashes of the run's features cannot be read ({fault}): {REMEDY}"
        ) from fault
    if len(digests) != DIGEST * len(rows):
        raise FeatureError(
            f"{folder / 'rows.blake2b'} should have {len(rows)} hashes, but has"
            f" {len(digests) // DIGEST}: {REMEDY}"
        )
    found = b"".join(_digests(rows, base))
    if found != digests:
        number = next(at for at, (a, b) in enumerate(zip(found, digests, strict=True)) if a != b)
        more = "" if base is None else " (or base.npy)"
        raise FeatureError(
            f"row {number // DIGEST} of {folder / 'rows.npy'}{more} does not match its hash in"
            f" rows.blake2b: {REMEDY}"
        )


@dataclass(frozen=True, slots=True)
class Epochs:
    """The blocks of a run's epochs, from 1.

    Attributes:
        folder: the folder of the run's features.
        ids: the ids of all items.
        parts: the folders of the initial features, and the items that each of them holds.
        base: the initial features of all items.
    """

    folder: Path
    ids: tuple[str, ...]
    parts: Mapping[str, slice]
    base: PairBlock

    def has(self, epoch: int, fingerprint: str) -> bool:
        """Whether the complete features of these weights and items are on disk."""
        place = self._place(epoch)
        if not has_block(place):
            return False
        try:
            load_block(place, fingerprint, self.ids)
        except FeatureError:
            return False
        return True

    def save(self, epoch: int, block: Block, fingerprint: str) -> None:
        """Save the features of all items, with which an epoch begins."""
        make_private(self._place(epoch))
        save_block(self._place(epoch), block, fingerprint, self.ids)

    def filled(self, rows: Sequence[int], fresh: PairBlock | None) -> PairBlock:
        """The block with the features of the items in `rows`, and zeros for the others."""
        phi = np.zeros(self.base.phi.shape, dtype=np.float32)
        base = np.zeros(len(phi), dtype=np.float64)
        if fresh is not None:
            where = np.concatenate([np.arange(*self.base.offsets[r : r + 2]) for r in rows])
            phi[where], base[where] = fresh.phi[:], fresh.base
        return PairBlock(phi, np.array(self.base.offsets), base)

    def missing(self, epoch: int) -> dict[str, slice]:
        """The items added after an epoch began that have no features of it yet."""
        return {
            name: part
            for name, part in self._later(epoch).items()
            if not has_block(self._place(epoch) / name)
        }

    def add(self, epoch: int, name: str, block: Block, fingerprint: str) -> None:
        """Save the features of items added during an epoch."""
        place = self._place(epoch) / name
        make_private(place)
        save_block(place, block, fingerprint, self.ids[self.parts[name]])

    def load(self, epoch: int, fingerprint: str) -> Block:
        """The features of an epoch; zeros for items that could not be asked in it.

        Raises:
            FeatureError: they are damaged, or of other weights or items.
        """
        place = self._place(epoch)
        blocks = [load_block(place, fingerprint, self.ids[: items_in(place)])]
        for name, part in self._later(epoch).items():
            found = has_block(place / name)
            blocks.append(
                load_block(place / name, fingerprint, self.ids[part])
                if found
                else self._zeros(part)
            )
        return joined(blocks)

    def _place(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:02d}"

    def _later(self, epoch: int) -> dict[str, slice]:
        """The parts added after an epoch began; none before the first epoch."""
        if not epoch:
            return {}
        began = items_in(self._place(epoch))
        return {name: part for name, part in self.parts.items() if part.start >= began}

    def _zeros(self, part: slice) -> PairBlock:
        offsets = np.array(self.base.offsets[part.start : part.stop + 1])
        rows = int(offsets[-1] - offsets[0])
        return PairBlock(
            np.zeros((rows, self.base.dim), dtype=np.float32),
            offsets - offsets[0],
            None if self.base.base is None else np.zeros(rows, dtype=np.float64),
        )
