"""The living line on a terminal, and the plain lines elsewhere."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from stacksl.cli.live import PhaseClock, describe, live


def step(done: int, phase: str = "rounds", **facts: object) -> SimpleNamespace:
    given = {"total": 100, "spent": 4, "budget": 10, "accuracy": None, "openness": None, **facts}
    return SimpleNamespace(phase=phase, done=done, **given)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_facts_of_a_round() -> None:
    told = describe(step(50, accuracy=0.612, openness=0.25), 61)
    assert told == "4 of 10 labels · accuracy so far 0.612 · gate open 25% · 1 min 01 s left"
    assert describe(step(50), None) == "4 of 10 labels"
    assert describe(step(50, phase="features"), 7000) == "1 h 56 min left"


def test_the_time_left_is_that_of_the_phase() -> None:
    now = iter([0.0, 10.0, 100.0, 101.0])
    clock = PhaseClock(lambda: next(now))
    assert clock.left(step(0, phase="features")) is None, "no pace is known yet"
    assert clock.left(step(20, phase="features")) == pytest.approx(40.0)
    assert clock.left(step(10)) is None, "a phase that begins in the middle, as after a resume"
    assert clock.left(step(20)) == pytest.approx(8.0)


def test_plain_lines_come_now_and_then_at_the_start_and_at_the_end() -> None:
    out = io.StringIO()
    with live(stream=out, every=1000) as show:
        assert show is not None
        for done in range(1, 101):
            show(step(done))
        show(step(0, phase="refit", total=1))
        show(step(1, phase="refit", total=1))
    first, last, refit = out.getvalue().splitlines()
    assert first.startswith("rounds 1 of 100 · 4 of 10 labels")
    assert last.startswith("rounds 100 of 100")
    assert refit == "final model"


def test_every_step_is_told_where_the_time_between_is_nothing() -> None:
    out = io.StringIO()
    with live(stream=out, every=0) as show:
        assert show is not None
        for done in range(5):
            show(step(done))
    assert len(out.getvalue().splitlines()) == 5


def test_a_terminal_has_one_living_line_which_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    with live(stream=out) as show:
        assert show is not None
        show(step(1, phase="features"))
        show(step(50, accuracy=0.5))
        show._bar.refresh()  # type: ignore[attr-defined]
    text = out.getvalue()
    assert "rounds" in text
    assert "4 of 10 labels · accuracy so far 0.500" in text
    assert text.rstrip("\r\n").endswith("\x1b[2K") or "\x1b[2K" in text


def test_quiet_shows_nothing() -> None:
    out = Terminal()
    with live(quiet=True, stream=out) as show:
        assert show is None
    assert out.getvalue() == ""
