"""Rows beside the chain that decide a number: what was handed out, requests, and arrays.

The row of the chain that is written with them has a digest of each, by table and place, under
`stored`; None stands for an erased row, and the newest of a place counts. Each row has a random
salt, so that a digest reveals nothing of a row that was erased.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.store.schema import HANDED, REQUESTS, Table

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

Digests = dict[str, str | None]
"""The digests of rows of a table by their places."""


def digests_of(rows: Iterable[Sequence[Any]]) -> Digests:
    """The digest of each row, by the place that is its first column."""
    return {str(row[0]): _digest(row) for row in rows}


def expect_stored(store: Store, known: Mapping[str, Digests]) -> None:
    """Compare what was handed out and the requests with their digests, `known` by table.

    Raises:
        LedgerCorrupt: naming the table and the row that was edited, added or removed.
    """
    for table in (HANDED, REQUESTS):
        left = {place: digest for place, digest in known[table.name].items() if digest}
        columns = tuple(table.columns)[1:]
        for row in chain.from_iterable(store.paged(table, columns, -math.inf, "")):
            if left.pop(str(row[0]), None) != _digest(row):
                raise edited(store, table, row[0], "edited, added or damaged")
        for place in left:
            raise edited(store, table, place, "removed")


def _digest(row: Sequence[Any]) -> str:
    """The SHA-256, hexadecimal, of a row with its salt."""
    values = (sha256(each).hexdigest() if isinstance(each, bytes) else each for each in row)
    return sha256(ascii(tuple(values)).encode()).hexdigest()  # alike in every version


def edited(store: Store, table: Table, place: object, how: str) -> LedgerCorrupt:
    """The error for a row of a `table` that is not as the chain has it."""
    return LedgerCorrupt(
        f"row {place} of the table '{table.name}' in {store.name} was {how}:"
        " restore the file from a copy"
    )
