"""A run of people that is cut off anywhere ends as the undisturbed one, given the same answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stacksl.api import Run
from stacksl.runs.items.corpus import Role
from stacksl.runs.items.roles import corpus_of, order_of
from stacksl.runs.spec import RunSpec

from ..e2e.worker import arm
from .people_cases import begin, bought, expect_sound, fill, sheets

MOMENTS = [
    ("stacksl.ledger.ledger:Ledger.take", 1, "before"),
    ("stacksl.ledger.ledger:Ledger.take", 1, "after"),
    ("stacksl.core.learner:Learner.learn", 2, "after"),
    ("stacksl.ledger.ledger:Ledger.post", 1, "after"),
    ("stacksl.ledger.ledger:Ledger.hand_out", 1, "before"),
    ("stacksl.ledger.ledger:Ledger.hand_out", 1, "after"),
    ("stacksl.runs.session.assignment:write_sheet", 1, "after"),
    ("stacksl.runs.finish.finish:write_pages", 1, "before"),
]
SETTINGS = {"annotators": "anna,ben", "overlap": 2, "audit": 4, "budget": 29, "batch": 4}


def killed(moment: tuple[str, int, str], act: Callable[[], object]) -> None:
    """Do it in a child that dies at the moment by SIGKILL, so that nothing gets to clean up."""
    pid = os.fork()
    if not pid:
        try:
            arm(*moment)
            act()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), moment
    assert os.WTERMSIG(status) == signal.SIGKILL


def purchases(done: Run) -> list[dict[str, object]]:
    return [{**row, "learnt_at": row["learnt_at"] is not None} for row in bought(done)]


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_answers_killed_again_and_again_end_the_same(tmp_path: Path, mode: str) -> None:
    whole = begin(tmp_path, mode=mode, out=tmp_path / "whole", **SETTINGS)
    cut = begin(tmp_path, mode=mode, out=tmp_path / "cut", **SETTINGS)
    moments = iter(MOMENTS)
    while whole.status()["state"] == "waiting":
        files = [fill(path) for path in sheets(cut)]
        whole.answer(*[fill(path) for path in sheets(whole)])
        killed(next(moments), lambda files=files: cut.answer(*files))  # type: ignore[misc]
        assert cut.status()["state"] == "interrupted"
        cut.answer(*files)
        waits = [path.name for path in sheets(whole)]
        assert [path.name for path in sheets(cut)] == waits
        assert [p.read_bytes() for p in sheets(cut)] == [p.read_bytes() for p in sheets(whole)]
    assert next(moments, None) is None
    assert cut.status()["state"] == "finished"
    assert purchases(cut) == purchases(whole)
    for name in ("model/head.safetensors", "model/online.safetensors"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
    expect_sound(cut)


def test_a_waiting_run_that_is_resumed_waits_on(tmp_path: Path) -> None:
    waiting = begin(tmp_path, audit=4)
    with waiting.ledger as ledger:
        before, told = ledger.head, waiting.status()
    for _ in range(2):
        waiting.resume()
    with waiting.ledger as ledger:
        assert ledger.head == before
    assert waiting.status() == told
    expect_sound(waiting)


def test_rows_to_measure_are_none_to_choose_from(tmp_path: Path) -> None:
    waiting = begin(tmp_path, audit=9)
    corpus = corpus_of(RunSpec.open(waiting.folder))
    assert len(corpus.drawn) == 9
    assert sorted([*corpus.order, *corpus.drawn]) == list(range(60))
    assert corpus.aside() == frozenset(corpus.drawn)
    assert {Role(corpus.roles[row]) for row in corpus.drawn} == {Role.AUDIT}


def test_an_order_is_the_seeds_or_the_files() -> None:
    assert order_of("file", 3, 5) == [0, 1, 2, 3, 4]
    one, other = order_of("shuffled", 3, 50), order_of("shuffled", 4, 50)
    assert sorted(one) == sorted(other) == list(range(50))
    assert one != other
    assert order_of("shuffled", 3, 50) == one
    assert order_of("shuffled", 3, 50, 1) != one
