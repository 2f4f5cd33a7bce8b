"""Verbs used while the page is open: it carries them out between two answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from stacksl.api import Run
from stacksl.api.handover import NOTE, SECRET, Door, carried_out
from stacksl.cli.entry import call
from stacksl.errors import DataError, RunError, SettingsError
from stacksl.label.orders import Order
from stacksl.label.player import Player
from stacksl.runs.changes.forgetting import forget_in
from stacksl.runs.storage.folder import WAIT, RunFolder

from ..ports import reserved_port
from ..runs.people_cases import begin, fill, gold, sheets, truth, write_pool, wrong
from .clients import Client
from .served import Served


class Handed(Served):
    """Each use of the run is another context, as another process would be: it holds no lock."""

    def __init__(self, run: Run, **more: Any) -> None:
        self.sheets, self.clients = sheets(run), dict[str, Client]()
        super().__init__(run, linger=0.2, **more)

    def client(self, who: str) -> Client:
        if who not in self.clients:
            self.clients[who] = Client(self.links[who])
        return self.clients[who]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Handed]:
    waiting = begin(tmp_path, annotators="anna,ben", budget=16, audit=4)
    served = Handed(waiting)
    patience = WAIT.set(1.0)
    yield served
    WAIT.reset(patience)
    finish(served)


def finish(served: Handed, seconds: float = 240.0) -> None:
    """Answer what is left, so that the server ends."""
    until = time.monotonic() + seconds
    clients = [served.client(who) for who in ("anna", "ben")]
    while served.thread.is_alive():
        assert time.monotonic() < until
        for client in clients:
            client.answer_one(gold)
        served.thread.join(0.05)  # a session may ask 24 times a second


def labels(run: Run) -> dict[str, int]:
    with run.ledger as ledger:
        events = [row.event for row in ledger.rows()]
    return {name: events.count(name) for name in ("answered", "late", "released", "corrected")}


def test_a_sheet_is_entered_while_the_page_is_open(served: Handed) -> None:
    [anna, ben] = served.sheets
    door = Door.of(served.run.folder)
    assert door is not None
    assert (served.run.path / NOTE).stat().st_mode & 0o077 == 0
    client = served.client("anna")
    key, prompt = next(iter(client.rows().items()))
    assert client.answer(key, 0 if gold(prompt) != "bread" else 1) == "taken"
    received = served.run.answer(fill(anna), fill(ben))
    rows = sum(received.accepted.values())
    assert rows >= 4
    assert received.disputed == 1, "the page's answer was first, the sheet's is kept beside it"
    assert labels(served.run)["answered"] == rows + 1
    assert key not in client.rows()
    again = served.run.answer(anna, ben)
    assert (again.accepted, again.repeated) == ({}, rows + 1)
    assert labels(served.run)["answered"] == rows + 1, "nothing is doubled"


def test_a_row_answered_in_a_sheet_is_gone_from_the_page(served: Handed) -> None:
    sheet = next(path for path in served.sheets if "anna" in path.name)
    client = served.client("anna")
    rows = client.rows()
    served.run.answer(fill(sheet))
    key, prompt = next(iter(rows.items()))
    said = "kept" if client.place(prompt) != 0 else "taken"
    assert client.answer(key, 0) == said
    assert labels(served.run)["answered"] == len(rows)


def test_faults_arrive_as_sentences(served: Handed, tmp_path: Path) -> None:
    (tmp_path / "no.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no\.csv"):
        served.run.answer(tmp_path / "no.csv")
    with pytest.raises(RunError, match="is no annotator of this run"):
        served.run.people(away="carl")
    with pytest.raises(SettingsError, match="budget"):
        served.run.change(budget="2")
    with pytest.raises(RunError, match="unknown key"):
        served.run.people(free="anna", keys=["a2a2-a"])
    assert served.client("anna").rows()


def test_people_and_change_take_effect_on_the_page(served: Handed, tmp_path: Path) -> None:
    anna, ben = served.client("anna"), served.client("ben")
    before = anna.rows()
    assert served.run.people(away="anna") == len(before)
    wait_until(lambda: not anna.rows())
    assert len(set(before.values()) & set(ben.rows().values())) >= 2
    assert served.run.people(back="anna") == 0
    offered = served.run.change(budget="20", dry_run=True)
    assert (offered.labels, offered.more) == (20, 4)
    found = served.run.change(
        budget="20", annotators=["carl"], agreed=offered, items=write_pool(tmp_path, 5, first=900)
    )
    assert (found.labels, found.items, found.annotators) == (20, 5, ("anna", "ben", "carl"))
    wait_until(lambda: "of 20" in served.client("(owner)").text("/rows"))
    assert served.run.status()["budget"] == 20
    served.run.people(away="carl")


def test_an_item_is_forgotten_while_the_page_is_open(served: Handed) -> None:
    anna = served.client("anna")
    key, prompt = next(iter(anna.rows().items()))
    with served.run.ledger as ledger:
        item = next(row.item for row in ledger.handed() if row.key == key)
    result = carried_out(forget_in, served.run.folder, item)
    assert "ask/0001-anna.csv" in result.changed
    wait_until(lambda: key not in anna.rows())
    gone = anna.named("/answer", key, said="none", text=f"as in {prompt}", note=prompt)
    assert gone == "gone", "a browser that had answered it drops the answer"
    held = [path for path in served.run.path.rglob("*") if path.is_file()]
    assert not [path.name for path in held if prompt.encode() in path.read_bytes()]
    assert anna.rows()


def test_a_correction_by_sheet_replaces_the_answer(served: Handed) -> None:
    sheet = next(path for path in served.sheets if "anna" in path.name)
    served.run.answer(fill(sheet, wrong))
    fill(sheet, truth)
    found = served.run.corrections(sheet)
    assert len(found) >= 2
    received = served.run.answer(sheet, correct=found)
    assert received.corrected == len(found)
    assert labels(served.run)["corrected"] == len(found)


def test_the_command_line_uses_the_page_and_says_what_it_did(
    served: Handed, capsys: pytest.CaptureFixture[str]
) -> None:
    run, sheet = str(served.run.path), str(fill(served.sheets[0]))
    assert call(["answer", run, sheet, "--wait", "1"]) == 0
    out = capsys.readouterr().out
    assert "Accepted" in out
    assert "report.html" not in out, "the run has not finished"
    assert "stacksl label" not in out, "a page is open"
    assert call(["people", run, "--away", "anna"]) == 0
    assert call(["people", run, "--back", "anna", "--json"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [each["away"] for each in json.loads(out[-1])["people"]] == [False, False]
    assert call(["change", run, "--budget", "18", "--yes"]) == 0
    assert "the budget is 18 labels in all" in capsys.readouterr().out
    assert call(["people", run, "--away", "nobody"]) == 2
    assert "no annotator of this run" in capsys.readouterr().err
    assert call(["label", run, "--idle", "soon", "--wait", "0"]) == 2
    assert "--idle must be a time such as" in capsys.readouterr().err
    assert call(["label", run, "--guidelines", "nowhere.txt", "--wait", "0"]) == 2
    assert "--guidelines must be a text file" in capsys.readouterr().err
    assert call(["label", run, "--port", "0", "--wait", "0"]) == 2
    assert "is held by process" in capsys.readouterr().err
    assert Door.of(served.run.folder) is not None, "a second page leaves the note of the first"


def test_a_stale_note_is_not_believed(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna", budget=8, audit=0)
    note = {"address": "127.0.0.1", "port": 9, "secret": "x", "holder": waiting.folder.holder()}
    (waiting.path / NOTE).write_text(json.dumps(note), encoding="utf-8")
    assert Door.of(waiting.folder) is None, "nobody holds the lock"
    assert waiting.answer(fill(sheets(waiting)[0])).accepted["label"] > 0
    with waiting.folder.locked():
        note["holder"] = "process 1 on another"
        (waiting.path / NOTE).write_text(json.dumps(note), encoding="utf-8")
        assert Door.of(waiting.folder) is None, "another process than the page holds it"


def test_a_command_that_is_killed_after_it_was_sent_is_carried_out_once(served: Handed) -> None:
    sheet = next(path for path in served.sheets if "anna" in path.name)
    rows = served.client("anna").rows()
    door = Door.of(served.run.folder)
    assert door is not None
    body = json.dumps({"name": "answer", "words": {"files": [str(fill(sheet).absolute())]}})
    with socket.create_connection((door.address, door.port)) as line:
        here = f"{door.address}:{door.port}"
        head = f"POST /order HTTP/1.1\r\nHost: {here}\r\nOrigin: http://{here}\r\n"
        head += f"{SECRET}: {door.secret}\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_until(lambda: labels(served.run)["answered"] == len(rows))
    assert served.run.answer(sheet).repeated == len(rows)


def close_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page close its run when it gets an order, and another process lock it for a while."""

    def order(player: Player, order: Order) -> Any:
        player.stop()
        locked = threading.Event()
        threading.Thread(target=lock_for_a_while, args=(player.folder, locked)).start()
        assert locked.wait(60)
        player._put(order)
        return order.outcome

    monkeypatch.setattr(Player, "order", order)


