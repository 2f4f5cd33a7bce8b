"""Cells measured so far, a line each in a file that outlives the process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stacksl import __version__
from stacksl.errors import RunError
from stacksl.studies.cells import Cell, Result

__all__ = ["Store"]


class Store:
    """The results in `path` by the keys of their cells; without a path, in memory alone.

    A result is on disk before `put` returns. A last line that was cut off is measured again.
    Cells that could not be measured are kept in memory only: the reason may be gone next time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, Result] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Result | None:
        """The result kept under `key`."""
        return self._found.get(key)

    def put(self, key: str, cell: Cell, result: Result) -> None:
        """Keep a result.

        Raises:
            RunError: the file cannot be written.
        """
        self._found[key] = result
        if self.path is None or result.reason is not None:
            return
        line = {"key": key, "version": __version__, "cell": asdict(cell), "result": asdict(result)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=str) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as fault:
            raise RunError(
                f"cannot keep what was measured in {self.path}: {fault.strerror}; give another"
                " folder"
            ) from fault

    def _read(self, line: str) -> None:
        try:
            kept: dict[str, Any] = json.loads(line)
            self._found[kept["key"]] = Result(**kept["result"])
        except (ValueError, KeyError, TypeError):
            return  # cut off, or of another version: measured again
