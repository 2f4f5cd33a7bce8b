"""Numbers measured so far, a line each in a file that outlives the process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from stacksl.errors import RunError

Numbers: TypeAlias = Mapping[str, float | None]
"""What one measurement gives, by metric; None where there is no finite number."""

Measurement: TypeAlias = Numbers | str
"""Numbers, or a sentence that says why there are none."""


class Store:
    """The numbers in `path` by the keys of their measurements; without a path, in memory alone.

    Numbers are on disk before `put` returns. A line that is no key with its numbers, such as one
    that was cut off, is passed over and measured again. Reasons are kept in memory alone, since
    they may be gone next time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._measurements: dict[str, Measurement] = {}
        if path is not None and path.is_file():
            for line in path.read_bytes().split(b"\n"):
                self._measurements |= _read(line)

    def __len__(self) -> int:
        return len(self._measurements)

    def get(self, key: str) -> Measurement | None:
        """What is kept under `key`."""
        return self._measurements.get(key)

    def put(self, results: Mapping[str, Measurement]) -> None:
        """Keep numbers by their keys; what is no finite number is kept as None.

        Raises:
            RunError: the file cannot be written.
        """
        plain = {key: _plain(value) for key, value in results.items() if not isinstance(value, str)}
        self._measurements |= {**results, **plain}
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
    """Whether the file's last line has no end."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _read(line: bytes) -> dict[str, Numbers]:
    """The key and its numbers; nothing where the line holds no such thing."""
    try:
        content: Any = json.loads(line.decode())
    except (ValueError, RecursionError):
        return {}
    match content:
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
