"""A person at a terminal: Ctrl-C in the middle, and the question before money is spent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def write(path: Path, rows: int = 90) -> Path:
    kinds = ("sea", "night", "bread")
    lines = (f"{kinds[n % 3]} word{n % 7} and word{n % 11} {n},{kinds[n % 3]}" for n in range(rows))
    path.write_text("text,topic\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def interrupting(**_: object) -> Iterator[Callable[[object], None]]:
    """Presses Ctrl-C once the first label is bought."""

    def show(step: object) -> None:
        if step.phase == "labels" and step.spent:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    yield show


def test_ctrl_c_and_resume_end_as_if_nothing_had_happened(
    stacksl, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.csv")
    calm, cut = tmp_path / "calm", tmp_path / "cut"
    assert stacksl("run", data, "--budget", "20", "--out", calm, "--quiet").code == 0
    with monkeypatch.context() as patch:
        patch.setattr("stacksl.cli.verbs.run.live", interrupting)
        said = stacksl("run", data, "--budget", "20", "--out", cut)
    assert said.code == 130
    assert said.out == ""
    assert said.err.endswith(f"stacksl: stopped; continue with: stacksl resume {cut}\n")
    assert "stopped" in stacksl("status", cut).out
    moved = data.rename(tmp_path / "moved.csv")
    assert f"{data} was moved or deleted since the run read it" in stacksl("status", cut).out
    assert stacksl("resume", cut, "--quiet").code == 0, "it has its items without the file"

    def purchases(run: Path) -> list[list[str]]:
        lines = stacksl("ledger", "export", run).out.splitlines()
        return [line.split(",")[:4] for line in lines]

    assert purchases(cut) == purchases(calm)
    one, other = (stacksl("predict", run, moved, "--quiet").out for run in (calm, cut))
    assert one == other


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
@pytest.mark.parametrize(("answer", "code"), [("n", 130), ("y", 0)])
def test_a_real_terminal_is_asked_before_money_is_spent(tmp_path, answer: str, code: int) -> None:
    data, out = write(tmp_path / "data.csv", 30), tmp_path / "run"
    ours, theirs = os.openpty()
    words = ["run", str(data), "--budget", "5", "--price", "2.50", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "stacksl", *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        screen = drain(ours)
        assert process.stdout is not None
        result = process.stdout.read().decode()
        assert process.wait() == code
    assert "5 labels for $12.50 at most" in screen
    assert "Buy them? [y/N]" in screen
    assert out.exists() == (code == 0)
    assert ("$12.50 of $12.50" in result) == (code == 0)
    if code == 0:
        # which of the short phases the terminal has time to draw depends on the machine
        assert re.search(r"(features|labels|final model) .*\d/\d", screen), "the line was drawn"
        assert "Traceback" not in screen


def drain(terminal: int) -> str:
    """What appeared on the terminal until the other side was closed."""
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the way Linux says that nobody is there any more
            chunk = b""
        if not chunk:
            os.close(terminal)
            return b"".join(chunks).decode(errors="replace")
        chunks.append(chunk)
