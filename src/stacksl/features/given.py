"""`given`: features made elsewhere, an array with a row an item, for a fixed set of classes."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import SharedBlock
from stacksl.errors import FeatureError
from stacksl.features.encoders import Progress
from stacksl.types import Item

GIVEN = "given"
_BIAS = 0.1  # the last column, so that classes may differ in size
_BELOW = 1.0 - 2.0**-22  # rounding stays below norm 1
_LARGEST = np.float64(1e100)  # up to it the square of a norm is finite
_AT_ONCE = 4096  # rows held in float64


class GivenFeatures:
    """h = [√(1 − b²)·v/s, b] of rows v that are given by the id of their item.

    s is the largest norm among the rows that the map was fitted on; later rows that are longer are
    cut to it. Rows are not part of the saved state: those of the run's own items are in its feature
    store, and `with_rows` adds others.
    """

    spec = GIVEN
    truncated = 0
    reads_text = False

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._rows: NDArray[Any] = np.zeros((0, 0))
        self._place: Mapping[str, int] = {}  # of the row of each id
        self._columns = 0
        self._scale = 1.0

    @property
    def dim(self) -> int:
        """d, the columns of a row: those given, and the bias."""
        return self._columns + 1

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the number of columns and the scale."""
        return hashlib.sha256(
            f"given 1: {self._columns} {self._scale!r} {_BIAS}".encode()
        ).hexdigest()

    def with_rows(self, ids: Sequence[str], rows: Any) -> GivenFeatures:
        """This map with the `rows`, (n, d), of the items `ids`, in place of those it had.

        Raises:
            FeatureError: the rows are not finite numbers of that shape.
        """
        copy = GivenFeatures(self.classes)
        copy._rows = checked_rows(len(ids), rows)
        copy._place = {name: row for row, name in enumerate(ids)}
        copy._columns, copy._scale = self._columns, self._scale
        return copy

    def with_made(self, ids: Sequence[str], block: Any) -> GivenFeatures:
        """This map with the rows of the items `ids` that it has made already, a `SharedBlock`."""
        copy = self.with_rows(ids, block.h[:, :-1] / (np.sqrt(1.0 - _BIAS**2) * _BELOW))
        copy._scale = 1.0
        return copy

    def fit(self, items: Sequence[Item]) -> None:
        """Take the scale from the rows of `items`."""
        self._columns = self._rows.shape[1]
        rows = (table for _, table in self._doubles(items))
        longest = max((float(np.square(table).sum(axis=1).max()) for table in rows), default=0.0)
        self._scale = float(np.sqrt(longest)) or 1.0

    def transform(self, items: Sequence[Item], progress: Progress | None = None) -> SharedBlock:
        """The float32 features of `items`; see `FeatureMap.transform`."""
        missing = sum(item.id not in self._place for item in items)
        if missing:
            raise FeatureError(
                f"this run's features are given as arrays, but {missing} of {len(items)} items came"
                " without one: in Python, give features=X with a row for each item"
            )
        if self._rows.shape[1] != self._columns:
            raise FeatureError(
                f"expected features of {self._columns} columns, got {self._rows.shape[1]}: give the"
                " features that the run began with"
            )
        h = np.full((len(items), self.dim), _BIAS, np.float32)
        for chunk, table in self._doubles(items):
            table /= self._scale
            norms = np.sqrt(np.square(table).sum(axis=1, keepdims=True))
            h[chunk, :-1] = table * (np.sqrt(1.0 - _BIAS**2) * _BELOW) / np.maximum(norms, 1.0)
        return SharedBlock(h, self.classes)

    def _doubles(self, items: Sequence[Item]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """The rows of `items` in float64, some thousands at a time."""
        for start in range(0, len(items), _AT_ONCE):
            chunk = slice(start, start + _AT_ONCE)
            row_numbers = [self._place[item.id] for item in items[chunk]]
            yield chunk, np.ascontiguousarray(self._rows[row_numbers], dtype=np.float64)  # a copy

    def state(self) -> dict[str, NDArray[Any]]:
        """The scale and the number of columns."""
        return {"scale": np.array([self._scale]), "columns": np.array([self._columns], np.int64)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned.

        Raises:
            FeatureError: it is another map's.
        """
        if state.keys() != {"scale", "columns"}:
            raise FeatureError(
                "expected the saved state of features 'given', got the state of others: use the"
                " features that the model was trained with"
            )
        self._scale, self._columns = float(state["scale"][0]), int(state["columns"][0])


def checked_rows(count: int, rows: Any) -> NDArray[Any]:
    """The `rows` of so many items, (count, d), as an array that may be mapped from a file.

    Raises:
        FeatureError: they are not finite numbers of that shape.
    """
    try:
        table = np.asarray(rows)
        if table.dtype.kind == "c":
            raise TypeError
        table = table if table.dtype.kind == "f" else table.astype(np.float64)
    except (TypeError, ValueError):
        raise FeatureError(
            "features should be an array of real numbers with a row for each item"
        ) from None
    if table.ndim != 2 or len(table) != count or not table.shape[1]:
        raise FeatureError(
            f"features should have the shape ({count}, d), a row for each item, got {table.shape}"
        )
    for start in range(0, count, _AT_ONCE):
        usable = (np.abs(table[start : start + _AT_ONCE]) <= _LARGEST).all(axis=1)
        if not usable.all():
            bad = start + int(np.flatnonzero(~usable)[0])
            raise FeatureError(
                "features should be numbers from -1e100 to 1e100, got a larger one, NaN or infinity"
                f" in row {bad + 1}: correct or scale them"
            )
    return table


def release_rows(rows: object) -> None:
    """Let the system take back the memory of `rows` that are mapped from a file to be read.

    They are read from the file again where they are needed. Other rows are left as they are.
    """
    if isinstance(rows, np.memmap) and rows.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        mapped: mmap.mmap = rows._mmap  # type: ignore[attr-defined]  # NumPy has no other way
        mapped.madvise(mmap.MADV_DONTNEED)
