"""What calls to a server cost, which parameters they have, and what is recorded of them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.errors import LedgerError, SettingsError
from stacksl.labelers.chat import labeler as chat
from stacksl.labelers.chat.calls import read_calls
from stacksl.labelers.chat.prompts import SPACE, tokens_of
from stacksl.ledger.store.database import Store
from stacksl.ledger.store.schema import REQUESTS, Table
from stacksl.runs.changes.forgetting import forget

from ...ledgers import accounts_of, bought
from ...saved_arrays import drop, edit
from .chat_server import Behavior, Handler, completion, letter_of, right, serving, wanted_of
from .hostile_cases import KEY, NAMES, PRICED, begin, expect_books, status


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)


def refuses(*names: str, how: str = "openai") -> Behavior:
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


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("openai", ("temperature", "max_tokens")),
        ("fastapi", ("max_tokens",)),
        ("text", ("temperature",)),
    ],
)
def test_a_server_that_refuses_a_parameter_is_asked_without_it(
    names: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    with serving(refuses(*names, how=how)) as server:
        run = begin(server, tmp_path / "run", budget=3)
        assert len(server.bodies) == 3 + len(names)  # once in the run
        for body in server.bodies[len(names) :]:
            assert not set(names) & set(body)
            limit = "max_completion_tokens" if "max_tokens" in names else "max_tokens"
            assert body[limit] == 8 + SPACE
            assert body["response_format"]  # the way of asking is as before
        assert expect_books(run) == {"label": 3}
        sent = read_calls(run.path / "run.db")
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
        run = begin(server, tmp_path / "run")
        assert run.status()["state"] == "waiting"
        server.behave = refuses("max_tokens", "temperature")
        asked = len(server.bodies)
        run.resume()
        assert len(server.bodies) == asked + 5
    assert expect_books(run) == {"label": 6}


def test_a_server_that_takes_no_limit_is_a_sentence(tmp_path: Path) -> None:
    with serving(refuses("max_tokens", "max_completion_tokens")) as server:
        run = begin(server, tmp_path / "run")
        assert len(server.bodies) == 2
    (place,) = run.status()["sheets"]
    assert "refuses every limit of an answer's length" in place["why"]
    assert expect_books(run)["open"] == 6


def test_the_length_of_an_answer_is_a_setting_and_in_the_price(tmp_path: Path) -> None:
    prices = []
    for tokens in (None, 500):
        with serving(right) as server:
            run = begin(server, tmp_path / f"run-{tokens}", **{"server.answer_tokens": tokens})
            assert {body["max_tokens"] for body in server.bodies} == {tokens or 8 + SPACE}
        prices.append(accounts_of(run).price)
    assert prices[1] - prices[0] == 2 * (500 - 8 - SPACE) * 200 + 2 * 100  # one byte more each


@pytest.mark.parametrize("usage", [None, (-1, 3), (0, 0)])
def test_a_server_that_counts_no_tokens_is_charged_in_full(usage: Any, tmp_path: Path) -> None:
    def silent(handler: Handler, body: dict[str, Any], number: int) -> None:
        wanted = wanted_of(body)
        handler.send(200, completion(letter_of(body, wanted), usage=usage))

    with serving(silent) as server:
        run = begin(server, tmp_path / "run")
    assert expect_books(run) == {"label": 6}
    rows = read_calls(run.path / "run.db")
    most = {row["call"]: row["most"] for row in rows if "request" in row}
    assert all(row["cost"] == most[row["call"]] for row in rows if "request" not in row)
    told = "the server counts no tokens of its answers, so each is charged the most"
    assert [told in sentence for sentence in run.status()["warnings"]].count(True) == 1


def test_tokens_that_only_the_total_has_are_charged() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 2}
    totals: list[Any] = [150, 102, 0, None, "150"]
    counted = [tokens_of({"usage": usage | {"total_tokens": total}}) for total in totals]
    assert counted == [(100, 50), *[(100, 2)] * 4]


def test_an_answer_that_was_paid_is_not_bought_again(tmp_path, monkeypatch) -> None:
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
        run = begin(server, tmp_path / "run")
        row = read_calls(run.path / "run.db")[0]
        edit(run.path, "DELETE FROM requests WHERE place > 1")  # its end was not committed,
        row_of_end = 'payload LIKE \'%"requests":{"2":%\''  # nor were later rows of the chain
        first = f"(SELECT min(seq) FROM events WHERE {row_of_end})"
        edit(run.path, f"DELETE FROM events WHERE seq >= {first}")
        drop(run.path)
        server.behave = right
        run.resume()
    assert expect_books(run) == {"label": 6}
    (paid,) = bought(run, item=row["item"])
    assert paid["price"] == row["most"] + 100 * 100 + 200


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = Store.insert

    def full(store: Store, table: Table, rows: Sequence[Sequence[object]]) -> None:
        if table is REQUESTS:
            raise sqlite3.OperationalError("database or disk is full")
        insert(store, table, rows)

    with serving(right) as server:
        monkeypatch.setattr(Store, "insert", full)
        with pytest.raises(LedgerError, match="free some space"):
            begin(server, tmp_path / "run")
        monkeypatch.setattr(Store, "insert", insert)
        assert not server.bodies  # nothing is sent that is not recorded
        run = stacksl.Run.open(tmp_path / "run").resume()
    assert expect_books(run) == {"label": 6}


def test_the_key_is_in_the_header_alone(tmp_path, monkeypatch, capsys) -> None:
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
        run = begin(server, tmp_path / "run")
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
        run = begin(server, tmp_path / "run", **{"server.concurrency": 3})
    assert expect_books(run) == {"label": 6}
    assert 2 <= server.most <= 3


def test_equal_questions_are_bought_once(tmp_path: Path) -> None:
    texts = ["text 1 of green", "text 2 of red"] * 6
    with serving(right) as server:
        given: dict[str, Any] = {"server.url": server.url, "server.allow_send": True, **PRICED}
        given |= {"classes": NAMES, "labeler": "openai:m", "budget": "all"}
        run = stacksl.run(texts, out=tmp_path / "run", **given)
    assert len(server.bodies) == 2
    assert expect_books(run) == {"label": 12}


@pytest.mark.parametrize("mode", ["stream", "pool"])
def test_a_budget_in_dollars_is_exact(mode: str, tmp_path: Path) -> None:
    rates = {"server.input_price": "0.15", "server.output_price": "0.6"}
    with serving(right) as server:
        run = begin(server, tmp_path / "run", **rates, budget="$0.001", mode=mode)
        assert run.status()["state"] == "finished"
        found = expect_books(run)
        accounts = accounts_of(run)
        assert accounts.money == 1000  # micro-units
        assert found == {"label": 1000 // accounts.price}
        cost = -(-(100 * 15 + 60) // 100)  # 15.6, rounded up
        assert accounts.spent_money == found["label"] * cost
        assert len(server.bodies) == found["label"] > 1


def test_each_call_is_charged_at_what_it_used(tmp_path: Path) -> None:
    """A server counts more tokens from call to call, up to the reservation of a call."""

    def dearer(handler: Handler, body: dict[str, Any], number: int) -> None:
        said = letter_of(body, wanted_of(body))
        handler.send(200, completion(said, usage=(50 * number, number)))

    with serving(dearer) as server:
        run = begin(server, tmp_path / "run", **{"server.concurrency": 1})
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 6}
    assert accounts_of(run).spent_money == sum(100 * 50 * n + 200 * n for n in range(1, 7))


@pytest.mark.parametrize("read", [900, 10_000_000])
def test_usage_above_a_reservation_is_charged_named_and_stops(read: int, tmp_path: Path) -> None:
    """Above that of a call, and above that of a label too."""

    def dear(handler: Handler, body: dict[str, Any], number: int) -> None:
        said = letter_of(body, wanted_of(body))
        handler.send(200, completion(said, usage=(read if number == 2 else 100, 1)))

    with serving(dear) as server:
        run = begin(server, tmp_path / "run")
        found = run.status()
        assert found["state"] == "waiting"
        assert "cost more than was reserved" in found["sheets"][0]["why"]
        (named,) = [each for each in found["warnings"] if "more than was reserved" in each]
        cost, most = read * 100 + 200, accounts_of(run).price
        prices = sorted(int(str(row["price"])) for row in bought(run, state="answered"))
        assert prices == [100 * 100 + 200, min(cost, most)]  # the answer is kept
        assert ("beyond the ledger" in named) == (cost > most)
        beyond = [cost - read_calls(run.path / "run.db")[2]["most"], *[cost - most] * (cost > most)]
        assert all(f"${over / 1e6:.6f}".rstrip("0") in named for over in beyond)
        assert len(server.bodies) == 2
        run.resume()
    assert expect_books(run) == {"label": 6}
    assert any("more than was reserved" in each for each in run.status()["warnings"])


def test_a_call_that_may_have_been_billed_is_charged_though_its_item_is_forgotten(tmp_path) -> None:
    def lost(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number == 2:
            raise BrokenPipeError  # it read the request, and never answers
        (right if number == 1 else status(401))(handler, body, number)

    with serving(lost) as server:
        run = begin(server, tmp_path / "run")
        lines = read_calls(run.path / "run.db")
        [call] = [line for line in lines if line.get("cost", 0) > 100 * 100 + 200]
        with run.ledger as ledger:
            [lease] = [each for each in ledger.open_purchases() if each.item == call["item"]]
            before = ledger.accounts.spent_money
        forget(run.path, call["item"])
        with run.ledger as ledger:
            ledger.verify()
            assert ledger.accounts.spent_money == before - lease.price + call["cost"]
        server.behave = right
        stacksl.Run.open(run.path).resume().replay()
