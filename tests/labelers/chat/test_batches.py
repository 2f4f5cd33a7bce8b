"""Questions in batches: what they cost, what is waited for, and what becomes of lost ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.labelers.chat import labeler
from stacksl.labelers.chat.calls import read_calls

from .chat_server import Handler, Server, completion, letter_of, right, serving, wanted_of
from .test_asking import NAMES, data_of

SINGLE, HALF = 100 + 10, 50 + 5  # of an answer of 100 tokens read and one written, at 1 and 10


class Batching:
    """The files and batches of a server, as OpenAI has them.

    Attributes:
        done: whether batches end.
        line: what an answer of a batch looks like, by its place; None for no line.
    """

    def __init__(self, database: Path) -> None:
        self.files: dict[str, bytes] = {}
        self.batches: list[dict[str, Any]] = []
        self.seen: list[str] = []
        self.done = True
        self.status = "completed"
        self.before: Callable[[Handler], bool] = lambda _: False
        self.line: Callable[[int, dict[str, Any]], dict[str, Any] | None] = answered
        self.database = database
        self.recorded = 0

    def __call__(self, handler: Handler, what: str, content: bytes) -> None:
        what = what.replace("/v1", "")
        self.seen.append(what)
        if what == "POST /files":
            name = f"file-{len(self.files)}"
            self.files[name] = content.split(b"\r\n\r\n")[2].rsplit(b"\r\n--", 1)[0]
            assert b'name="purpose"\r\n\r\nbatch\r\n' in content
            handler.send(200, json.dumps({"id": name, "object": "file"}).encode())
        elif what == "POST /batches":
            self._begin(handler, json.loads(content))
        elif what.startswith("GET /batches"):
            self._list(handler, what)
        elif found := re.fullmatch(r"GET /files/(.+)/content", what):
            handler.send(200, self.files[found[1]])
        else:
            gone = self.files.pop(what.removeprefix("DELETE /files/"), None)
            handler.send(404 if gone is None else 200)

    def _begin(self, handler: Handler, wanted: dict[str, Any]) -> None:
        rows = [row for row in read_calls(self.database) if "batch" in row]
        self.recorded = sum(row["batch"] == wanted["input_file_id"] for row in rows)
        assert (wanted["endpoint"], wanted["completion_window"]) == ("/v1/chat/completions", "24h")
        found = {"id": f"batch-{len(self.batches)}", "status": "validating", **wanted}
        if self.before(handler):
            return
        self.batches.insert(0, found)
        handler.send(200, json.dumps(found).encode())

    def _list(self, handler: Handler, what: str) -> None:
        """One batch a page, the newest first."""
        for each in self.batches:
            if self.done and each["status"] == "validating":
                self._end(each)
        after = re.search("after=(.+)", what)
        ids = [each["id"] for each in self.batches]
        place = ids.index(after[1]) + 1 if after else 0
        page = {"data": self.batches[place : place + 1], "has_more": place + 1 < len(ids)}
        handler.send(200, json.dumps(page).encode())

    def _end(self, batch: dict[str, Any]) -> None:
        batch["status"] = self.status
        asked = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        lines = [self.line(n, each) for n, each in enumerate(asked)]
        good = [
            each for each in lines if each and (each["response"] or {}).get("status_code") == 200
        ]
        bad = [each for each in lines if each and each not in good]
        for kind, some in (("output", good), ("error", bad)):
            if some:
                batch[f"{kind}_file_id"] = name = f"{kind}-{batch['id']}"
                self.files[name] = b"".join(json.dumps(each).encode() + b"\n" for each in some)


def answered(_: int, asked: dict[str, Any]) -> dict[str, Any]:
    said = f'{{"answer": "{letter_of(asked["body"], wanted_of(asked["body"]))}"}}'
    body = json.loads(completion(said))
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": asked["custom_id"], "response": response, "error": None}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Batching]]:
    monkeypatch.setattr(labeler, "FIRST", 2)
    monkeypatch.setattr(labeler, "ALIKE", 3)
    monkeypatch.setattr(labeler, "TRIES", 1)
    with serving(right) as server:
        server.other = found = Batching(tmp_path / "run" / "run.db")
        yield server, found


def begin(folder: Path, server: Server, **more: Any) -> stacksl.Run:
    data, classes = data_of(folder)
    given = {"labeler": "openai:m", "budget": 12, "open_questions": 12, "classes": classes}
    given |= {"server.url": server.url, "server.allow_send": True, "server.batch_api": True}
    given |= {"server.input_price": 1, "server.output_price": 10, "out": folder / "run"}
    return stacksl.run(data, mode="pool", **{**given, **more})


def cost(run: stacksl.Run) -> int:
    """What the run has paid and promised, in micro-units."""
    with run.ledger as ledger:
        return ledger.accounts.spent_money


def expect_right(run: stacksl.Run, count: int = 12) -> None:
    """Every answer is the class in its text, each is paid once, and the ledger is whole."""
    with run.ledger as ledger:
        ledger.verify()
        rows = [row for row in ledger.export() if row["said"] == "label"]
    assert len(rows) == count
    assert all(row["answer"] == int(str(row["item"])[1:]) % len(NAMES) for row in rows)


def why(run: stacksl.Run) -> str:
    status = run.status()
    assert status["state"] == "waiting"
    return str(status["sheets"][0]["why"])


def test_a_batch_costs_half_and_is_recorded_before_it_begins(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served
    run = begin(tmp_path, server)
    assert why(run) == (
        "10 questions were sent as a batch, which takes up to a day: `resume` goes on"
    )
    assert (len(server.bodies), batching.recorded) == (2, 10)
    run.resume()
    assert run.status()["state"] == "finished"
    expect_right(run)
    assert cost(run) == 2 * SINGLE + 10 * HALF
    assert len(server.bodies) == 2
    assert batching.files == {}, "questions and answers are deleted"


def test_a_batch_that_is_not_done_is_waited_for(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served
    batching.done = False
    run = begin(tmp_path, server)
    for _ in range(2):
        run.resume()
        said = "a batch of 10 questions is not done (validating): `resume` goes on"
        assert why(run) == said
    assert batching.seen.count("POST /batches") == 1
    batching.batches.insert(0, {"id": "another", "input_file_id": "file-9", "status": "failed"})
    batching.done = True
    run.resume()
    expect_right(run)


def test_what_a_batch_did_not_answer_is_asked_again(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    """A refused question singly, an expired one in a batch, and one without a line is charged."""
    server, batching = served

    def line(place: int, asked: dict[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] = answered(place, asked)
        if place == 0:
            found["response"] |= {"status_code": 400, "body": {"error": {"message": "no"}}}
        if place == 1:
            found |= {"response": None, "error": {"code": "batch_expired", "message": "late"}}
        return None if place == 2 else found

    batching.line = line
    run = begin(tmp_path, server)
    batching.status = "expired"
    run.resume()
    assert why(run).startswith("2 questions were sent as a batch")
    assert len(server.bodies) == 3
    batching.line, batching.status = answered, "completed"
    run.resume()
    expect_right(run)
    lost = next(
        row["cost"] for row in read_calls(run.folder.database) if "is expired" in row.get("why", "")
    )
    assert lost > HALF
    assert cost(run) == 3 * SINGLE + 9 * HALF + lost


def test_a_batch_of_which_no_answer_came_is_found_again(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served

    def cut(handler: Handler) -> bool:
        batching.batches.insert(0, {"id": "b", "status": "validating", "input_file_id": "file-0"})
        handler.close_connection = True
        return True

    batching.before = cut
    run = begin(tmp_path, server)
    assert why(run).startswith("POST /batches got ")
    run.resume()
    expect_right(run)
    assert cost(run) == 2 * SINGLE + 10 * HALF
    assert batching.seen.count("POST /batches") == 1


def test_a_batch_that_is_not_found_costs_the_most_that_it_may_have_cost(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served
    run = begin(tmp_path, server)
    batching.batches.clear()
    run.resume()
    assert why(run).startswith("10 questions were sent as a batch")
    run.resume()
    expect_right(run)
    lost = [row for row in read_calls(run.folder.database) if row.get("why") == "its batch is lost"]
    assert len(lost) == 10
    assert cost(run) == 2 * SINGLE + 10 * HALF + sum(row["cost"] for row in lost)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            lambda handler: handler.send(404),
            "it answered POST /batches with HTTP 404: `resume` tries",
        ),
        (
            lambda handler: handler.send(429),
            "it answered POST /batches with HTTP 429: `resume` tries",
        ),
    ],
)
def test_a_server_without_batches_costs_nothing(
    answer: Callable[[Handler], None],
    sentence: str,
    tmp_path: Path,
    served: tuple[Server, Batching],
) -> None:
    server, batching = served
    batching.before = lambda handler: answer(handler) is None
    run = begin(tmp_path, server)
    assert why(run).startswith(sentence)
    ended = [row for row in read_calls(run.folder.database) if "why" in row]
    assert [row["cost"] for row in ended] == [0] * 10
    batching.before = lambda _: False
    run.resume()
    run.resume()
    expect_right(run)
    assert cost(run) == 2 * SINGLE + 10 * HALF


def test_a_batch_that_is_refused_as_a_whole_is_sent_again(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served
    batching.status, batching.line = "failed", lambda *_: None
    run = begin(tmp_path, server)
    run.resume()
    assert why(run) == "a batch of 10 questions was refused as a whole: `resume` goes on"
    batching.status, batching.line = "completed", answered
    run.resume()
    run.resume()
    expect_right(run)
    assert cost(run) == 2 * SINGLE + 10 * HALF


def test_answers_in_another_form_are_not_taken(
    tmp_path: Path, served: tuple[Server, Batching]
) -> None:
    server, batching = served
    run = begin(tmp_path, server)
    batching.batches.insert(0, {"id": "other", "status": "completed"})  # of no input file
    run.resume()
    assert why(run) == "its batch API answers in another form than OpenAI's"