def lock_for_a_while(folder: RunFolder, locked: threading.Event) -> None:
    with folder.locked():
        locked.set()
        time.sleep(0.4)


@pytest.mark.parametrize("verb", ["answer", "correct", "people", "change", "forget"])
def test_what_a_page_that_is_closing_refuses_is_carried_out_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    made = begin(tmp_path, annotators="anna,ben", budget=16, audit=4)
    [anna, *_] = sheets(made)
    found = []
    if verb == "correct":
        made.answer(fill(anna, wrong))
        found = made.corrections(fill(anna, truth))
        assert found
    served = Handed(made)
    close_first(monkeypatch)
    if verb == "answer":
        assert sum(made.answer(fill(anna)).accepted.values()) == labels(made)["answered"] > 0
    elif verb == "correct":
        assert made.answer(anna, correct=found).corrected == len(found)
        assert labels(made)["corrected"] == len(found)
    elif verb == "people":
        assert made.people(away="anna") > 0
        assert [each.away for each in made.annotators()] == [True, False]
    elif verb == "change":
        assert made.change(budget="20").labels == 20
        assert made.status()["budget"] == 20
    else:
        with made.ledger as ledger:
            item = ledger.handed()[0].item
        assert call(["forget", str(made.path), "--id", item]) == 0
        with made.ledger as ledger:
            assert item not in [row.item for row in ledger.handed()]
    served.thread.join(120)
    assert not served.thread.is_alive()


