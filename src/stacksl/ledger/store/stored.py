"""Rows beside the chain that decide a number: what was handed out, requests, and arrays.

The row of the chain that is written with them has a digest of each, by table and place, under
`stored`; None stands for an erased row, and the newest of a place counts. Each row has a random
salt, so that a digest reveals nothing of a row that was erased.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.store.schema import HANDED, REQUESTS, Table

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

Digests = dict[str, dict[str, str | None]]
"""The digests of rows by their table and place."""


def insert_stored(store: Store, table: Table, rows: Iterable[Sequence[Any]]) -> Digests:
    """Insert rows, each with a salt behind its place, in the open transaction; their digests."""
    salted = [(place, os.urandom(16).hex(), *values) for place, *values in rows]
    store.insert(table, salted)
    return digests_of(table, salted)


def digests_of(table: Table, rows: Iterable[Sequence[Any]]) -> Digests:
    """The SHA-256, hexadecimal, of each row with its salt; of bytes the row has a digest."""
    found: dict[str, str | None] = {}
    for row in rows:
        text = ascii([each for each in row if not isinstance(each, bytes)])  # alike in any version
        found[str(row[0])] = sha256(text.encode()).hexdigest()
    return {table.name: found}


def expect_stored(store: Store, known: Digests) -> None:
    """Compare what was handed out and the requests with their digests in the chain.

    Raises:
        LedgerCorrupt: naming the table and the row that is another one.
    """
    for table in (HANDED, REQUESTS):
        pages = store.paged(table, tuple(table.columns)[1:], -math.inf, "")
        found = digests_of(table, chain.from_iterable(pages))[table.name]
        expected = known.get(table.name, {})
        for place in expected | found:
            if found.get(place) != expected.get(place):
                raise edited(store, table, place)


def edited(store: Store, table: Table, place: object) -> LedgerCorrupt:
    """The error for a row of a `table` that is not as the chain has it."""
    return LedgerCorrupt(
        f"row {place} of the table '{table.name}' in {store.name} was edited, added, removed or"
        " damaged: restore the file from a copy"
    )
