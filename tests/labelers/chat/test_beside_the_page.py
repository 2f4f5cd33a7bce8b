"""A model beside people who answer on the page, where refits are made beside their answers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import stacksl
from stacksl.label.asked import history_of
from stacksl.label.open_run import OpenRun, People
from stacksl.label.session import PageSession
from stacksl.labelers.chat import labeler as chat
from stacksl.labelers.sheets.rows import Reply
from stacksl.ledger.ledger import Ledger
from stacksl.runs.loop import choosers
from stacksl.runs.loop.choosers import DRAWN_FIRST
from stacksl.runs.spec import RunSpec

from .beside_cases import (
    COUNT,
    TOPICS,
    begin,
    bought,
    expect_books,
    good,
    head_of,
    number_of,
    play,
    topic,
)
from .chat_server import Handler, completion, letter_of, serving

PART = 40


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(choosers, "FEWEST_AT_ONCE", PART)


def give(page: OpenRun, count: int = COUNT) -> None:
    """Answer up to `count` open rows rightly."""
    for row in page.labeler.rows[:count]:
        place = TOPICS.index(topic(number_of(page.sheets.question(row).prompt)))
        assert page.enter("anna", Reply(0, row.key, "label", place, None, None)) == "taken"


def meanwhile(page: OpenRun, refit: Future[Any]) -> None:
    """An answer arrives during each refit."""
    give(page, 1)
    refit.result()


def nothing(page: OpenRun, refit: Future[Any]) -> None:
    refit.result()


def on_page(
    run: stacksl.Run,
    attend: Callable[[OpenRun, Future[Any]], None] = nothing,
    last: Callable[[OpenRun], None] = lambda page: None,
) -> stacksl.Run:
    with PageSession.open(RunSpec.open(run.folder)) as session:
        page = OpenRun(session, People(()), attend)
        state = page.buy(lambda: None)
        for _ in range(40):
            if state == "finished":
                last(page)
                return run
            give(page)
            state = page.buy(lambda: None)
    raise AssertionError("it still waits")


def played(run: stacksl.Run) -> tuple[list[str], list[Any]]:
    """The purchases of both and the refits, in order; and the certificates."""
    with run.ledger as ledger:
        rows = list(ledger.rows())
    order = [f"{r.event} {r.item}" for r in rows if r.event in ("reserved", "refit")]
    return order, [(r.round, r.item, r.payload) for r in rows if r.event == "round"]


def refits_between_parts(run: stacksl.Run) -> list[int]:
    """How many labels of the model there were at each refit that came with more of them."""
    with run.ledger as ledger:
        rows, heard, found = list(ledger.rows()), 0, [0]
    for row in rows:
        heard += row.event == "answered" and row.purpose == "soft"
        if row.event == "refit" and heard > found[-1]:
            found.append(heard)
    return found[1:]


def test_the_model_is_refitted_between_the_parts_as_without_a_page(tmp_path: Path) -> None:
    with serving(good) as server:
        sheets = play(begin(server, tmp_path / "sheets"))
        page = on_page(begin(server, tmp_path / "page"))
    books = [expect_books(run) for run in (sheets, page)]
    assert books[0] == books[1]
    assert books[0]["soft answered"] == COUNT - 5
    parts = refits_between_parts(page)
    assert parts == refits_between_parts(sheets)
    assert len(parts) == 1 + -(-(COUNT - 5 - parts[0]) // PART)
    assert head_of(page) == head_of(sheets)
    page.replay()


@pytest.mark.slow
@pytest.mark.parametrize("attend", [nothing, meanwhile])
def test_killed_anywhere_it_ends_as_one_that_was_not(
    attend: Callable[[OpenRun, Future[Any]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of the run at each write from the model's first label on are played to their ends."""
    with serving(good) as server:
        run = begin(server, tmp_path / "whole", concurrency=1)
        copies: list[Path] = []
        begun: list[str] = []

        def watch(name: str) -> None:
            original = getattr(Ledger, name)

            def watched(self: Ledger, *words: Any, **more: Any) -> Any:
                found = original(self, *words, **more)
                begun.extend([name] * (bool(begun) or name == "reserve_soft"))
                if begun and "post" not in begun[:-1]:
                    copies.append(tmp_path / f"{len(copies)}-{name}" / "run")
                    unlocked = shutil.ignore_patterns("*.lock", "lock")
                    shutil.copytree(run.path, copies[-1], ignore=unlocked)
                return found

            monkeypatch.setattr(Ledger, name, watched)

        with monkeypatch.context() as monkeypatch:
            for name in ("note_refit", "reserve_soft", "take", "post"):
                watch(name)
            on_page(run, attend)
        whole, head, calls = played(run), head_of(run), len(server.bodies)
        assert calls == COUNT - 5
        assert {"note_refit", "reserve_soft", "take", "post"} <= set(begun)
        for copy in copies:
            again = on_page(stacksl.Run.open(copy), attend)
            expect_books(again)
            again.replay()
            assert played(again) == whole, copy
            assert head_of(again) == head, copy


