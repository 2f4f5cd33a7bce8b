"""Questions in batches: what they cost, what is waited for, and what becomes of lost ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.api import prepare
from stacksl.errors import SettingsError
from stacksl.labelers.chat import batches, labeler
from stacksl.labelers.chat.calls import Calls, read_calls

from ...ledgers import accounts_of, bought, verify
from .chat_server import Handler, Server, completion, letter_of, right, serving, wanted_of
from .test_asking import NAMES, data_of

SINGLE, HALF = 100 + 10, 50 + 5  # of an answer of 100 tokens read and one written, at 1 and 10


class Batching:
    """The files and batches of a server, as OpenAI has them.

    Attributes:
        done: whether batches end.
        line: what an answer of a batch looks like, by its place; None for no line.
        after: is called when a batch has ended, with its files.
    """

    def __init__(self, server: Server, database: Path) -> None:
        self.server = server
        self.files: dict[str, bytes] = {}
        self.batches: list[dict[str, Any]] = []
        self.seen: list[str] = []
        self.done = True
        self.status = "completed"
        self.before: Callable[[Handler], bool] = lambda _: False
        self.line: Callable[[int, dict[str, Any]], dict[str, Any] | None] = answered
        self.errors: dict[str, Any] = {}
        self.after: Callable[[dict[str, Any]], None] = lambda _: None
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
            content = self.files.get(found[1])
            handler.send(*((404,) if content is None else (200, content)))
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
        handler.send(200 + (len(self.batches) > 1), json.dumps(found).encode())

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
        batch |= {"status": self.status, "errors": self.errors}
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
        self.after(batch)


def answered(_: int, asked: dict[str, Any]) -> dict[str, Any]:
    said = f'{{"answer": "{letter_of(asked["body"], wanted_of(asked["body"]))}"}}'
    body = json.loads(completion(said))
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": asked["custom_id"], "response": response, "error": None}


@pytest.fixture
def batching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batching]:
    monkeypatch.setattr(labeler, "FIRST", 2)
    monkeypatch.setattr(labeler, "ALIKE", 3)
    monkeypatch.setattr(labeler, "TRIES", 1)
    with serving(right) as server:
        server.other = found = Batching(server, tmp_path / "run" / "run.db")
        yield found


def begin(folder: Path, batching: Batching, **more: Any) -> stacksl.Run:
    data, classes = data_of(folder)
    given = {"labeler": "openai:m", "budget": 12, "open_questions": 12, "classes": classes}
    given |= {
        "server.url": batching.server.url,
        "server.allow_send": True,
        "server.batch_api": True,
    }
    given |= {"server.input_price": 1, "server.output_price": 10, "out": folder / "run"}
    return stacksl.run(data, mode="pool", **{**given, **more})


def expect_right(run: stacksl.Run) -> None:
    """Every answer is the class in its text, each is paid once, and the ledger is whole."""
    verify(run)
    rows = [row for row in bought(run) if row["kind"] == "label"]
    assert len(rows) == 12
    assert all(row["answer"] == int(str(row["item"])[1:]) % len(NAMES) for row in rows)


def why(run: stacksl.Run) -> str:
    status = run.status()
    assert status["state"] == "waiting"
    return str(status["sheets"][0]["why"])


def test_a_batch_costs_half_and_is_recorded_before_it_begins(tmp_path, batching: Batching) -> None:
    run = begin(tmp_path, batching)
    assert why(run) == (
        "10 questions were sent as a batch, which takes up to a day: `resume` goes on"
    )
    assert (len(batching.server.bodies), batching.recorded) == (2, 10)
    run.resume()
    assert run.status()["state"] == "finished"
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF
    assert len(batching.server.bodies) == 2
    assert batching.files == {}, "questions and answers are deleted"


def test_a_batch_whose_tokens_are_not_counted_is_charged_in_full(tmp_path, batching) -> None:
    def uncounted(number: int, asked: dict[str, Any]) -> dict[str, Any]:
        line = answered(number, asked)
        del line["response"]["body"]["usage"]
        return line

    batching.line = uncounted
    run = begin(tmp_path, batching).resume()
    assert accounts_of(run).spent_money > 2 * SINGLE + 10 * HALF
    told = [sentence for sentence in run.status()["warnings"] if "counts no tokens" in sentence]
    assert len(told) == 1


def test_a_batch_that_is_not_done_is_waited_for(tmp_path, batching: Batching) -> None:
    batching.done = False
    run = begin(tmp_path, batching)
    for status in ("queued", "validating"):
        batching.batches[0]["status"] = status
        run.resume()
        assert why(run) == f"a batch of 10 questions is not done ({status}): `resume` goes on"
    assert batching.seen.count("POST /batches") == 1
    batching.batches.insert(0, {"id": "another", "input_file_id": "file-9", "status": "failed"})
    batching.done = True
    run.resume()
    expect_right(run)


def test_what_a_batch_did_not_answer_is_asked_again(tmp_path, batching: Batching) -> None:
    """A refused question singly, an expired one in a batch, and one without a line is charged."""

    def line(place: int, asked: dict[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] = answered(place, asked)
        if place == 0:
            found["response"] |= {"status_code": 400, "body": {"error": {"message": "no"}}}
        if place == 1:
            found |= {"response": None, "error": {"code": "batch_expired", "message": "late"}}
        return None if place == 2 else found

    batching.line = line
    run = begin(tmp_path, batching)
    batching.status = "expired"
    run.resume()
    assert why(run).startswith("2 questions were sent as a batch")
    assert len(batching.server.bodies) == 3
    batching.line, batching.status = answered, "completed"
    run.resume()
    expect_right(run)
    lost = next(
        row["cost"] for row in read_calls(run.folder.database) if "is expired" in row.get("why", "")
    )
    assert lost > HALF
    assert accounts_of(run).spent_money == 3 * SINGLE + 9 * HALF + lost


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (None, "POST /batches got "),  # the connection ends
        (504, "it answered POST /batches with HTTP 504: `resume` tries again"),
    ],
)
def test_a_batch_of_which_no_answer_came_is_found_again(
    status: int | None, sentence: str, tmp_path: Path, batching: Batching
) -> None:
    def lost(handler: Handler) -> bool:
        batching.batches.insert(0, {"id": "b", "status": "validating", "input_file_id": "file-0"})
        handler.close_connection = status is None
        if status is not None:
            handler.send(status)
        return True

    batching.before = lost
    run = begin(tmp_path, batching)
    assert why(run).startswith(sentence)
    run.resume()
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF
    assert batching.seen.count("POST /batches") == 1


@pytest.mark.parametrize("lost", ["batch", "answers"])
def test_a_batch_that_is_not_found_costs_the_most_that_it_may_have_cost(
    lost: str, tmp_path: Path, batching: Batching
) -> None:
    run = begin(tmp_path, batching)
    if lost == "batch":
        batching.batches.clear()
    else:
        batching.after = lambda batch: batching.files.pop(batch["output_file_id"]) and None
    run.resume()
    assert why(run).startswith("10 questions were sent as a batch")
    batching.after = lambda _: None
    run.resume()
    expect_right(run)
    costs = [row["cost"] for row in read_calls(run.folder.database) if "why" in row]
    assert len(costs) == 10
    assert min(costs) > HALF
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF + sum(costs)


def test_an_answer_and_an_error_to_one_question_cost_no_answer(tmp_path, batching) -> None:
    run = begin(tmp_path, batching)

    def both(batch: dict[str, Any]) -> None:
        batch["error_file_id"] = "error"
        first, second, *rest = batching.files["output-batch-0"].splitlines()
        odd, error = (json.loads(each) for each in (second, first))
        odd["response"], error["response"] = "odd", {"status_code": 500}
        batching.files["error"] = json.dumps(error).encode()
        batching.files["output-batch-0"] = b"\n".join([first, json.dumps(odd).encode(), *rest])

    batching.after = both
    run.resume()
    assert why(run).startswith("1 question was sent as a batch")
    lost = [row["cost"] for row in read_calls(run.folder.database) if row.get("why") == "HTTP odd"]
    batching.after = lambda _: None
    run.resume()
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF + sum(lost)
    assert len(lost) == 1


def test_a_file_of_which_no_line_can_be_read_is_waited_for(tmp_path, batching: Batching) -> None:
    run = begin(tmp_path, batching)

    def page(batch: dict[str, Any]) -> None:
        batching.files[batch["output_file_id"]] = b"<html>\nsign in\n</html>"

    batching.after = page
    run.resume()
    assert why(run) == "its batch API answers in another form than OpenAI's"
    batching.files["output-batch-0"] = b""
    batching.after = lambda _: None
    batching._end(batching.batches[0])
    run.resume()
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF


@pytest.mark.parametrize(
    "line", [b"not json", b"[1]", b'{"custom_id": [1]}', b"\xff{}", b"[" * 10**5]
)
def test_a_line_that_cannot_be_read_costs_its_own_question_alone(
    line: bytes, tmp_path: Path, batching: Batching
) -> None:
    """Also where it is the only line of its batch, which would else be waited for without end."""
    run = begin(tmp_path, batching, budget=4, open_questions=4)
    times = iter(range(2))

    def odd(batch: dict[str, Any]) -> None:
        lines = batching.files[batch["output_file_id"]].splitlines()
        if next(times, None) is not None:
            lines[-1] = line
        batching.files[batch["output_file_id"]] = b"\n".join(lines)

    batching.after = odd
    run.resume()
    assert why(run).startswith("1 question was sent as a batch")
    lost = [row["cost"] for row in read_calls(run.folder.database) if row.get("why")]
    most = [row["most"] for row in read_calls(run.folder.database) if row.get("batch")]
    assert len(lost) == 1
    assert lost[0] in most
    warnings: list[str] = run.status()["warnings"]
    assert warnings[-1] == (
        "the answer about 1 question of a batch is missing or cannot be read: each is charged the"
        " most that it may have cost, and asked again where the label's price allows it"
    )
    assert any(line in each for each in batching.files.values()), "it can be fetched later"
    run.resume()
    lost = [row["cost"] for row in read_calls(run.folder.database) if row.get("why")]
    assert len(lost) == 2
    while run.status()["state"] != "finished":
        run.resume()
    with run.ledger as ledger:
        ledger.verify()
        said = [row["kind"] for row in ledger.export() if row["kind"]]
    assert len(said) == 4
    assert accounts_of(run).spent_money == 2 * SINGLE + HALF * (said.count("label") - 2) + sum(lost)


@pytest.mark.parametrize(
    "page", [{"id": "other", "status": "completed"}, {"id": "b", "input_file_id": "x"}]
)
def test_a_list_in_another_form_or_without_an_end_is_not_taken(
    page: dict[str, str], tmp_path: Path, batching: Batching
) -> None:
    run = begin(tmp_path, batching)
    content = json.dumps({"data": [page], "has_more": True}).encode()
    batching._list = lambda handler, _: handler.send(200, content)  # type: ignore[method-assign]
    run.resume()
    assert why(run) == "its batch API answers in another form than OpenAI's"


def test_a_batch_has_only_as_many_questions_as_the_server_takes_bytes(
    tmp_path: Path, batching: Batching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "SPACE", 2000)
    run = begin(tmp_path, batching)
    sent = int(why(run).split()[0])
    assert 1 <= sent < 10
    assert len(batching.files["file-0"]) <= 2000 + sent
    monkeypatch.setattr(batches, "SPACE", 1)
    run.resume()
    assert why(run).startswith("1 question was sent")


def test_a_stream_asks_in_no_batches(tmp_path: Path) -> None:
    data, classes = data_of(tmp_path)
    given = {"labeler": "openai:m", "server.url": "http://127.0.0.1:1/v1", "classes": classes}
    given |= {"server.batch_api": True, "server.allow_send": True, "budget": 4}
    with pytest.raises(SettingsError, match="leave --batch-api out, or give --mode pool"):
        stacksl.run(data, mode="stream", out=tmp_path / "run", **given)
    assert prepare(data, out=tmp_path / "run", settings=given).spec.settings.mode == "pool"


@pytest.mark.parametrize("moment", ["record_sent", "record_end"])
def test_a_run_killed_while_a_batch_is_recorded_pays_each_answer_once(
    moment: str, tmp_path: Path, batching: Batching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its questions are recorded nothing began; later the rest is collected."""
    run = None if moment == "record_sent" else begin(tmp_path, batching)
    do, times = getattr(Calls, moment), iter(range(100))

    def cut(*given: Any, **more: Any) -> Any:
        batched = moment == "record_end" or len(given) > 2
        if batched and next(times) == (5 if moment == "record_end" else 0):
            raise KeyboardInterrupt
        return do(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Calls, moment, cut)
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, batching) if run is None else run.resume()
    run = stacksl.Run.open(tmp_path / "run")
    while run.status()["state"] != "finished":
        run.resume()
    expect_right(run)
    assert batching.seen.count("POST /batches") == 1
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF


@pytest.mark.parametrize("code", [404, 429])
def test_a_server_without_batches_costs_nothing(code: int, tmp_path, batching: Batching) -> None:
    batching.before = lambda handler: handler.send(code) is None
    run = begin(tmp_path, batching)
    assert why(run).startswith(f"it answered POST /batches with HTTP {code}: `resume` tries")
    ended = [row for row in read_calls(run.folder.database) if "why" in row]
    assert [row["cost"] for row in ended] == [0] * 10
    assert batching.files == {}, "nobody would collect it"
    batching.before = lambda _: False
    run.resume()
    run.resume()
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF


def test_a_batch_that_is_refused_as_a_whole_is_sent_again(tmp_path, batching: Batching) -> None:
    batching.status, batching.line = "failed", lambda *_: None
    batching.errors = {"data": [{"code": "token_limit"}]}
    run = begin(tmp_path, batching)
    run.resume()
    said = "a batch of 10 questions was refused as a whole (`stacksl ledger requests` shows why)"
    assert why(run) == f"{said}: `resume` goes on"
    rows = read_calls(run.folder.database)
    assert sum("token_limit" in row.get("answer", "") for row in rows) == 10
    batching.status, batching.line = "completed", answered
    run.resume()
    run.resume()
    expect_right(run)
    assert accounts_of(run).spent_money == 2 * SINGLE + 10 * HALF
