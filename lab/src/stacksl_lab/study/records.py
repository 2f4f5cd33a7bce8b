"""Records: what `stacksl-lab reproduce --json` prints, to and from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stacksl.errors import DataError
from stacksl.version import __version__
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.rows import Row, row_from
from stacksl_lab.study.study import Study


def record(study: Study, bench: Bench, seeds: int, rows: Sequence[Row]) -> dict[str, Any]:
    """The rows of a study with the version, the command and the seeds they were made by."""
    quick = " --quick" if bench.quick else ""
    return {
        "study": study.name,
        "version": __version__,
        "command": f"stacksl-lab reproduce {study.name} --seeds {seeds}{quick} --json",
        "seeds": list(range(seeds)),
        **study.about(bench, range(seeds)),
        "rows": [row.to_json() for row in rows],
    }


def read_records(folder: Path) -> dict[str, list[Row]]:
    """The rows of every record in `folder`, by the file's name without its ending.

    Raises:
        DataError: a file is no record.
    """
    records = {}
    for file in sorted(folder.glob("*.json")):
        try:
            lines = json.loads(file.read_text(encoding="utf-8"))["rows"]
        except (ValueError, KeyError, TypeError) as fault:
            raise DataError(
                f"{file} should be what `stacksl-lab reproduce --json` printed, and is not:"
                f" {fault!r}"
            ) from fault
        records[file.stem] = [row_from(line) for line in lines]
    return records