def test_the_owner_reads_what_the_model_said_of_what_people_were_asked(tmp_path: Path) -> None:
    told: list[Counter[str]] = []

    def read(page: OpenRun) -> None:
        asked = history_of(page.session).asked
        told.append(Counter("+".join(sorted(word.who for word in each.words)) for each in asked))

    with serving(good) as server:
        on_page(begin(server, tmp_path), last=read)
    assert told[0] == {"anna": 5, "anna+openai:m": 39, "openai:m": COUNT - 5 - 39}


def test_a_model_that_costs_more_than_it_may_warns_on_the_page_too(tmp_path: Path) -> None:
    def dear(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number == 30:
            named = topic(number_of(body["messages"][0]["content"].split("\n\nOptions")[0]))
            handler.send(200, completion(letter_of(body, named), usage=(10**6, 1)))
        else:
            good(handler, body, number)

    with serving(dear) as server:
        run = begin(server, tmp_path, concurrency=1)
        with PageSession.open(RunSpec.open(run.folder)) as session:
            page = OpenRun(session, People(()), nothing)
            now = [1000.0]
            page.clock = lambda: now[0]
            for _ in range(6):
                page.buy(lambda: None)
                give(page)
            calls = len(server.bodies)
            now[0] += 1e6
            page.buy(lambda: None)
            assert len(server.bodies) == calls, "it buys no more of them by itself"
            silence = page.view().silence
            assert silence is not None
            assert (silence.since, silence.again) == ("", "")
        state = json.loads((run.path / "state.json").read_text())
        assert any("more than was reserved" in each for each in state["warnings"])


def test_answers_are_entered_while_the_model_labels(tmp_path: Path) -> None:
    """A call ends once an answer was entered during it, which waits for no call."""
    entered = Event()
    calls: list[int] = []

    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        calls.append(number)
        if number == 1 and not entered.wait(20):
            handler.send(401)
        else:
            good(handler, body, number)

    def attend(page: OpenRun, made: Future[Any]) -> None:
        if page.labeler.asking and not entered.is_set():
            while not calls:
                assert not made.done()
            give(page, 1)
            entered.set()
        made.result()

    with serving(behave) as server:
        run = begin(server, tmp_path, audit=15)
        with PageSession.open(RunSpec.open(run.folder)) as session:
            page = OpenRun(session, People(()), attend)
            page.buy(lambda: None)
            while len(bought(run, "train")) < DRAWN_FIRST or not calls:
                give(page, 3)
                page.buy(lambda: None)
            assert entered.is_set()
            assert not page.halted
        run = on_page(run)
    expect_books(run)
    run.replay()


def test_a_dead_model_is_asked_again_after_pauses(tmp_path: Path) -> None:
    def refuses(handler: Handler, body: dict[str, Any], number: int) -> None:
        handler.send(401)

    now = [1000.0]
    with serving(good) as server:
        run = begin(server, tmp_path, concurrency=1, audit=15)
        server.behave = refuses
        with PageSession.open(RunSpec.open(run.folder)) as session:
            page = OpenRun(session, People(()), nothing)
            page.clock = lambda: now[0]
            page.buy(lambda: None)
            while not page.halted:
                give(page, 4)
                page.buy(lambda: None)
            assert "the model does not answer since 2" in str(run.status()["sheets"])
            for pause in (60, 120, 240, 480, 900, 900):
                calls = len(server.bodies)
                if page.labeler.rows:
                    give(page, 1)
                now[0] += pause - 1
                if page.short():  # for people alone
                    page.buy(lambda: None)
                assert len(server.bodies) == calls
                assert not page.short() or page.labeler.rows
                now[0] += 1
                assert page.short()
                page.buy(lambda: None)
                assert len(server.bodies) == calls + 1
            server.behave = good
            now[0] += 900
            page.buy(lambda: None)
            assert not page.halted
            assert run.status()["sheets"] is None, "it answers again"
        run = on_page(run)
    expect_books(run)
    assert run.status()["state"] == "finished"
    run.replay()
