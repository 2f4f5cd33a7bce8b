"""Numbers measured so far, a line each in a file that outlives the process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from stacksl.errors import RunError
from stacksl.studies.lab.trial import Numbers

__all__ = ["NumberStore"]


class NumberStore:
    """The numbers in `path` by the keys of their lines; without a path, in memory alone.

    Numbers are on disk before `put` returns. A last line that was cut off is measured again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, Numbers] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(line)

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
        if self.path is None:
            return
        lines = "".join(json.dumps([key, numbers]) + "\n" for key, numbers in plain.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as fault:
            raise RunError(
                f"cannot keep what was measured in {self.path}: {fault.strerror}; give another"
                " folder"
            ) from fault

    def _read(self, line: str) -> None:
        try:
            key, numbers = json.loads(line)
            self._found[str(key)] = dict(numbers)
        except (ValueError, TypeError):
            return  # cut off: measured again


def _plain(numbers: Numbers) -> dict[str, float | None]:
    return {
        name: float(value) if value is not None and math.isfinite(value) else None
        for name, value in numbers.items()
    }
