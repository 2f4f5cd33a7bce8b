"""Numbers measured so far, a line each in a file that outlives the process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from stacksl.errors import RunError
from stacksl.studies.lab.trial import Numbers

__all__ = ["NumberStore"]


class NumberStore:
    """The numbers in `path` by the keys of their lines; without a path, in memory alone.

    Numbers are on disk before `put` returns. A line that is no key with its numbers, such as one
    that was cut off, is passed over: what it held is measured again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, Numbers] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().split(b"\n"):
                self._found |= _read(line)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Numbers | None:
        """The numbers kept under `key`."""
        return self._found.get(key)

    def put(self, found: Mapping[str, Numbers]) -> None:
        """Keep numbers by their keys; what is no finite number is kept as None.

        Raises:
            RunError: the file cannot be written.
        """
        plain = {key: _plain(numbers) for key, numbers in found.items()}
        self._found |= plain
        if self.path is not None:
            _append(self.path, plain)


def _append(path: Path, plain: Mapping[str, Numbers]) -> None:
    lines = "".join(json.dumps([key, numbers]) + "\n" for key, numbers in plain.items())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if lines and _is_cut_off(file):
                lines = "\n" + lines
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        raise RunError(
            f"cannot keep what was measured in {path}: {fault.strerror}; give another folder"
        ) from fault


def _is_cut_off(file: BinaryIO) -> bool:
    """Whether what is there does not end with the end of a line."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _read(line: bytes) -> dict[str, Numbers]:
    """The key and its numbers, nothing where the line holds no such thing."""
    try:
        found: Any = json.loads(line.decode())
    except (ValueError, RecursionError):
        return {}
    match found:
        case [str(key), dict(numbers)] if numbers and all(map(_is_number, numbers.values())):
            return {key: numbers}
    return {}


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isfinite(value))


def _plain(numbers: Numbers) -> dict[str, float | None]:
    return {
        name: float(value) if value is not None and math.isfinite(value) else None
        for name, value in numbers.items()
    }
