"""The features a run uses: computed once, hashed, then memory-mapped.

`features.json` is written last; it holds the hash of each array with its shape and type, so that
the headers of the `.npy` files, which no hash covers, are not read. The features that a language
model renews are a block an epoch, of the items that the run had when the epoch began; items added
during the epoch have blocks next to it, in folders named like those of the initial features.
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

from stacksl.core.blocks import Block, PairBlock, SharedBlock, joined
from stacksl.errors import FeatureError
from stacksl.features.maps import LazyRows
from stacksl.files import formats
from stacksl.files.atomic import make_private, write_atomic

DIGEST = 16  # bytes of BLAKE2b
_AT_ONCE = 4096  # rows written or hashed
_DAMAGED = "damaged"  # in place of the hash of an array: no hash is equal
ABOUT = "features.json"
REMEDY = "restore the folder from a copy, or start a new run"


def has_block(folder: Path) -> bool:
    """Whether `folder` holds complete features: the description is written last."""
    return (folder / ABOUT).is_file()


def items_in(folder: Path) -> int:
    """The number of items of a saved block.

    Raises:
        FeatureError: it cannot be read.
    """
    return int(_manifest(folder)["items"])


def save_block(folder: Path, block: Block, fingerprint: str, ids: Sequence[str] = ()) -> None:
    """Write `block` of the items `ids`, in their order; `fingerprint` is the feature map's."""
    tables = {"rows": block.h if isinstance(block, SharedBlock) else np.asarray(block.phi)}
    if isinstance(block, PairBlock):
        tables["offsets"] = block.offsets
        if block.base is not None:
            tables["base"] = np.asarray(block.base, dtype=np.float64)
    manifest = {
        "classes": block.classes if isinstance(block, SharedBlock) else None,
        "items": len(block),
        "dim": block.dim,
        "fingerprint": fingerprint,
        "order": _order(ids),
        "arrays": {name: _save(folder / f"{name}.npy", table) for name, table in tables.items()},
    }
    write_atomic(folder / ABOUT, formats.to_json(manifest))


def load_block(
    folder: Path, fingerprint: str | None = None, ids: Sequence[str] | None = None
) -> Block:
    """Load the block, memory-mapped, after checking every array against its hash.

    Raises:
        FeatureError: a file is missing or damaged, another feature map made it, or the items
            `ids` are not in the order of its rows.
    """
    manifest = _manifest(folder)
    if ids is not None and manifest["order"] != _order(ids):
        raise FeatureError(
            f"the features in {folder} should be of the run's items, in the same order, but are of"
            f" others: {REMEDY}"
        )
    if fingerprint is not None and manifest["fingerprint"] != fingerprint:
        raise FeatureError(
            f"the run's features were made by {manifest['fingerprint'][:12]}, but the feature map"
            f" here is {fingerprint[:12]}: resume with the versions and weights that it began with"
        )
    arrays = {name: _load(folder, manifest, name) for name in manifest["arrays"]}
    for name, array in arrays.items():
        if _digest(array) != manifest["arrays"][name]["digest"]:
            raise FeatureError(
                f"{folder / name}.npy does not match its hash: the file was changed; {REMEDY}"
            )
    if manifest["classes"] is not None:
        return SharedBlock(arrays["rows"], int(manifest["classes"]))
    return PairBlock(arrays["rows"], np.array(arrays["offsets"]), arrays.get("base"))


def erase(folder: Path, row: int, ids: Sequence[str]) -> None:
    """Overwrite the features of item number `row` with zeros; `ids` are all ids from now on.

    The bytes are overwritten in place. An array has no hash meanwhile, so that calling it again
    after a crash completes it. One that was damaged before is still reported as damaged afterwards;
    where that is the offsets, nobody knows which bytes are the item's, and all are overwritten.

    Raises:
        FeatureError: a file is missing, or there is no such row.
    """
    manifest = {**_manifest(folder), "order": _order(ids)}
    arrays, rows = manifest["arrays"], slice(row, row + 1)
    if not 0 <= row < manifest["items"]:
        raise FeatureError(f"expected a row below {manifest['items']} in {folder}, got {row}")
    if "offsets" in arrays:
        offsets = _load(folder, manifest, "offsets")
        intact = _digest(offsets) == arrays["offsets"]["digest"]
        rows = slice(*map(int, offsets[row : row + 2])) if intact else slice(None)
    erased = [name for name in ("rows", "base") if name in arrays]
    for name in erased:
        if arrays[name]["digest"]:  # else a crash left it without, or it was damaged before
            intact = _digest(_load(folder, manifest, name)) == arrays[name]["digest"]
            arrays[name]["digest"] = None if intact else _DAMAGED
    write_atomic(folder / ABOUT, formats.to_json(manifest))
    for name in erased:
        array = _load(folder, manifest, name, mode="r+")
        array[rows] = 0
        array.flush()
        if arrays[name]["digest"] is None:
            arrays[name]["digest"] = _digest(array)
    write_atomic(folder / ABOUT, formats.to_json(manifest))


