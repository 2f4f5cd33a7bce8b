"""The server as a process: killed between an answer and its reply, and started again."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.runs.changes.forgetting import forget

from ..e2e.conftest import Worker, worker, workers  # noqa: F401
from ..ledgers import handed_rows, rows_of, verify
from ..runs.people_cases import begin, fill, open_rows, sheets
from .clients import Client
from .conftest import wait_for
from .test_browser import PROMPT, kept_in

# The n-th call of a function is the last of a server.
KILLED = """
import os, signal, time
import stacksl.label.player as player, stacksl.ledger.ledger as ledger
import stacksl.label.open_run as open_run, stacksl.runs.changes.change as change
import stacksl.runs.loop.linear_trainer as trainer
owner, name = {"take": (ledger.Ledger, "take"), "reply": (open_run.OpenRun, "enter"),
               "play": (player.PageSession, "play"), "received": (open_run, "received"),
               "record": (change, "_record"),
               "refit": (trainer.LinearTrainer, "_on_the_way")}[where]
original, calls, take = getattr(owner, name), 0, ledger.Ledger.take
entered = []
def noted(*words, **named):
    found = take(*words, **named)
    entered.extend(found)
    return found
if where == "refit":
    ledger.Ledger.take = noted
def deadly(*words, **named):
    global calls
    calls += 1
    if calls == number:
        before = len(entered)
        while where == "refit" and len(entered) < before + 2:
            time.sleep(0.01)
        if where == "reply":
            original(*words, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*words, **named)