def test_a_page_that_no_longer_listens_is_not_asked(tmp_path: Path) -> None:
    made = begin(tmp_path, annotators="anna,ben", budget=8, audit=0)
    locked = threading.Event()
    threading.Thread(target=lock_for_a_while, args=(made.folder, locked)).start()
    assert locked.wait(60)
    with reserved_port() as port:
        Door(made.folder, "127.0.0.1", port, "secret").note()
        assert Door.of(made.folder) is not None
        assert made.people(away="anna") > 0


def test_an_order_needs_the_secret(served: Handed) -> None:
    client = served.client("anna")
    client.rows()
    body = {"name": "free_rows", "words": {"free": True}}
    assert client.post("/order", body)[0] == 403
    assert client.post("/order", body, **{"X-Order-Secret": "guess"})[0] == 403
    door = Door.of(served.run.folder)
    assert door is not None
    _, text = client.post(
        "/order", {"name": "rmtree", "words": {}}, **{"X-Order-Secret": door.secret}
    )
    assert "got another order" in text
    _, text = client.post(
        "/order", {"name": "free_rows", "words": {"no": 1}}, **{"X-Order-Secret": door.secret}
    )
    assert "got another order" in text
    assert labels(served.run)["released"] == 0


def wait_until(holds: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it should be so by now"
        time.sleep(0.03)
