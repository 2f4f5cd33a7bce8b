"""Records: what `stacksl reproduce --json` prints, to and from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stacksl import __version__
from stacksl.errors import DataError
from stacksl.studies.rows import Row, row_from

__all__ = ["read_records", "record"]


def record(study: str, model: str, seeds: int, rows: Sequence[Row]) -> dict[str, Any]:
    """The rows of a study with what they were made by."""
    return {
        "study": study,
        "version": __version__,
        "model": model,
        "seeds": list(range(seeds)),
        "rows": [row.to_json() for row in rows],
    }


def read_records(folder: Path) -> dict[str, list[Row]]:
    """The rows of every record in `folder`, by the file's name without its ending.

    Raises:
        DataError: a file is no record.
    """
    found = {}
    for file in sorted(folder.glob("*.json")):
        try:
            lines = json.loads(file.read_text(encoding="utf-8"))["rows"]
        except (ValueError, KeyError, TypeError) as fault:
            raise DataError(
                f"{file} should be what `stacksl reproduce --json` printed, and is not: {fault!r}"
            ) from fault
        found[file.stem] = [row_from(line) for line in lines]
    return found
