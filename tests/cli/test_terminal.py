"""A person at a terminal: Ctrl-C in the middle, and the question before money is spent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def write(path: Path, rows: int = 90) -> Path:
    kinds = ("sea", "night", "bread")
    lines = (f"{kinds[n % 3]} word{n % 7} and word{n % 11} {n},{kinds[n % 3]}" for n in range(rows))
    path.write_text("text,topic\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
@pytest.mark.parametrize(
    ("answer", "code"), [("n", 130), pytest.param("y", 0, marks=pytest.mark.slow)]
)
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
        result = process.stdout.read().decode()
        assert process.wait() == code
    assert "5 labels for $12.50 at most" in screen
    assert "Go on? [y/N]" in screen
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
