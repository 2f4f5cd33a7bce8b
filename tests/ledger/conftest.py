"""A small ledger, decisions for it, and a labeler that answers as people do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stacksl.labelers.protocol import Labeler, Pending
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord, Purchase, Receipt
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.rows import read_items
from stacksl.ledger.store.schema import ITEMS as ITEMS_TABLE
from stacksl.ledger.store.schema import Table
from stacksl.types import Decision, Label

ITEMS = 30
SIZE = 4


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class SlowLabeler:
    """Answers when told: out of order, late, twice, or never. Its answer to item i is i mod K."""

    name = "slow"
    repeatable = False

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int, int], Purchase] = {}
        self._ready: list[Answer] = []

    def ask(self, purchases: Sequence[Purchase]) -> None:
        for p in purchases:
            self.asked.setdefault((p.item, p.slot, p.token), p)

    def say(self, item: str, token: int = 1, index: int | None = None, price: int = 0) -> None:
        """Make the answer to a lease ready; as often as wanted."""
        known = self.asked[(item, 0, token)]
        gold = int(item[1:]) % SIZE if index is None else index
        self._ready.append(Answer(known.item, 0, token, gold, self.name, price))

    def answers(self) -> list[Answer]:
        ready, self._ready = self._ready, []
        return ready

    def pending(self) -> list[Pending]:
        return []


def make_decision(round: int, status: str = "wanted", item: str | None = None) -> Decision:
    return Decision(
        round=round,
        item=f"q{round - 1}" if item is None else item,
        presented=(0, 2, 3),
        choice=2,
        statistic=0.1 * round,
        threshold=float("-inf"),
        reason="gate",
        score=-0.0,
        probability=5e-324,
        state=(0.1, float("inf"), float(round)),
        skip_state=(0.2, 0.0, 0.0),
        status=status,  # type: ignore[arg-type]
    )


def make_records() -> list[ItemRecord]:
    return [ItemRecord(f"q{i}", f"A prompt of number {i}\nyes\nno", SIZE) for i in range(ITEMS)]


def lessons(receipts: Sequence[Receipt]) -> list[tuple[Decision, Label]]:
    """What is to be learned of answers that were taken."""
    return [receipt.example for receipt in receipts if receipt.example is not None]


def stored(path: Path, table: Table = ITEMS_TABLE) -> list[ItemRecord | None]:
    """What the file has of the items or test rows, in order; None for an erased one."""
    with opened(path, readonly=True) as store:
        rows = [row for block in read_items(store, table) for row in block]
    return [None if erased else record for record, erased in rows]


def sums(ledger: Ledger, *names: str) -> tuple[Any, ...]:
    """These of the ledger's accounts; `learned` is how many labels were learned."""
    accounts = ledger.accounts
    learned = {"learned": len(accounts.learned_labels)}
    return tuple(learned[n] if n in learned else getattr(accounts, n) for n in names)


def commits_of(ledger: Ledger) -> list[str]:
    """The commits of the ledger from here on, as they come."""
    commits: list[str] = []

    def trace(statement: str) -> None:
        if statement == "COMMIT":
            commits.append(statement)

    ledger._store.connection.set_trace_callback(trace)
    return commits


def events(ledger: Ledger) -> list[str]:
    """The events of its rows."""
    return [row.event for row in ledger.rows()]


def chain_of(path: Path, table: str = "events") -> str:
    """All that stands in the rows of the chain, or of another table."""
    with closing(sqlite3.connect(path)) as database:
        return repr(database.execute(f"SELECT * FROM {table}").fetchall())


def charge(row: Row) -> int:
    """How many labels the row adds to what is spent: +1, −1 or 0.

    A reservation adds one and its release subtracts it; its answer only turns the reservation into
    a payment, but an answer after the release is charged anew. An owned label adds nothing.
    """
    if row.purpose == "owned":
        return 0
    if row.event == "answered":
        return int(bool(row.payload.get("unleased")))
    return {"reserved": 1, "released": -1}.get(row.event, 0)


@pytest.fixture
def decision() -> Callable[..., Decision]:
    return make_decision


@pytest.fixture
def records() -> list[ItemRecord]:
    return make_records()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slow() -> SlowLabeler:
    labeler = SlowLabeler()
    assert isinstance(labeler, Labeler)
    return labeler


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def book(path: Path, clock: Clock) -> Iterator[Callable[..., Ledger]]:
    """Makes ledgers at `path`, and closes them at the end."""
    made: list[Ledger] = []

    def make(**terms: object) -> Ledger:
        settings: dict[str, object] = {"run": "test", "budget": 3, "items": make_records()}
        made.append(Ledger.create(path, clock=clock, **{**settings, **terms}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for ledger in made:
        ledger.__exit__(ValueError, None, None)
