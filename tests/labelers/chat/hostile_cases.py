"""Runs against a server that misbehaves, and what their books must say."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import stacksl
from stacksl.labelers.chat.calls import read_calls
from stacksl.ledger.ledger import Ledger

from .chat_server import Behavior, Handler, Server, completion, hang, right

NAMES = ["green", "red", "blue"]
PRICED = {"server.input_price": "100", "server.output_price": "200"}
FREE = dict.fromkeys(PRICED)
SINGLY = {"server.concurrency": 1}
KEY = "sk-zyxcanary-0123456789"


def begin(server: Server, folder: Path, **settings: Any) -> stacksl.Run:
    texts = [f"text {n} of {NAMES[n % 3]} and w{n % 5}" for n in range(24)]
    given: dict[str, Any] = {
        "budget": 6,
        "server.timeout": 1.5,
        "server.allow_send": True,
        **SINGLY,
        **PRICED,
        **settings,
    }
    return stacksl.run(
        texts, classes=NAMES, labeler="openai:m", **{"server.url": server.url}, out=folder, **given
    )


def expect_books(run: stacksl.Run) -> Counter[str]:
    """Each label is charged what its calls cost, each open one is reserved; how they stand."""
    rows = read_calls(run.path / "run.db")
    costs: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    payers: dict[int, tuple[str, int]] = {}
    for row in rows:
        item, slot = row.get("payer", (row["item"], row["slot"]))
        payer = payers.setdefault(row["call"], (item, slot))
        costs[payer][row["call"]] = row.get("cost", row.get("most"))
    with Ledger.open(run.path / "run.db", readonly=True) as ledger:
        ledger.verify()
        found, most, paid = ledger.export(), ledger.accounts.price, 0
        for row in found:
            spent = sum(costs.get((str(row["item"]), int(str(row["slot"]))), {}).values())
            if row["state"] == "answered":
                assert row["price"] == min(spent, most)
                paid += min(spent, most)
            else:
                assert spent <= most
                paid += most
        assert ledger.accounts.spent_money == paid <= ledger.accounts.money
        assert ledger.accounts.spent <= ledger.accounts.budget
        return Counter(str(row["kind"] or row["state"]) for row in found)


def once(bad: Behavior, *numbers: int) -> Behavior:
    """Misbehave in these requests, by their number, and answer all others."""

    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        (bad if number in numbers else right)(handler, body, number)

    return behave


def says(said: Any, **more: Any) -> Behavior:
    return lambda handler, body, number: handler.send(200, completion(said, **more))


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


def status(code: int, **headers: str) -> Behavior:
    return lambda handler, body, number: handler.send(code, b'{"error": "no"}', **headers)


LOST = (garbage, odd, deep, truncated, cut_json, reset, drip, huge, hang, status(500))