def _order(ids: Sequence[str]) -> str:
    return hashlib.blake2b("\x1f".join(ids).encode(), digest_size=DIGEST).hexdigest()


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    try:
        return formats.from_json(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise FeatureError(f"{path} cannot be read ({fault}): {REMEDY}") from fault


def _save(path: Path, array: NDArray[Any] | LazyRows) -> dict[str, Any]:
    """Write an array block by block; its type, its shape, its place in the file and its hash."""
    dtype = np.dtype(np.float32) if isinstance(array, LazyRows) else array.dtype
    description = {"descr": dtype.str, "fortran_order": False, "shape": array.shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, description)
    digest = hashlib.blake2b(digest_size=DIGEST)

    def hashed() -> Iterator[memoryview]:
        for block in _blocks(array):
            digest.update(block.data)
            yield block.data

    write_atomic(path, header.getvalue(), hashed())
    start = len(header.getvalue())
    description = {"dtype": dtype.str, "shape": list(array.shape), "start": start}
    return {**description, "digest": digest.hexdigest()}


def _blocks(array: NDArray[Any] | LazyRows) -> Iterator[NDArray[Any]]:
    for start in range(0, len(array), _AT_ONCE):
        yield np.ascontiguousarray(array[start : start + _AT_ONCE])


def _digest(array: NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST)
    for block in _blocks(array):
        digest.update(block.data)
    return digest.hexdigest()


def _load(
    folder: Path, manifest: Mapping[str, Any], name: str, mode: Literal["r", "r+"] = "r"
) -> np.memmap[Any, Any]:
    """Memory-map the array `name`; a file of another length is refused, as `r+` would extend it."""
    path, header = folder / f"{name}.npy", manifest["arrays"][name]
    dtype, shape, start = np.dtype(header["dtype"]), tuple(header["shape"]), int(header["start"])
    size = start + math.prod(shape) * dtype.itemsize
    try:
        if path.stat().st_size != size:
            raise ValueError(f"it should have {size} bytes, but has {path.stat().st_size}")
        return np.memmap(path, dtype, mode, start, shape)
    except (OSError, ValueError) as fault:
        raise FeatureError(f"{path} cannot be read ({fault}): {REMEDY}") from fault


@dataclass(frozen=True, slots=True)
class Epochs:
    """The blocks of a run's epochs, from 1.

    Attributes:
        folder: the folder of the run's features.
        parts: the folders of the initial features, and the items that each of them holds.
        base: the initial features of all items.
    """

    folder: Path
    ids: tuple[str, ...]
    parts: Mapping[str, slice]
    base: PairBlock

    def has(self, epoch: int, fingerprint: str) -> bool:
        """Whether the complete features of these weights and items are on disk."""
        folder = self._place(epoch)
        if not has_block(folder):
            return False
        try:
            load_block(folder, fingerprint, self.ids)
        except FeatureError:
            return False
        return True

    def save(self, epoch: int, block: Block, fingerprint: str, added: str = "") -> None:
        """Save the features with which an epoch begins, or of a part `added` during it."""
        folder, ids = self._place(epoch), self.ids
        if added:
            folder, ids = folder / added, ids[self.parts[added]]
        make_private(folder)
        save_block(folder, block, fingerprint, ids)

    def filled(self, rows: Sequence[int], fresh: PairBlock | None) -> PairBlock:
        """The block with the features of the items in `rows`, and zeros for the others."""
        phi = np.zeros(self.base.phi.shape, dtype=np.float32)
        base = np.zeros(len(phi), dtype=np.float64)
        if fresh is not None:
            positions = np.concatenate([np.arange(*self.base.offsets[r : r + 2]) for r in rows])
            phi[positions], base[positions] = fresh.phi[:], fresh.base
        return PairBlock(phi, np.array(self.base.offsets), base)

    def missing(self, epoch: int) -> dict[str, slice]:
        """The items added after an epoch began that have no features of it yet."""
        return {
            name: items
            for name, items in self._later(epoch).items()
            if not has_block(self._place(epoch) / name)
        }

    def load(self, epoch: int, fingerprint: str) -> Block:
        """The features of an epoch; zeros for items that could not be asked in it.

        Raises:
            FeatureError: they are damaged, or of other weights or items.
        """
        folder = self._place(epoch)
        blocks = [load_block(folder, fingerprint, self.ids[: items_in(folder)])]
        for name, items in self._later(epoch).items():
            is_stored = has_block(folder / name)
            blocks.append(
                load_block(folder / name, fingerprint, self.ids[items])
                if is_stored
                else self._zeros(items)
            )
        return joined(blocks)

    def _place(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:02d}"

    def _later(self, epoch: int) -> dict[str, slice]:
        """The parts added after an epoch began; none before the first epoch."""
        if not epoch:
            return {}
        item_count = items_in(self._place(epoch))
        return {name: items for name, items in self.parts.items() if items.start >= item_count}

    def _zeros(self, items: slice) -> PairBlock:
        """Zeros in place of the features of some items, in the shape of their initial ones."""
        offsets = np.array(self.base.offsets[items.start : items.stop + 1])
        rows = int(offsets[-1] - offsets[0])
        return PairBlock(
            np.zeros((rows, self.base.dim), dtype=np.float32),
            offsets - offsets[0],
            None if self.base.base is None else np.zeros(rows, dtype=np.float64),
        )
