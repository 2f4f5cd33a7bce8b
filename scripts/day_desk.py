"""A shell in a folder that records its commands and their output as a page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Desk", "Typed"]

PROGRESS = re.compile(r"^[a-z ]+( [\d,]+ of [\d,]+)?( · .*)?$")
"""A line of progress, which stderr shows every five seconds: as many as the machine is slow."""

CUT = "…"
PASSED = ("HOME", "LANG", "OMP_NUM_THREADS", "PYTHONPATH", "STACKSL_FEATURES")


@dataclass(frozen=True)
class Typed:
    """A command, what it printed (stderr, then stdout), and its exit code."""

    command: str
    printed: str
    code: int


@dataclass
class Desk:
    """Runs commands in a folder; `page` has them with their output."""

    folder: Path
    typed: list[Typed] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)

    def says(self, text: str) -> None:
        """Write a paragraph, or several, on the page."""
        self._parts.append(text.strip())

    def types(self, command: str, *, code: int = 0, shown: int | None = None) -> str:
        """Run a command, write it and its output on the page; the output.

        Args:
            command: for the shell.
            code: the exit code it must have.
            shown: only so many lines at the start; what is left out is marked.
        """
        printed = self._run(command, code)
        lines = printed.splitlines()
        kept = lines if shown is None or len(lines) <= shown else [*lines[:shown], CUT]
        self._parts.append(f"```sh\n{command}\n```")
        if kept:
            self._parts.append("```text\n" + "\n".join(kept) + "\n```")
        (self.folder / "page.md").write_text(
            self.page(), encoding="utf-8"
        )  # should a day break off
        return printed

    def shows(self, command: str) -> None:
        """Run a command, and also print it with its output while the play goes on."""
        print(f"\n$ {command}", flush=True)
        print(self.types(command), flush=True)

    def asks(self, command: str, *, code: int = 0) -> dict[str, Any]:
        """The value that a command prints with --json; the page does not show it."""
        return dict(json.loads(self._call(f"{command} --json", code).stdout))

    def page(self) -> str:
        """The page: paragraphs, commands and output, in order."""
        return "\n\n".join(self._parts) + "\n"

    def _run(self, command: str, code: int) -> str:
        done = self._call(command, code)
        lines = [line for line in done.stderr.splitlines() if not PROGRESS.match(line)]
        printed = "\n".join([*lines, *done.stdout.splitlines()])
        printed = printed.replace(f"{self.folder}/", "").replace("\ufeff", "")  # and no mark
        self.typed.append(Typed(command, printed, done.returncode))
        return printed

    def _call(self, command: str, code: int) -> subprocess.CompletedProcess[str]:
        here = os.environ
        environment = {
            **{name: here[name] for name in PASSED if name in here},
            "PATH": f"{Path(sys.executable).parent}:{here['PATH']}",
            "XDG_CACHE_HOME": here.get("XDG_CACHE_HOME", str(self.folder / ".cache")),
            "COLUMNS": "110",
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=self.folder, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != code:
            raise RuntimeError(
                f"{command} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}"
            )
        return done
