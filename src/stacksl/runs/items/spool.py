"""Items from standard input, read completely before any label is bought."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from stacksl.data import Classes, Dataset
from stacksl.errors import DataError, SettingsError
from stacksl.runs.items.sources import load
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved

STDIN = "-"  # the data source that is standard input


def as_stream(resolved: Resolved) -> Resolved:
    """The settings of a run over standard input: a stream, in the order of arrival.

    Raises:
        SettingsError: the mode is `pool`, or the number of items is not given.
    """
    if resolved.settings.mode == "pool" and resolved.origin["mode"] != "default":
        raise SettingsError(
            "standard input is a stream: leave --mode pool out, or give the items as a file"
        )
    if resolved.settings.read.rounds is None:
        raise SettingsError(
            "a stream paces its labels over its items, so standard input needs their number: give"
            " --rounds N"
        )
    return resolved.with_defaults({"mode": "stream", "order": "file"}, "stdin")


def spooled(settings: Settings, classes: Classes | None) -> Dataset:
    """The next `settings.read.rounds` items of standard input, JSON objects with one a line.

    Raises:
        DataError: a line is no JSON object, or there are fewer items than `rounds`.
    """
    wanted = settings.read.rounds or 0
    lines = _lines(sys.stdin.buffer, wanted)
    if len(lines) < wanted:
        raise DataError(
            f"standard input ended after {len(lines)} of {wanted} items: give --rounds"
            f" {len(lines)}, or more items"
        )
    with TemporaryDirectory(prefix="stacksl-") as folder:  # private, as mkdtemp makes it
        path = Path(folder) / "stdin.jsonl"
        path.write_bytes(b"".join(lines))
        alone = settings.model_copy(update={"owned": None})
        dataset = load(str(path), None, alone, classes=classes).pool
    return replace(dataset, name="stdin")


def _lines(stream: IO[bytes], wanted: int) -> list[bytes]:
    """The first `wanted` lines that are not empty."""
    found: list[bytes] = []
    for number, line in enumerate(stream, start=1):
        if line.strip():
            if not _is_object(line):
                raise DataError(
                    f"line {number} of standard input should be a JSON object, such as"
                    ' {"text": "..."}, but is none: give JSON objects, one a line'
                )
            found.append(line.rstrip(b"\r\n") + b"\n")
        if len(found) == wanted:
            break
    return found


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
