"""Orders whose sender no longer waits, and orders that fail halfway."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")

from stacksl.api.handover import Door
from stacksl.errors import RunError
from stacksl.label import owner
from stacksl.label.orders import Order
from stacksl.runs.changes import forgetting
from stacksl.runs.changes.change import Change, preview
from stacksl.runs.changes.forgetting import forget_in
from stacksl.runs.changes.freeing import free_rows
from stacksl.runs.storage.folder import WAIT, RunFolder

from .conftest import HERE, Browser, Opened, Page


class Busy:
    """Keeps the thread of a run at work, as a refit does, until `end`."""

    def __init__(self, page: Page) -> None:
        self._gate = threading.Event()
        gate = self._gate

        def wait(folder: RunFolder) -> bool:
            return gate.wait(120)

        self.order = Order(wait, {})
        page.player.order(self.order)

    def end(self) -> None:
        self._gate.set()
        assert self.order.outcome.result(120) == {"result": True}


def act(browser: Browser, **body: Any) -> Any:
    headers = {"Origin": HERE, "X-CSRF-Token": browser.csrf}
    return browser.http.post("/owner", json=body, headers=headers)


def test_an_order_nobody_waits_for_is_not_carried_out_and_the_page_goes_on(opened: Opened) -> None:
    page = opened(budget=12, batch=6)
    anna, busy = page.browser("anna"), Busy(page)
    rows = anna.rows()
    given_up = Order(free_rows, {"away": ["anna"]})
    page.player.order(given_up)
    assert given_up.outcome.cancel(), "as the server cancels a request when it ends"
    busy.end()
    Busy(page).end()
    assert not page.player.over.is_set()
    assert anna.rows() == rows


def test_what_the_owner_is_told_was_not_done_is_not_done_later(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(budget=12, batch=6)
    boss, busy = page.browser(",owner"), Busy(page)
    monkeypatch.setattr(owner, "PATIENCE", 0.1)
    reply = act(boss, act="annotator", name="carl")
    assert reply.status_code == 503
    assert "nothing was changed" in reply.json()["sentence"]
    monkeypatch.undo()
    busy.end()
    Busy(page).end()
    assert page.player.annotators == ("anna", "ben")


def test_of_a_busy_page_no_command_says_that_it_is_carried_out(tmp_path: Path) -> None:
    patience = WAIT.set(-29.8)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        door = Door(RunFolder(tmp_path), "127.0.0.1", silent.getsockname()[1], "secret")
        with pytest.raises(RunError, match="repeat the command if it was not carried out"):
            door.call(preview, Change(budget="20"))  # a look at a change, and no change
    WAIT.reset(patience)


def test_the_page_ends_where_an_item_is_forgotten_halfway(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(budget=12, batch=6)
    with page.run.ledger as ledger:
        item = ledger.handed()[0].item

    def full(*_: Any) -> Any:
        raise RunError("the disk is full")

    monkeypatch.setattr(forgetting, "_erase", full)
    order = Order(forget_in, {"item": item})
    assert page.player.order(order).result(120)["sentence"] == "the disk is full"
    assert page.player.over.wait(120)
    assert "was interrupted: finish it with" in str(page.player.view.sentence)
    monkeypatch.undo()
    assert forget_in(page.player.folder, None).name


def test_who_joins_may_open_the_link_before_the_run_is_open_again(opened: Opened) -> None:
    page = opened(budget=12, batch=6)
    carl = page.browser("carl")  # the order has been replied to, the run is being opened
    assert carl.http.get("/").status_code == 200
    assert carl.rows() == {}
