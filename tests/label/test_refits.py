"""Refits beside the entry of answers: what is entered meanwhile, and what a kill leaves."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import RunError
from stacksl.ledger.events import Row
from stacksl.runs.changes.people import free_rows
from stacksl.runs.loop.linear_trainer import LinearTrainer

from ..ledgers import handed_rows, items_bought, rows_of
from ..runs.people_cases import (
    answer_all,
    begin,
    fill,
    gold,
    read_rows,
    sheets,
    write_classes,
    write_pool,
    write_rows,
)
from .conftest import Browser, Opened, Page, play, wait_for


class Held:
    """A function that waits, once it is called, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        original = getattr(owner, name)

        def held(*words: Any, **named: Any) -> Any:
            self.begun.set()
            assert self.free.wait(60)
            return original(*words, **named)

        monkeypatch.setattr(owner, name, held)


@pytest.fixture
def refit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Held]]:
    made: list[Held] = []

    def hold(owner: type = LinearTrainer, name: str = "_on_the_way") -> Held:
        made.append(Held(monkeypatch, owner, name))
        return made[-1]

    yield hold
    for each in made:
        each.free.set()


def news(page: Page, shown: set[str]) -> bool:
    """Whether anna has a question that is not among those shown."""
    return not {each.key for each in page.player.view.rows.get("anna", ())} <= shown


def answer_until(held: Held, browsers: list[Browser]) -> None:
    """Answer until the refit is under way."""
    until = time.monotonic() + 60
    while not held.begun.is_set():
        assert time.monotonic() < until
        for browser in browsers:
            for key, prompt in list(browser.rows().items())[:1]:
                assert browser.answer(key, prompt) == "taken"
            if held.begun.wait(0.2):
                return


def rows_left(browsers: list[Browser]) -> list[tuple[Browser, str, str]]:
    return [(b, key, prompt) for b in browsers for key, prompt in b.rows().items()]


def decided(rows: list[Row]) -> list[Any]:
    return [(r.round, r.item, r.payload["statistic"]) for r in rows if r.event == "round"]


def copy_of(run: Run, folder: Path) -> Run:
    """The run as a kill would leave it now: nothing is being written."""
    shutil.copytree(run.path, folder / "killed", ignore=shutil.ignore_patterns("*.lock", "lock"))
    return Run.open(folder / "killed")


def test_answers_skips_and_sheets_are_entered_while_the_model_is_refitted(
    opened: Opened, refit: Callable[..., Held], tmp_path: Path
) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", audit=4, open_questions=12)
    sheet = next(path for path in sheets(waiting) if "ben" in path.name)
    page = opened(waiting)
    anna, ben = people = [page.browser("anna"), page.browser("ben")]
    held = refit()
    answer_until(held, people)
    before = page.spent()[0]
    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt, note="meanwhile") == "taken"
    assert page.spent() == (before + 1, 0), "it is in the ledger, and the refit goes on"
    theirs, text = next(iter(ben.rows().items()))
    assert ben.skip(theirs).json()["state"] == "skipped"
    wait_for(lambda: text in anna.rows().values())
    page.player.receive([fill(sheet)]).result(20)
    now = page.spent()[0]
    assert now > before + 1
    refits = rows_of(page.run, "refit")
    assert refits[-1].payload["labels"] <= before
    assert not held.free.is_set()
    held.free.set()
    play(people, page)
    assert page.spent()[0] == 24
    assert page.run.replay()["labels"] == 20


@pytest.mark.parametrize(
    "more", [{}, pytest.param({"mode": "stream", "class_names": True}, marks=pytest.mark.slow)]
)
def test_a_run_killed_in_a_refit_buys_what_one_that_was_not_killed_buys(
    opened: Opened,
    refit: Callable[..., Held],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
) -> None:
    monkeypatch.setattr("stacksl.runs.loop.linear_trainer.EVERY", 4)  # of a stream
    page = opened(open_questions=12, **more)
    people = [page.browser("anna"), page.browser("ben")]
    held = refit()
    answer_until(held, people)
    for browser, key, prompt in rows_left(people)[:3]:
        assert browser.answer(key, prompt) == "taken"
    spent = page.spent()
    killed = copy_of(page.run, tmp_path)
    before = len(rows_of(killed))
    held.free.set()
    wait_for(lambda: bool(decided(rows_of(page.run)[before:])))
    kept = decided(rows_of(page.run)[before:])
    killed.resume()
    again = rows_of(killed)
    found = decided(again[before:])  # a stream is still at it
    assert found[: len(kept)] == kept, "the same items with the same decisions"
    assert more or found == kept
    assert [row.event for row in again[before:]].count("refit") == 0
    assert sum(row.event == "answered" for row in again) == spent[0]
    while killed.status()["state"] == "waiting":
        answer_all(killed)
    assert killed.status()["spent"] == 24
    assert killed.replay()["labels"] == 20
    play(people, page)
    assert page.run.replay()["labels"] == 20


