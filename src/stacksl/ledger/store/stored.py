"""Rows outside the chain that decide a number: what was handed out, requests, the learner's arrays.

The row of the chain that is written with them has a digest of each, by table and place, under
`stored`; None stands for an erased row, and the newest of a place counts. Each row has a random
salt, so that a digest reveals nothing of a row that was erased.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

from numpy.typing import NDArray

from stacksl.errors import LedgerCorrupt
from stacksl.files.arrays import from_bytes
from stacksl.ledger import events
from stacksl.ledger.events import STORED, Entry, canonical
from stacksl.ledger.purchases import Head
from stacksl.ledger.store.database import Store
from stacksl.ledger.store.schema import ARRAYS, HANDED, REQUESTS, Table

Digests = dict[str, dict[str, str | None]]
"""The digests of rows by their table and place."""


def insert_stored(store: Store, table: Table, rows: Iterable[Sequence[Any]]) -> Digests:
    """Insert rows, each with a salt behind its place, in the open transaction; their digests."""
    salted = [(place, os.urandom(16).hex(), *values) for place, *values in rows]
    store.insert(table, salted)
    return digests_of(table, salted)


def digests_of(table: Table, rows: Iterable[Sequence[Any]]) -> Digests:
    """The SHA-256, hexadecimal, of each row with its salt; bytes take part by their own digest."""
    digests: dict[str, str | None] = {}
    for row in rows:
        values = [sha256(v).hexdigest() if isinstance(v, bytes) else v for v in row]
        digests[str(row[0])] = sha256(ascii(values).encode()).hexdigest()  # in any version
    return {table.name: digests}


def expect_stored(store: Store, recorded: Digests) -> None:
    """Compare what was handed out and the requests with their digests in the chain.

    Raises:
        LedgerCorrupt: naming the table and the row that is another one.
    """
    for table in (HANDED, REQUESTS):
        pages = store.paged(table, tuple(table.columns)[1:], -math.inf, "")
        actual = digests_of(table, chain.from_iterable(pages))[table.name]
        expected = recorded.get(table.name, {})
        for place in expected | actual:
            if actual.get(place) != expected.get(place):
                raise edited(store, table, place)


def edited(store: Store, table: Table, place: object) -> LedgerCorrupt:
    """The error for a row of a `table` that is not as the chain has it."""
    return LedgerCorrupt(
        f"row {place} of the table '{table.name}' in {store.name} was edited, added, removed or"
        " damaged: restore the file from a copy"
    )


# The learner's arrays --------------------------------------------------------------------------


class Saved(NamedTuple):
    """Arrays as bytes, the `head` of the chain that they belong to, and the learner's round.

    `whole` is false where they do not match their digest in the chain.
    """

    head: Head
    round: int
    data: bytes
    whole: bool = True

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return from_bytes(self.data)


def write_arrays(store: Store, head: Head, round: int, data: bytes) -> Digests:
    """Replace the arrays, in the open transaction; gives their digest for the chain."""
    store.connection.execute("DELETE FROM arrays")
    return insert_stored(store, ARRAYS, [(*head, round, data)])


def read_arrays(store: Store) -> Saved | None:
    """The saved arrays; None before the first."""
    for row in store.select(ARRAYS):
        count, _, tip, round, data = row
        # their digest is in the next row of the chain; one that was cut accuses no arrays
        pages = store.pages(count, upto=count + 1)
        noted = [entry.payload.get(STORED) for page in pages for entry in page]
        return Saved(Head(count, tip), round, data, noted in ([], [digests_of(ARRAYS, [row])]))
    return None


# Calls to a model that answers: two rows each, of a request and of its end ---------------------


def write_request(store: Store, row: Mapping[str, Any]) -> None:
    """Append a row, and its digest to the chain, in the open transaction of any thread."""
    last_rows = store.select(REQUESTS, ("place",), "ORDER BY place DESC LIMIT 1")
    place, end = last_rows[0][0] + 1 if last_rows else 1, store.tail()
    text = canonical({STORED: insert_stored(store, REQUESTS, [(place, json.dumps(row))])})
    assert end is not None, "a request belongs to a lease"
    store.append(events.chain(end, [Entry(int(time.time() * 1e6), STORED, text=text)]))


def erase_requests(store: Store, item: str) -> Digests:
    """Remove the calls about an item, and the content of those that had it as an example.

    The cost of the latter stays, and of calls that another item's label pays for. In the open
    transaction; gives the digests from now on.
    """
    rows, kept_rows = read_requests(store), list[tuple[int, str]]()
    calls_with_it = {row["call"] for _, row in rows if item in row.get("shots", ())}
    paid = {r["call"]: r["payer"] for _, r in rows if r["item"] == item and "payer" in r}
    calls_about = {r["call"] for _, r in rows if item in (r["item"], r.get("payer", [""])[0])}
    erased = [(place, row) for place, row in rows if row["call"] in calls_with_it | calls_about]
    for place, row in erased:
        store.connection.execute("DELETE FROM requests WHERE place = ?", (place,))
        if row["call"] in paid:
            row["item"], row["slot"] = paid[row["call"]]
            row.pop("payer", None)
        elif row["call"] in calls_about:
            continue
        if "request" in row:
            row |= {"request": {}, "shots": [shot for shot in row["shots"] if shot != item]}
        else:
            row |= {"answer": "", "why": "an example in it was erased"}
        kept_rows.append((place, json.dumps(row)))
    erased_places = dict.fromkeys(str(place) for place, _ in erased)
    return {REQUESTS.name: erased_places | insert_stored(store, REQUESTS, kept_rows)[REQUESTS.name]}


def read_requests(store: Store) -> list[tuple[int, dict[str, Any]]]:
    """All rows with their places, in the order in which they happened.

    Raises:
        LedgerCorrupt: one is damaged.
    """
    rows = []
    for place, content in store.select(REQUESTS, ("place", "content"), "ORDER BY place"):
        try:
            row = json.loads(content)
            (row["call"], row["item"], row["slot"])
            (row["order"], row["way"], row["shots"]) if "request" in row else row["answer"]
        except (ValueError, KeyError, TypeError) as fault:
            raise LedgerCorrupt(
                f"row {place} of the requests in {store.name} is damaged: restore the file from a"
                " copy"
            ) from fault
        rows.append((place, row))
    return rows