setattr(owner, name, deadly)
"""
LINK = re.compile(r"^\(?(\w+)\)?\s+(http://127\.0\.0\.1:(\d+)/#\S+)\n", re.M)


class Server:
    """Browsers with a queue: an answer is sent again, to any server there is, until it is taken."""

    def __init__(self, run: Run, starter: Worker) -> None:
        self.run, self.starter = run, starter
        self.process: Any = None
        self.sessions: dict[str, Client] = {}
        self.links: dict[str, str] = {}

    def start(self, where: str = "", number: int = 0, port: int = 0) -> None:
        if self.process is not None:
            self.process.wait(120)
        words = ["label", str(self.run.path), "--port", str(port), "--json"]
        first = f"where, number = {where!r}, {number}\n{KILLED}" if where else ""
        self.process = self.starter.apart(words, self.run.path.parent, first)
        self.links = {}

        def told_links() -> bool:
            told = self.process.told()
            self.links = {name: link for name, link, _ in re.findall(LINK, told)}
            assert self.process.poll() is None, told
            return len(self.links) == 3

        wait_for(told_links)
        told = self.process.told()
        rest = [line for line in re.sub(LINK, "", told).splitlines() if line.strip()]
        assert all("works once" in line for line in rest), told
        self.port = int(re.findall(LINK, told)[0][2])
        for who in [who for who in self.sessions if who != "owner"]:
            self.enter(who)  # sessions have ended with the server

    def enter(self, who: str) -> None:
        self.sessions[who] = Client(self.links[who])

    def owned(self, path: str, body: Any) -> str:
        """The sentence in the reply to what the owner does."""
        if "owner" in self.links:
            self.enter("owner")
            del self.links["owner"]
        status, text, _ = self.sessions["owner"].call("POST", path, body)
        assert status == 200, text
        return str(json.loads(text)["sentence"])

    def rows(self, who: str) -> dict[str, str]:
        return self.sessions[who].rows()

    def answer(self, who: str, key: str, prompt: str) -> str:
        """The state in the reply to an answer; sent until there is one."""
        while True:
            try:
                status, text = self.sessions[who].answer(key, prompt)
            except (OSError, http.client.HTTPException):
                assert self.process.wait(120) == -signal.SIGKILL, self.process.told()
                self.start()
                continue
            if status == 200:
                return str(json.loads(text)["state"])
            assert status in (202, 503), text


@pytest.fixture
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    waiting = begin(tmp_path, annotators="anna,ben", budget=14, open_questions=6, audit=2)
    client = Server(waiting, request.getfixturevalue("worker"))
    yield client
    if client.process is not None:
        client.process.end()


@pytest.mark.parametrize(
    ("where", "number"),
    [
        *(("take", 2), ("reply", 2)),
        pytest.param("play", 2, marks=pytest.mark.slow),
        pytest.param("refit", 1, marks=pytest.mark.slow),
        pytest.param("reply", 5, marks=pytest.mark.slow),
        pytest.param("refit", 2, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_kill_between_answer_and_reply_loses_and_doubles_nothing(
    client: Server, where: str, number: int
) -> None:
    client.start(where, number)
    for who in ("anna", "ben"):
        client.enter(who)
    first = client.process
    until = time.monotonic() + 240
    given = 0
    while client.process.poll() is None or client.process is first:
        assert time.monotonic() < until
        for who in ("anna", "ben"):
            try:
                rows = client.rows(who)
            except (OSError, http.client.HTTPException):
                if client.process is first and first.wait(120) == -signal.SIGKILL:
                    client.start()
                rows = {}
            for key, prompt in list(rows.items())[:1]:
                assert client.answer(who, key, prompt) == "taken"
                given += 1
            if not rows:  # a session that asks more than 24 times a second is refused
                time.sleep(0.05)
        if client.run.status()["state"] == "finished":
            break
    assert first.poll() == -signal.SIGKILL, "the server was killed on the way"
    assert given == 14
    status = client.run.status()
    assert (status["state"], status["spent"], status["budget"]) == ("finished", 14, 14)
    with client.run.ledger as ledger:
        ledger.verify()
        events = [row.event for row in ledger.rows()]
        answers = {row["item"]: row["answer"] for row in ledger.export()}
        texts = {row.item: None for row in ledger.private.handed()}
    assert (events.count("answered"), events.count("late")) == (14, 0)
    assert len(answers) == len(texts) == 14
    assert client.run.replay()["labels"] == 12


def test_a_page_killed_while_it_enters_a_sheet_loses_and_doubles_nothing(client: Server) -> None:
    waiting = client.run
    files = [fill(path) for path in sheets(waiting)]
    rows = sum(open_rows(waiting).values())
    client.start("received", 2)
    assert "accepted" in client.owned("/sheet?name=first.csv", files[0].read_bytes())
    with pytest.raises((OSError, http.client.HTTPException)):
        client.owned("/sheet?name=second.csv", files[1].read_bytes())
    assert client.process.wait(120) == -signal.SIGKILL
    received = waiting.answer(*files)
    assert (received.accepted, received.repeated) == ({}, rows)
    client.start()
    said = [client.owned("/sheet?name=again.csv", path.read_bytes()) for path in files]
    assert sum(int(re.search(r"(\d+) given before", each)[1]) for each in said) == rows  # type: ignore[index]
    verify(waiting)
    events = [row.event for row in rows_of(waiting)]
    assert (events.count("answered"), events.count("late")) == (rows, 0)


def test_a_page_killed_while_it_changes_the_run_has_changed_nothing(client: Server) -> None:
    waiting = client.run
    before = waiting.status()["budget"]
    client.start("record", 1)  # in the transaction, whose settings are written
    with pytest.raises((OSError, http.client.HTTPException)):
        client.owned("/owner", {"act": "budget", "value": "20", "agreed": True})
    assert client.process.wait(120) == -signal.SIGKILL
    client.start()
    assert waiting.status()["budget"] == before
    said = client.owned("/owner", {"act": "budget", "value": "22", "agreed": True})
    assert said == "The budget is 22 labels in all."
    assert client.process.poll() is None, "the page goes on"
    verify(waiting)
    assert [row.event for row in rows_of(waiting)].count("budget") == 1


def test_ctrl_c_closes_the_page_in_a_sentence_and_the_end_of_the_run_in_a_result(
    client: Server,
) -> None:
    client.start()
    client.enter("anna")
    key, prompt = next(iter(client.rows("anna").items()))
    assert client.answer("anna", key, prompt) == "taken"
    os.kill(client.process.pid, signal.SIGINT)
    assert client.process.wait(120) == 130
    out, err = Path(client.process.stdout).read_text(), client.process.told()
    assert out == ""
    assert err.strip().endswith(
        f"the page is closed, and answers are kept: `stacksl label {client.run.path}` continues"
    )
    assert "Traceback" not in err
    status = client.run.status()
    assert (status["state"], status["answered"]) == ("waiting", 1)


@pytest.mark.browser
def test_a_forgotten_item_leaves_the_browser_at_its_next_contact(
    client: Server, visit: Callable[..., Any]
) -> None:
    client.start()
    page = visit(client.links["anna"])
    prompt, key = page.inner_text(PROMPT), page.inner_text("#key")
    os.kill(client.process.pid, signal.SIGINT)
    assert client.process.wait(120) == 130
    page.keyboard.press("+")
    page.keyboard.type("a note on it")
    page.keyboard.press("Enter")
    page.keyboard.press("a")
    page.keyboard.press("b")
    wait_for(lambda: "No connection" in page.inner_text("#said"))
    assert "a note on it" in json.dumps(kept_in(page))
    item = next(row.item for row in handed_rows(client.run) if row.key == key)
    forget(client.run.path, item)
    client.start(port=client.port)
    wait_for(lambda: "has expired" in page.inner_text("#said"))
    page.goto("about:blank")
    page.goto(client.links["anna"])
    page.wait_for_selector(PROMPT)
    wait_for(lambda: "a note on it" not in json.dumps(kept_in(page)))
    wait_for(lambda: "withdrawn" in page.inner_text("#said"))
    wait_for(lambda: prompt not in page.content())
    assert key not in json.dumps(kept_in(page))