def test_a_change_waits_for_the_refit_and_a_page_opens_before_it(
    opened: Opened, refit: Callable[..., Held]
) -> None:
    page = opened(open_questions=12)
    people = [page.browser("anna"), page.browser("ben")]
    held = refit()
    answer_until(held, people)
    change = page.player.do(lambda: free_rows(page.run.folder, away=["ben"]), closes=True)
    browser, key, prompt = rows_left(people)[0]
    assert browser.answer(key, prompt) == "taken", "who answers does not wait with it"
    assert not change.done()
    held.free.set()
    change.result(30)
    anna = people[0]
    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt) == "taken"
    page.player.stop()
    later = refit()
    again = opened(page.run)
    assert later.begun.wait(20), "its first refit is not made yet"
    anna = again.browser("anna")  # a session ends with its process
    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt) == "taken"
    later.free.set()


def test_a_change_asked_for_during_the_last_refit_is_made_after_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = read_rows(write_pool(tmp_path, 60))
    rows = [{**row, "model": gold(row["text"])} for row in rows]
    wanted: dict[str, Any] = {"classes": str(write_classes(tmp_path)), "labeler": "file"}
    wanted |= {"annotators": "anna", "budget": 24, "audit": 12, "features": "hashing"}
    path = write_rows(tmp_path / "judged.csv", rows)
    page = opened(run(path, model_labels="model", mode="pool", out=tmp_path / "run", **wanted))
    begun, free = threading.Event(), threading.Event()
    original = LinearTrainer._doubted

    def held(self: LinearTrainer, *words: Any, tune: bool) -> Any:
        if tune:  # the last one
            begun.set()
            assert free.wait(60)
        return original(self, *words, tune=tune)

    monkeypatch.setattr(LinearTrainer, "_doubted", held)
    people = [page.browser("anna")]
    until = time.monotonic() + 120
    while not begun.is_set():
        assert time.monotonic() < until
        assert page.player.fault is None
        for browser, key, prompt in rows_left(people)[:1]:
            browser.answer(key, prompt)
    change = page.player.do(lambda: page.run.status()["state"], closes=True)
    wait_for(lambda: page.player._queue.empty())
    assert not change.done()
    free.set()
    assert change.result(60) == "finished"


def test_an_answer_after_the_end_leaves_its_row_open_to_another(opened: Opened) -> None:
    page = opened(budget=8, audit=4, annotators="anna")
    anna = page.browser("anna")
    key = next(iter(anna.rows()))
    play([anna], page)
    wait_for(lambda: page.player.view.state == "finished")
    late = page.player.say("anna", key, lambda run: run.skip("anna", key, "unsure"))
    with pytest.raises(RunError, match="the run has finished"):
        late.result(20)


def test_answers_that_teach_nothing_are_followed_by_no_refit(opened: Opened, monkeypatch) -> None:
    made: list[int] = []
    original = LinearTrainer._on_the_way

    def noted(self: LinearTrainer) -> Any:
        made.append(len(self.examples.bought))
        return original(self)

    monkeypatch.setattr(LinearTrainer, "_on_the_way", noted)
    page = opened(budget=30, open_questions=2, audit=10, annotators="anna")
    anna = page.browser("anna")
    audit = items_bought(page.run, "audit")
    counts: dict[bool, list[int]] = {True: [], False: []}
    shown = {asked.key for asked in page.player.view.rows.get("anna", ())}
    for _ in range(14):
        first = page.player.view.rows.get("anna", ())[0]
        item = next(row.item for row in handed_rows(page.run) if row.key == first.key)
        before = len(made)
        assert anna.answer(first.key, first.prompt) == "taken"
        wait_for(partial(news, page, shown))
        counts[item in audit].append(len(made) - before)
        shown |= {each.key for each in page.player.view.rows.get("anna", ())}
    assert set(counts[False]) == {1}
    assert set(counts[True]) == {0}
    assert len(counts[True]) >= 3
    play([anna], page)
    assert page.run.replay()["labels"] == 20


def test_a_refit_that_fails_ends_the_page_in_a_sentence(opened: Opened, monkeypatch) -> None:
    page = opened(open_questions=6)
    people = [page.browser("anna"), page.browser("ben")]

    def fails(*words: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(LinearTrainer, "_on_the_way", fails)
    until = time.monotonic() + 60
    while not page.player.over.is_set():
        assert time.monotonic() < until
        for browser, key, _prompt in rows_left(people)[:1]:
            browser.post(browser.given(key, position=0))
        time.sleep(0.1)
    assert page.player.view.state == "failed"
    monkeypatch.undo()
    page.run.resume()
    assert page.run.status()["state"] == "waiting"
    page.run.replay()
