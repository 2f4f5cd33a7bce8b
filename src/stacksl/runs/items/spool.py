"""Items from standard input, read completely before any label is bought."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from stacksl.data import Classes, Dataset
from stacksl.data.files import is_object
from stacksl.errors import DataError, SettingsError
from stacksl.runs.items.sources import load
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved

STDIN = "-"  # the data source that is standard input


def as_stream(resolved: Resolved) -> Resolved:
    """The settings of a run over standard input: with a number of rounds a stream, in its order.

    Raises:
        SettingsError: the mode is `pool`.
    """
    if resolved.settings.read.rounds is None:  # it is read to its end, as a file is
        return resolved
    if resolved.settings.mode == "pool" and resolved.origin["mode"] != "default":
        raise SettingsError(
            "--rounds takes a stream from standard input: leave --mode pool or --rounds out"
        )
    return resolved.with_defaults({"mode": "stream", "order": "file"}, "stdin")


def spooled(settings: Settings, classes: Classes | None) -> Dataset:
    """The items of standard input: all, as in a file, or the next `settings.read.rounds` lines.

    Such lines are JSON objects or, where the first one is none, texts.

    Raises:
        DataError: a line is no JSON object, or there are fewer items than `rounds`.
    """
    wanted = settings.read.rounds
    found = sys.stdin.buffer.read() if wanted is None else _lines(sys.stdin.buffer, wanted)
    with TemporaryDirectory(prefix="stacksl-") as folder:  # private, as mkdtemp makes it
        path = Path(folder) / "stdin"
        path.write_bytes(found)
        alone = settings.model_copy(update={"owned": None})
        dataset = load(str(path), None, alone, classes=classes).pool
    return replace(dataset, name="stdin")


def _lines(stream: IO[bytes], wanted: int) -> bytes:
    """The first `wanted` lines that are not empty, as JSON objects."""
    found: list[bytes] = []
    texts = False
    for number, whole in enumerate(stream, start=1):
        if line := whole.strip():
            texts |= not found and line[:1] != b"{"
            if texts:
                line = json.dumps({"text": line.decode(errors="surrogateescape")}).encode()
            elif not is_object(line):
                raise DataError(
                    f"line {number} of standard input should be a JSON object, such as"
                    ' {"text": "..."}, but is none: give JSON objects, one a line'
                )
            found.append(line + b"\n")
        if len(found) == wanted:
            return b"".join(found)
    raise DataError(
        f"standard input ended after {len(found)} of {wanted} items: give --rounds"
        f" {len(found)}, or more items"
    )
