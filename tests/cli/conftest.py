"""A command line in the same process, and a small file to run it on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stacksl.cli.entry import call


@dataclass(frozen=True)
class Outcome:
    """What one call of the command line gave back."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """`stacksl("run", "--json")`, in this process."""

    capfd: pytest.CaptureFixture[str]

    def __call__(self, *words: str | Path) -> Outcome:
        self.capfd.readouterr()
        code = call([str(word) for word in words])
        return Outcome(code, *self.capfd.readouterr())

    def done(self, *words: str | Path) -> Outcome:
        """Of a call that ends well."""
        said = self(*words)
        assert said.code == 0, said.err
        return said

    def told(self, *words: str | Path) -> Any:
        """The JSON of a call that ends well."""
        return json.loads(self.done(*words, "--json").out)

    def refused(self, *words: str | Path, before: int = 0) -> str:
        """The one sentence of a call that the user has to mend, and lines `before` it."""
        said = self(*words)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1 + before), said
        return said.err


@pytest.fixture
def stacksl(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the file `toy.csv`; where a run would be made in it."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a text of number {n},{'xy'[n % 2]}\n" for n in range(40))
    (tmp_path / "toy.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    return tmp_path / "first"
