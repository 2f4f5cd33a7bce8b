"""Rows that are passed on, and what the page does with what was given up."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from stacksl.errors import RunError
from stacksl.label import owner
from stacksl.label.open_run import OpenRun
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.finish.forecasting import look_due
from stacksl.runs.loop.linear_trainer import STAGES

from ..ledgers import bought, handed_rows, open_leases, rows_of
from .conftest import Opened, Page, play, wait_for


def reasons(page: Page) -> list[str]:
    return [row.payload["reason"] for row in rows_of(page.run, "released")]


def clocked(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[Page, list[float]]:
    """A page on which people are idle after 30 seconds, and its time, which a test may change."""
    monkeypatch.setattr("stacksl.label.player.TICK", 0.05)
    page, now = opened(idle=30.0, **settings), [time.monotonic()]
    for module in ("player", "open_run"):
        monkeypatch.setattr(f"stacksl.label.{module}.monotonic", lambda: now[0])
    return page, now


def test_a_skipped_row_goes_to_somebody_else_and_its_reason_to_the_ledger(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6, audit=2)
    anna, ben = page.browser("anna"), page.browser("ben")
    key, prompt = next(iter(anna.rows().items()))
    assert anna.skip(key).json() == {"state": "skipped"}
    wait_for(lambda: prompt in ben.rows().values())
    assert key not in anna.rows()
    assert prompt not in anna.rows().values()
    assert reasons(page) == ["skipped: unsure"]
    assert anna.skip(key).json() == {"state": "gone"}, "it is not hers any more"
    mine = next(k for k, text in ben.rows().items() if text == prompt)
    assert anna.skip(mine).json() == {"state": "gone"}, "nor can she skip another's"
    assert ben.skip(mine, "bored").status_code == 422
    assert anna.answer(key, prompt) == "taken", "her late answer counts, since there is no other"
    wait_for(lambda: mine not in ben.rows())
    assert page.player.view.of("anna").skipped == 1
    play([anna, ben], page)
    assert page.spent() == (12, 0)
    assert page.run.status()["spent"] == 12
    page.run.replay()


def skips(page: Page) -> dict[str, int]:
    return {each.name: each.skipped for each in page.player.view.people}


def test_skips_are_counted_over_all_openings_without_those_of_an_erased_item(
    opened: Opened,
) -> None:
    """Who had the row is erased with it; the other skips still count, and the run goes on."""
    page = opened(budget=12, open_questions=6, audit=2)
    anna, skipped = page.browser("anna"), list[str]()
    for _ in range(2):
        skipped.append(next(iter(anna.rows())))
        assert anna.skip(skipped[-1]).json() == {"state": "skipped"}
    page.player.stop()
    again = opened(page.run)
    assert skips(again) == {"anna": 2, "ben": 0}
    again.player.stop()
    items = {row.key: row.item for row in handed_rows(page.run)}
    forget(page.run.path, items[skipped[0]])
    again = opened(page.run)
    assert skips(again) == {"anna": 1, "ben": 0}
    play([again.browser("anna"), again.browser("ben")], again)
    assert items[skipped[0]] not in {row["item"] for row in bought(again.run)}
    again.run.replay()


def test_skipped_by_everybody_it_comes_back_at_the_end(opened: Opened) -> None:
    page = opened(budget=6, open_questions=6, audit=0, annotators="anna")
    anna = page.browser("anna")
    rows = anna.rows()
    key, prompt = next(iter(rows.items()))
    assert anna.skip(key, "other").json() == {"state": "skipped"}
    wait_for(lambda: prompt in anna.rows().values())
    last = list(anna.rows().items())[-1]
    assert last[1] == prompt
    assert last[0] != key


def test_a_skipped_row_of_an_audit_is_passed_on_as_any_other(opened: Opened) -> None:
    page = opened(budget=12, open_questions=12, audit=6)
    people = {name: page.browser(name) for name in ("anna", "ben")}
    purposes = {(p.item, p.slot): p.purpose for p in open_leases(page.run)}
    row = next(h for h in handed_rows(page.run) if purposes[h.item, h.slot] == "audit")
    browser = people.pop(row.annotator)
    prompt = browser.rows()[row.key]
    assert browser.skip(row.key).json() == {"state": "skipped"}
    [other] = people.values()
    wait_for(lambda: prompt in other.rows().values())


def test_rows_of_somebody_idle_go_to_who_is_there_and_a_late_answer_is_kept(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, now = clocked(opened, monkeypatch, budget=12, open_questions=6, audit=2)
    anna, ben = page.browser("anna"), page.browser("ben")
    rows = anna.rows()
    now[0] += 31
    ben.http.get("/")  # he is there
    wait_for(lambda: not anna.rows())
    theirs = ben.rows()
    passed = [text for text in rows.values() if text in theirs.values()]
    assert passed
    assert set(reasons(page)) == {"expired"}
    assert "idle" in page.browser(",owner").http.get("/rows").text
    key = next(k for k, text in rows.items() if text == passed[0])
    mine = next(k for k, text in theirs.items() if text == passed[0])
    assert ben.answer(mine, passed[0]) == "taken"
    late = anna.given(key, position=0)
    assert anna.post(late).json() == {"state": "kept"}
    assert page.spent() == (1, 1), "it is in the ledger, and not paid"
    for text in passed[1:]:
        ben.answer(next(k for k, each in theirs.items() if each == text), text)
    wait_for(lambda: bool(anna.rows()))  # she answered, so she is there and gets rows again
    play([anna, ben], page)
    assert page.run.status()["spent"] == 12
    page.run.replay()


def test_who_waits_for_rows_is_not_idle(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    page, now = clocked(opened, monkeypatch, budget=6, open_questions=6, audit=0)
    anna, ben = page.browser("anna"), page.browser("ben")
    for key, prompt in anna.rows().items():
        anna.answer(key, prompt)
    theirs = set(ben.rows().values())
    now[0] += 31
    wait_for(lambda: set(anna.rows().values()) == theirs)
    assert not ben.rows()


def test_nobody_loses_rows_where_nobody_is_there(opened: Opened, monkeypatch) -> None:
    monkeypatch.setattr("stacksl.label.player.TICK", 0.02)
    page = opened(budget=12, open_questions=6, audit=2, idle=0.05)
    time.sleep(0.5)
    assert reasons(page) == []
    assert sum(map(len, page.player.view.rows.values())) == 6


def test_labels_are_bought_by_how_many_rows_are_open_and_by_nothing_else(
    opened: Opened, monkeypatch
) -> None:
    page = opened(budget=24, open_questions=12, audit=6, annotators="anna")
    calls: list[int] = []
    original = OpenRun.short

    def noted(self: OpenRun) -> bool:
        found = original(self)
        calls.append(len(self.labeler.rows) if found else 0)
        return found

    monkeypatch.setattr(OpenRun, "short", noted)
    anna = page.browser("anna")
    for _ in range(7):
        key, prompt = next(iter(anna.rows().items()))
        anna.answer(key, prompt)
    wait_for(lambda: any(calls))
    assert [n for n in calls if n][:1] == [6], "when half of the batch is answered"


def test_nothing_is_bought_while_a_look_at_the_audit_is_due(opened: Opened, monkeypatch) -> None:
    page = opened(
        count=200, budget=80, audit=36, open_questions=15, annotators="anna,ben,carl",
        stop_when="accuracy=0.9",
    )  # fmt: skip
    people = [page.browser(name) for name in ("anna", "ben", "carl")]
    calls: list[bool] = []
    original = OpenRun.short

    def noted(self: OpenRun) -> bool:
        found, out = original(self), self.ledger.open_purchases()
        if 0 < len(out) == len(self.labeler.rows) and look_due(
            self.session.spec, self.ledger.accounts
        ):
            calls.append(found)
        return found

    monkeypatch.setattr(OpenRun, "short", noted)
    play(people, page)
    assert page.run.status()["audit"]["look"] > 0
    assert calls
    assert not any(calls), "a purchase would begin with a refit, and buy nothing"


def test_an_overlap_slot_that_is_skipped_goes_to_a_third_person(opened: Opened) -> None:
    page = opened(
        budget=12, open_questions=8, audit=0, sheets={"overlap": 4}, annotators="anna,ben,carl"
    )
    people = {name: page.browser(name) for name in ("anna", "ben", "carl")}
    handed = handed_rows(page.run)
    first = next(row for row in handed if row.slot == 1)
    holders = {row.annotator for row in handed if row.item == first.item}
    assert len(holders) == 2
    [third] = set(people) - holders
    prompt = people[first.annotator].rows()[first.key]
    assert people[first.annotator].skip(first.key).json() == {"state": "skipped"}
    wait_for(lambda: prompt in people[third].rows().values())
    mine = next(key for key, text in people[third].rows().items() if text == prompt)
    assert people[third].skip(mine).json() == {"state": "skipped"}
    wait_for(lambda: prompt in people[first.annotator].rows().values())
    [other] = holders - {first.annotator}
    assert list(people[other].rows().values()).count(prompt) == 1, "nobody is asked twice"
    play(list(people.values()), page)
    assert page.spent() == (12, 0)
    given = [(row["item"], row["labeler"]) for row in bought(page.run)]
    assert len(given) == len(set(given))


def test_a_table_is_bought_on_the_page_up_to_a_promise(opened: Opened) -> None:
    """A model on the way is made on another thread than the one that holds the ledger."""
    page = opened(
        count=100, budget=90, audit=None, open_questions=30, annotators="anna,ben,carl",
        class_names=True, stop_when="right=80%",
    )  # fmt: skip
    people = [page.browser(name) for name in ("anna", "ben", "carl")]
    play(people, page)
    assert page.run.status()["state"] == "finished"
    with page.run.ledger as ledger:
        saved = ledger.arrays()
    assert saved is not None
    assert len(saved.arrays[STAGES]), "no model was made on the way"
    page.run.replay()


class Busy:
    """Keeps the thread of a run at work, as a refit does, until `end`."""

    def __init__(self, page: Page) -> None:
        self._gate = threading.Event()
        self._done = page.player.do(lambda: self._gate.wait(120))

    def end(self) -> None:
        self._gate.set()
        assert self._done.result(120)


def test_what_the_owner_is_told_was_not_done_is_not_done_later(opened: Opened, monkeypatch) -> None:
    page = opened(budget=12, open_questions=6)
    boss, busy = page.browser(",owner"), Busy(page)
    monkeypatch.setattr(owner, "PATIENCE", 0.1)
    reply = boss.act(act="annotator", name="carl")
    assert reply.status_code == 503
    assert "nothing was changed" in reply.json()["sentence"]
    monkeypatch.undo()
    busy.end()
    Busy(page).end()
    assert page.player.annotators == ("anna", "ben")


def test_the_page_goes_on_after_an_operation_that_fails(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6)

    def full() -> None:
        raise RunError("the disk is full")

    def broken() -> None:
        raise ValueError("a text of the data")

    for closes in (False, True):
        with pytest.raises(RunError, match="the disk is full"):
            page.player.do(full, closes=closes).result(120)
        with pytest.raises(RunError, match=r"unexpected ValueError in test_passing_on\.py"):
            page.player.do(broken, closes=closes).result(120)
    assert page.browser("anna").rows()


def test_who_joins_may_open_the_link_before_the_run_is_open_again(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6)
    carl = page.browser("carl")  # the link is there, the run is being opened
    assert carl.http.get("/").status_code == 200
    assert carl.rows() == {}
