"""Runs of a model beside people, with a server that knows the right labels."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stacksl
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import SOFT_SLOT

from .chat_server import Behaviour, Handler, Server, completion, letter_of

TOPICS = ("cards", "loans", "rates", "branches")
COUNT = 120
PRICED = {"input_price": "10", "output_price": "20"}
CALL = 100 * 10 + 20  # micro-units that the server counts for a call


def topic(number: int) -> str:
    return TOPICS[number * 7 % 4]


def number_of(prompt: str) -> int:
    """The number in `branches13 w2 n57`, alone or in a longer text."""
    return int(prompt.split(" n")[-1].split()[0])


def text(number: int) -> str:
    own = number % 5 != 3  # the others are worded like another topic
    return f"{topic(number if own else number + 1)[:4]}{number % 9} w{number % 7} n{number}"


def says(wrong: Callable[[int], bool]) -> Behaviour:
    """A server that names another topic where `wrong` says so."""

    def behave(handler: Handler, body: dict[str, Any], _: int) -> None:
        n = number_of(body["messages"][0]["content"].split("\n\nOptions")[0])
        named = topic(n + 1) if wrong(n) else topic(n)
        handler.send(200, completion(letter_of(body, named)))

    return behave


good = says(lambda n: n % 6 == 0)
chance = says(lambda n: n % 4 != 0)


def begin(server: Server, folder: Path, **settings: Any) -> stacksl.Run:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "labeler": "openai:m,people",
        "budget": "$45",
        "price": "1",
        "audit": 5,
    }
    given |= {"batch": 10, "features": "hashing", "allow_send": True, "sheets": "csv", **PRICED}
    texts = [text(n) for n in range(COUNT)]
    given |= {"url": server.url, "out": folder / "run", **settings}
    return stacksl.run(texts, classes=list(TOPICS), **given)


def filled(run: stacksl.Run) -> list[Path]:
    """The sheets of people, with the right answers; the model's server is in no file."""
    found = []
    for sheet in run.status()["sheets"] or ():
        if not (path := Path(sheet["file"])).is_file():
            continue
        with io.StringIO(path.read_text(encoding="utf-8-sig"), newline="") as whole:
            rows = list(csv.DictReader(whole))
        for row in rows:
            row["answer"] = topic(number_of(row["prompt"]))
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
        found.append(path)
    return found


def play(run: stacksl.Run, calls: int = 30) -> stacksl.Run:
    for _ in range(calls):
        if run.status()["state"] != "waiting":
            return run
        run.answer(*filled(run))
    raise AssertionError("it still waits")


def bought(run: stacksl.Run, purpose: str) -> list[dict[str, Any]]:
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        ledger.verify()
        return [row for row in ledger.export() if row["purpose"] == purpose]


def expect_books(run: stacksl.Run) -> Counter[str]:
    """People are paid a dollar, each of the model's labels what its calls cost, and none twice."""
    costs: Counter[str] = Counter()
    calls = run.path / "calls.jsonl"
    lines = calls.read_text().splitlines() if calls.exists() else []
    ended = {row["call"]: row["cost"] for row in map(json.loads, lines) if "cost" in row}
    for row in map(json.loads, lines):
        if "request" in row:
            assert row["slot"] == SOFT_SLOT
            costs[row["item"]] += ended.get(row["call"], row["most"])
    with Ledger.open(run.path / "ledger.db", readonly=True) as ledger:
        ledger.verify()
        rows, spent = ledger.export(), 0
        for row in rows:
            soft = row["purpose"] == "soft"
            assert (row["slot"] == SOFT_SLOT) == soft
            if soft and row["state"] == "answered":
                assert (row["price"], row["labeler"]) == (costs[row["item"]], "openai:m")
            elif not soft and row["state"] == "answered":
                assert (row["price"], row["labeler"]) == (1_000_000, "anna")
            spent += int(str(row["price"]))
        assert ledger.spent_money == spent <= (ledger.money or 0)
        keys = [(row["item"], row["slot"]) for row in rows]
        assert len(keys) == len(set(keys))
    return Counter(f"{row['purpose']} {row['state']}" for row in rows)


def head_of(run: stacksl.Run) -> list[float]:
    """The final model and what it was learnt from, to compare two runs."""
    facts = json.loads((run.path / "facts.json").read_text())
    chosen = [row["answer"] for row in bought(run, "train")]
    audited = facts["audit"]["estimate"] if "estimate" in (facts["audit"] or {}) else 0.0
    return [*chosen, audited, facts["refit"]["c"]]
