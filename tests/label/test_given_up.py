"""Operations of the owner that nobody waits for any more, and those that fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")

from stacksl.errors import RunError
from stacksl.label import owner
from stacksl.runs.changes.freeing import free_rows

from .conftest import HERE, Browser, Opened, Page


class Busy:
    """Keeps the thread of a run at work, as a refit does, until `end`."""

    def __init__(self, page: Page) -> None:
        self._gate = threading.Event()
        self._done = page.player.do(lambda: self._gate.wait(120))

    def end(self) -> None:
        self._gate.set()
        assert self._done.result(120)


def act(browser: Browser, **body: Any) -> Any:
    headers = {"Origin": HERE, "X-CSRF-Token": browser.csrf}
    return browser.http.post("/owner", json=body, headers=headers)


def test_what_nobody_waits_for_is_not_carried_out_and_the_page_goes_on(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6)
    anna, busy = page.browser("anna"), Busy(page)
    rows = anna.rows()
    given_up = page.player.do(lambda: free_rows(page.run.folder, away=["anna"]), closes=True)
    assert given_up.cancel()
    busy.end()
    Busy(page).end()
    assert not page.player.over.is_set()
    assert anna.rows() == rows


def test_what_the_owner_is_told_was_not_done_is_not_done_later(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(budget=12, open_questions=6)
    boss, busy = page.browser(",owner"), Busy(page)
    monkeypatch.setattr(owner, "PATIENCE", 0.1)
    reply = act(boss, act="annotator", name="carl")
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
        with pytest.raises(RunError, match=r"unexpected ValueError in test_given_up\.py"):
            page.player.do(broken, closes=closes).result(120)
    assert page.browser("anna").rows()


def test_who_joins_may_open_the_link_before_the_run_is_open_again(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6)
    carl = page.browser("carl")  # the link is there, the run is being opened
    assert carl.http.get("/").status_code == 200
    assert carl.rows() == {}
