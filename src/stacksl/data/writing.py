"""Items and rejected rows to files, written atomically."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stacksl.data.dataset import Dataset
from stacksl.errors import DataError
from stacksl.files.atomic import replace_file


def write(dataset: Dataset, path: str | Path) -> int:
    """Write the usable items as native JSONL (gzipped where the name ends in `.gz`).

    Reading the file gives the same items and answers. Returns the number of items.

    Raises:
        DataError: the file cannot be written; nothing is left half-written.
    """
    return _write_lines(Path(path), _native(dataset))


def write_rejected(dataset: Dataset, path: str | Path) -> int:
    """Write the rows set aside as JSONL: `row, id, reason` each. Returns their number.

    Raises:
        DataError: the file cannot be written; nothing is left half-written.
    """
    rows = ({"row": r.row, "id": r.id, "reason": r.reason} for r in dataset.rejected)
    return _write_lines(Path(path), rows)


def _native(dataset: Dataset) -> Iterator[Mapping[str, Any]]:
    for item in dataset.items:
        row = {"id": item.id, "prompt": item.prompt, "candidates": item.candidates}
        answer = dataset.answers.get(item.id)
        yield row if answer is None else {**row, "answer": answer}


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    lines = [json.dumps(_writable(row), ensure_ascii=False) + "\n" for row in rows]
    payload = "".join(lines).encode()
    if path.name.endswith(".gz"):
        payload = gzip.compress(payload, mtime=0)
    try:
        replace_file(path, payload)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
    return len(lines)


def _writable(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row without lone surrogates, which a reason may quote from bad bytes."""
    return {
        key: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for key, value in row.items()
    }
