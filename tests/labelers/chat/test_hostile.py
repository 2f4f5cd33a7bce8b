"""A server that misbehaves: the books stay exact, the run waits, and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.errors import LabelerError, SettingsError
from stacksl.labelers.chat import labeler as chat
from stacksl.ledger.ledger import Ledger

from .chat_server import (
    Behaviour,
    Handler,
    Server,
    completion,
    hang,
    letter_of,
    right,
    serving,
    wanted_of,
)

NAMES = ["green", "red", "blue"]
PRICED = {"input_price": "100", "output_price": "200"}
KEY = "sk-zyxcanary-0123456789"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)


def begin(server: Server, folder: Path, **settings: Any) -> stacksl.Run:
    texts = [f"text {n} of {NAMES[n % 3]} and w{n % 5}" for n in range(24)]
    given: dict[str, Any] = {"budget": 6, "timeout": 0.4, "allow_send": True, **PRICED, **settings}
    return stacksl.run(
        texts, classes=NAMES, labeler="openai:m", url=server.url, out=folder, **given
    )


def expect_books(run: stacksl.Run) -> Counter[str]:
    """Each label is charged what its calls cost, each open one is reserved; how they stand."""
    rows = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    costs: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in rows:
        costs[row["item"], row["slot"]][row["call"]] = row.get("cost", row.get("most"))
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        ledger.verify()
        found, most, paid = ledger.export(), ledger.price, 0
        for row in found:
            spent = sum(costs.get((str(row["item"]), int(str(row["slot"]))), {}).values())
            if row["state"] == "answered":
                assert row["price"] == min(spent, most)
                paid += min(spent, most)
            else:
                assert spent <= most
                paid += most
        assert ledger.spent_money == paid <= ledger.money
        assert ledger.spent <= ledger.budget
        return Counter(str(row["said"] or row["state"]) for row in found)


def once(bad: Behaviour, *numbers: int) -> Behaviour:
    """Misbehave in these requests, by their number, and answer all others."""

    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        (bad if number in numbers else right)(handler, body, number)

    return behave


def garbage(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(200, b"<html>\xff\xfe oops")


def odd(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(200, b'{"choices": [{"message": 3}], "usage": []}')


def deep(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(200, b"[" * 100_000)


def truncated(handler: Handler, body: dict[str, Any], number: int) -> None:
    whole = completion("A")
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(whole)))
    handler.end_headers()
    handler.wfile.write(whole[:20])


def cut_json(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(200, completion("A")[:-9])


def reset(handler: Handler, body: dict[str, Any], number: int) -> None:
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()
    raise ConnectionResetError


def drip(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "9999")
    handler.end_headers()
    for _ in range(20):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def huge(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(200, b" " * 5_000_000)


def status(code: int, **headers: str) -> Behaviour:
    return lambda handler, body, number: handler.send(code, b'{"error": "no"}', **headers)


LOST = (garbage, odd, deep, truncated, cut_json, reset, drip, huge, hang, status(500))


@pytest.mark.parametrize("bad", LOST, ids=lambda bad: getattr(bad, "__name__", "status"))
def test_a_lost_call_counts_as_spent_and_is_repeated(bad: Behaviour, tmp_path: Path) -> None:
    with serving(once(bad, 2)) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6}
    assert len(server.bodies) == 7


@pytest.mark.parametrize("bad", [hang, status(500), garbage], ids=["hang", "500", "garbage"])
def test_a_server_that_always_fails_is_left_alone(bad: Behaviour, tmp_path: Path) -> None:
    with serving(bad) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        first = run.status()
        assert first["state"] == "waiting"
        assert "in a row" in first["sheets"][0]["why"]
        assert len(server.bodies) == chat.IN_A_ROW
        books = expect_books(run)
        server.behave = right
        again = run.resume()
    assert again.status()["state"] == "finished"
    after = expect_books(again)
    assert after["broken"] == books["broken"] == 1  # its price left no third call
    assert after["label"] == 5


def test_a_limit_is_waited_for(tmp_path: Path) -> None:
    def limited(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number in (1, 2):
            handler.send(429)
        elif number == 4:
            handler.send(429, Retry_After="0")
        elif number == 6:
            handler.send(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")
        else:
            right(handler, body, number)

    with serving(limited) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6}
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        assert ledger.spent_money == 6 * (100 * 100 + 200)  # what was refused costs nothing


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (status(429), "asked 5 times"),
        (status(429, Retry_After="3600"), "again in 3600 s"),
        (status(401), "STACKSL_API_KEY"),
        (status(404), "check the url"),
        (status(400), "refused the request"),
        (status(302, Location="http://127.0.0.1:9/v1"), "redirect"),
    ],
    ids=["429", "429-hour", "401", "404", "400", "302"],
)
def test_a_refusal_costs_nothing_and_the_run_goes_on(
    bad: Behaviour, why: str, tmp_path: Path
) -> None:
    with serving(bad) as server:
        run = begin(server, tmp_path / "run")
        before = run.status()
        assert before["state"] == "waiting"
        assert why in before["sheets"][0]["why"]
        expect_books(run)
        server.behave = right
        again = run.resume()
    assert again.status()["state"] == "finished"
    assert expect_books(again) == {"label": 6}
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        assert ledger.spent_money == 6 * (100 * 100 + 200)


def test_no_server_at_all(tmp_path: Path) -> None:
    with serving(right) as server:
        pass
    run = begin(server, tmp_path / "run")
    assert run.status()["state"] == "waiting"
    assert "no connection" in run.status()["sheets"][0]["why"]
    assert expect_books(run).keys() == {"open"}


@pytest.mark.parametrize(
    "said", ["Z", "I cannot help with that.", "", None, "A patient may", "A or B"]
)
def test_what_names_no_option_is_charged_and_not_learnt(said: str | None, tmp_path: Path) -> None:
    with serving(once(lambda h, b, n: h.send(200, completion(said)), 3)) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 5, "broken": 1}


def test_answers_that_name_no_option_stop_the_buying(tmp_path: Path) -> None:
    with serving(
        lambda h, b, n: h.send(200, completion("Well.")) if n != 2 else right(h, b, n)
    ) as s:
        run = begin(s, tmp_path / "run", concurrency=1, budget=12)
        assert run.status()["state"] == "waiting"
        assert "named no option" in run.status()["sheets"][0]["why"]
        found = expect_books(run)
        assert (found["label"], found["broken"], len(s.bodies)) == (1, 1 + chat.UNNAMED, 7)
        s.behave = right
        run.resume()
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6, "broken": 6}


def test_usage_above_the_reservation_is_named_and_stops(tmp_path: Path) -> None:
    def dear(handler: Handler, body: dict[str, Any], number: int) -> None:
        wanted = wanted_of(body)
        handler.send(200, completion(letter_of(body, wanted), usage=(10_000_000, 5)))

    with serving(once(dear, 3)) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        found = run.status()
        assert found["state"] == "waiting"
        assert "cost more than was reserved" in found["sheets"][0]["why"]
        (named,) = [each for each in found["warnings"] if "more than was reserved" in each]
        with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
            most = ledger.price
        sent = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
        cost, reserved = 10_000_000 * 100 + 5 * 200, sent[4]["most"]
        for over in (cost - reserved, cost - most):
            assert f"${over / 1e6:.6f}".rstrip("0") in named
        assert len(server.bodies) == 3
        assert expect_books(run)["label"] == 3  # the answer is kept
        run.resume()
    assert expect_books(run) == {"label": 6}
    assert any("more than was reserved" in each for each in run.status()["warnings"])


def refuses(*names: str, how: str = "openai") -> Behaviour:
    """Right, but for requests that have one of these parameters."""

    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        found = next((name for name in names if name in body), None)
        if found is None:
            right(handler, body, number)
            return
        said = f"Unsupported parameter: '{found}' is not supported with this model."
        if found == "max_tokens":
            said += " Use 'max_completion_tokens' instead."
        wrong: dict[str, Any] = {"error": {"message": said, "param": found, "type": "invalid"}}
        if how == "fastapi":  # with an echo of the whole request
            wrong = {"detail": [{"loc": ["body", found], "msg": "extra", "input": body}]}
        text = said if how == "text" else json.dumps(wrong)
        handler.send(422 if how == "fastapi" else 400, text.encode())

    return behave


@pytest.mark.parametrize("how", ["openai", "fastapi", "text"])
@pytest.mark.parametrize(
    "names", [("max_tokens",), ("temperature",), ("temperature", "max_tokens")]
)
def test_a_server_that_refuses_a_parameter_is_asked_without_it(
    names: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    with serving(refuses(*names, how=how)) as server:
        run = begin(server, tmp_path / "run", concurrency=1, budget=3)
        assert len(server.bodies) == 3 + len(names)  # once in the run
        for body in server.bodies[len(names) :]:
            assert not set(names) & set(body)
            limit = "max_completion_tokens" if "max_tokens" in names else "max_tokens"
            assert body[limit] == 8
            assert body["logprobs"]  # the way of asking is as before
        assert expect_books(run) == {"label": 3}
        sent = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
        most = {row["call"]: row["most"] for row in sent if "request" in row}
        assert len({most[call + 1] for call in range(len(names) + 1)}) == 1  # as was reserved
        assert [row["why"] for row in sent if row.get("why")] == [
            f"HTTP {422 if how == 'fastapi' else 400}"
        ] * len(names)


def test_what_a_server_refuses_is_known_after_a_resume(tmp_path: Path) -> None:
    def at_first(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number > 3:
            handler.send(401)
        else:
            refuses("max_tokens", "temperature")(handler, body, number)

    with serving(at_first) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        assert run.status()["state"] == "waiting"
        server.behave = refuses("max_tokens", "temperature")
        asked = len(server.bodies)
        run.resume()
        assert len(server.bodies) == asked + 5
    assert expect_books(run) == {"label": 6}


def test_a_server_that_takes_no_limit_is_a_sentence(tmp_path: Path) -> None:
    with serving(refuses("max_tokens", "max_completion_tokens")) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        assert len(server.bodies) == 2
    (place,) = run.status()["sheets"]
    assert "refuses every limit of an answer's length" in place["why"]
    assert expect_books(run)["open"] == 6


def test_the_length_of_an_answer_is_a_setting_and_in_the_price(tmp_path: Path) -> None:
    prices = []
    for tokens in (None, 500):
        with serving(right) as server:
            run = begin(server, tmp_path / f"run-{tokens}", answer_tokens=tokens)
            assert {body["max_tokens"] for body in server.bodies} == {tokens or 8}
        with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
            prices.append(ledger.price)
    assert prices[1] - prices[0] == 2 * (500 - 8) * 200 + 2 * 2 * 100  # two bytes more each


@pytest.mark.parametrize("usage", [None, (-1, 3), (True, 1), ("7", 1)])
def test_a_server_that_counts_no_tokens_is_charged_in_full(usage: Any, tmp_path: Path) -> None:
    def silent(handler: Handler, body: dict[str, Any], number: int) -> None:
        wanted = wanted_of(body)
        handler.send(200, completion(letter_of(body, wanted), usage=usage))

    with serving(silent) as server:
        run = begin(server, tmp_path / "run")
    assert expect_books(run) == {"label": 6}
    rows = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    most = {row["call"]: row["most"] for row in rows if "request" in row}
    assert all(row["cost"] == most[row["call"]] for row in rows if "request" not in row)


def test_an_answer_that_was_paid_is_not_bought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = chat.ChatLabeler.answers

    def killed(self: chat.ChatLabeler) -> Any:
        if answers(self):
            raise KeyboardInterrupt
        return []

    with serving(right) as server:
        monkeypatch.setattr(chat.ChatLabeler, "answers", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(server, tmp_path / "run")
        monkeypatch.setattr(chat.ChatLabeler, "answers", answers)
        asked = len(server.bodies)
        assert asked == 6
        run = stacksl.Run.open(tmp_path / "run").resume()
        assert len(server.bodies) == asked
    assert expect_books(run) == {"label": 6}


def test_a_crash_between_request_and_answer_counts_as_spent(tmp_path: Path) -> None:
    with serving(status(401)) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        file = run.path / "calls.jsonl"
        first = file.read_text().splitlines()[0]
        file.write_text(first + "\n" + '{"call": 1, "it')  # torn by the crash
        server.behave = right
        run.resume()
    assert expect_books(run) == {"label": 6}
    row = json.loads(first)
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        (price,) = [r["price"] for r in ledger.export() if r["item"] == row["item"]]
    assert price == row["most"] + 100 * 100 + 200


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(handle: int, data: bytes) -> int:
        return write(handle, data[:5]) if data.startswith(b'{"call"') else write(handle, data)

    with serving(right) as server:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LabelerError, match="make room"):
            begin(server, tmp_path / "run")
        monkeypatch.setattr(os, "write", write)
        assert not server.bodies  # nothing is sent that is not recorded
        run = stacksl.Run.open(tmp_path / "run").resume()
    assert expect_books(run) == {"label": 6}


def test_the_key_is_in_the_header_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STACKSL_API_KEY", KEY)

    def echo(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number < 3:
            handler.send(429, json.dumps({"error": f"key {KEY} is over its limit"}).encode())
        elif number == 4:
            handler.send(200, completion(KEY))
        elif number == 5:
            handler.send(401, f"wrong key {KEY}".encode())
        else:
            right(handler, body, number)

    with serving(echo) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        assert run.status()["state"] == "waiting"
        run.resume()
    assert run.status()["state"] == "finished"
    assert all(sent["Authorization"] == f"Bearer {KEY}" for sent in server.headers)
    assert KEY not in json.dumps(server.bodies)
    for path in run.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    said = capsys.readouterr()
    assert KEY not in said.out + said.err + json.dumps(run.status())


def test_a_key_that_is_none_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSL_API_KEY", "zyx secret\nHost: evil")
    with serving(right) as server, pytest.raises(SettingsError) as fault:
        begin(server, tmp_path / "run")
    assert "zyx" not in str(fault.value)
    assert not server.bodies


def test_requests_go_out_together(tmp_path: Path) -> None:
    def slow(handler: Handler, body: dict[str, Any], number: int) -> None:
        time.sleep(0.15)
        right(handler, body, number)

    with serving(slow) as server:
        run = begin(server, tmp_path / "run", concurrency=3)
    assert expect_books(run) == {"label": 6}
    assert 2 <= server.most <= 3


def test_equal_questions_are_bought_once(tmp_path: Path) -> None:
    made: Callable[..., stacksl.Run] = stacksl.run
    with serving(right) as server:
        texts = ["text 1 of green", "text 2 of red"] * 6
        run = made(
            texts, classes=NAMES, labeler="openai:m", url=server.url, out=tmp_path / "run",
            budget="all", allow_send=True, **PRICED,
        )  # fmt: skip
    assert len(server.bodies) == 2
    assert expect_books(run) == {"label": 12}


@pytest.mark.parametrize("mode", ["stream", "pool"])
def test_a_budget_in_dollars_is_exact(mode: str, tmp_path: Path) -> None:
    rates = {"input_price": "0.15", "output_price": "0.6"}
    with serving(right) as server:
        run = begin(server, tmp_path / "run", **rates, budget="$0.001", mode=mode)
        assert run.status()["state"] == "finished"
        found = expect_books(run)
        with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
            assert ledger.money == 1000  # micro-units
            assert found == {"label": 1000 // ledger.price}
            cost = -(-(100 * 15 + 60) // 100)  # 15.6, rounded up
            assert ledger.spent_money == found["label"] * cost
        assert len(server.bodies) == found["label"] > 1


def test_each_call_is_charged_at_what_it_used(tmp_path: Path) -> None:
    """A server counts more tokens from call to call, up to the reservation of a call."""

    def dearer(handler: Handler, body: dict[str, Any], number: int) -> None:
        said = letter_of(body, wanted_of(body))
        handler.send(200, completion(said, usage=(50 * number, number)))

    with serving(dearer) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6}
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        assert ledger.spent_money == sum(100 * 50 * n + 200 * n for n in range(1, 7))


def test_usage_above_a_call_but_not_a_label_is_charged_named_and_stops(tmp_path: Path) -> None:
    def dear(handler: Handler, body: dict[str, Any], number: int) -> None:
        said = letter_of(body, wanted_of(body))
        handler.send(200, completion(said, usage=(450 if number == 2 else 100, 1)))

    with serving(dear) as server:
        run = begin(server, tmp_path / "run", concurrency=1)
        found = run.status()
        assert found["state"] == "waiting"
        (named,) = [each for each in found["warnings"] if "more than was reserved" in each]
        assert "beyond the ledger" not in named
        with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
            prices = sorted(
                int(str(r["price"])) for r in ledger.export() if r["state"] == "answered"
            )
        assert prices == [100 * 100 + 200, 450 * 100 + 200]  # all of it
        assert len(server.bodies) == 2
        run.resume()
    assert expect_books(run) == {"label": 6}


@pytest.mark.parametrize("seed", range(3))
def test_books_are_exact_in_a_storm(seed: int, tmp_path: Path) -> None:
    """Four calls at a time, each of them answered well or badly; resumed to the end."""
    draw = random.Random(seed)
    refused = (status(429), status(429, Retry_After="0"), status(503), status(401))
    wrong = tuple(
        lambda handler, body, number, said=said: handler.send(200, completion(said))
        for said in ("Z", None, "I cannot help with that.")
    )
    unpriced: Behaviour = lambda handler, body, number: handler.send(  # noqa: E731
        200, completion(letter_of(body, wanted_of(body)), usage=None)
    )
    choices = [*LOST, *refused, *wrong, unpriced, *[right] * 12]
    chosen = [draw.choice(choices) for _ in range(500)]

    with serving(lambda h, b, n: chosen[n](h, b, n)) as server:
        run = begin(server, tmp_path / "run", concurrency=4, budget=12)
        for _ in range(40):
            found = expect_books(run)
            if run.status()["state"] == "finished":
                break
            run.resume()
    assert run.status()["state"] == "finished"
    assert set(found) <= {"label", "broken"}
    assert sum(found.values()) == 12
    rows = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    sent = [row for row in rows if "request" in row]
    assert len(sent) == len(server.bodies)
    bought = {row["item"] for row in rows if "request" not in row and "why" not in row}
    calls = Counter(row["item"] for row in rows if "request" not in row and "why" not in row)
    assert all(calls[item] == 1 for item in bought)  # no answer was bought twice


KILLED = """
import sys, stacksl
stacksl.run(
    [f"text {n} of {['green', 'red', 'blue'][n % 3]} and w{n % 5}" for n in range(24)],
    classes=["green", "red", "blue"], labeler="openai:m", url=sys.argv[1], out=sys.argv[2],
    budget=6, allow_send=True, input_price="100", output_price="200", concurrency=1, mode="stream",
)
"""


@pytest.mark.parametrize("answered", [False, True], ids=["before-answer", "after-answer"])
def test_killed_between_request_and_entry(answered: bool, tmp_path: Path) -> None:
    """`kill -9` while a request is under way, and when its answer was received, not entered."""
    pid: list[int] = []
    calls = tmp_path / "run" / "calls.jsonl"

    def kill(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number == 3 and not answered:
            os.kill(pid[0], signal.SIGKILL)
            handler.send(200, completion("A"))  # to nobody
        else:
            right(handler, body, number)

    with serving(kill) as server:
        words = [sys.executable, "-c", KILLED, server.url, str(tmp_path / "run")]
        if answered:  # it stops at the line after the third answer was recorded
            words[2] = KILLED.replace("import sys, stacksl", AFTER_THE_THIRD)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            pid.append(process.pid)
            _, err = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, err
        lines = [json.loads(line) for line in calls.read_text().splitlines()]
        assert len(lines) == (6 if answered else 5)
        run = stacksl.Run.open(tmp_path / "run").resume()
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6}
    assert len(server.bodies) == (6 if answered else 7)
    spent = 6 * (100 * 100 + 200) + (0 if answered else lines[-1]["most"])
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        assert ledger.spent_money == spent


AFTER_THE_THIRD = """
import os, signal, sys, stacksl
from stacksl.labelers.chat.calls import Calls

ended = Calls.ended

def killed(self, call, *rest):
    ended(self, call, *rest)
    if call == 3:
        os.kill(os.getpid(), signal.SIGKILL)

Calls.ended = killed
"""
