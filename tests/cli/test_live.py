"""The living line on a terminal, and the plain lines elsewhere."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from stacksl.cli import live as drawing
from stacksl.cli.live import live


def step(done: int, phase: str = "rounds", **facts: object) -> SimpleNamespace:
    given = {"total": 100, "spent": 4, "budget": 10, "accuracy": None, **facts}
    return SimpleNamespace(phase=phase, done=done, **given)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_now_and_then_at_the_start_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr(drawing, "EVERY", 1000.0)
    with live() as show:
        assert show is not None
        for done in range(1, 101):
            show(step(done))
        show(step(21, phase="labels"))  # they may all wait for people
        show(step(1, phase="labels", total=1))
        show(step(0, phase="refit", total=1))
        show(step(1, phase="refit", total=1))
    first, last, asked, only, refit = out.getvalue().splitlines()
    assert (asked, only) == ("labels asked for 21 of 100", "labels asked for 1 of 1")
    assert first.startswith("rounds 1 of 100 · 4 of 10 labels")
    assert last.startswith("rounds 100 of 100")
    assert refit == "final model"


def test_a_terminal_has_one_living_line_which_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out, bars, made = Terminal(), [], drawing._bar
    monkeypatch.setattr(drawing, "_bar", lambda: bars.append(made()) or bars[0])
    monkeypatch.setattr("sys.stderr", out)
    with live() as show:
        assert show is not None
        show(step(1, phase="features"))
        show(step(50, accuracy=0.5))
        bars[0].refresh()
    text = out.getvalue()
    assert "rounds" in text
    assert "4 of 10 labels · accuracy so far 0.500" in text
    assert text.rstrip("\r\n").endswith("\x1b[2K") or "\x1b[2K" in text
