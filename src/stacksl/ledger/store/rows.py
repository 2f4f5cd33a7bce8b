"""What a run was given: its items with their texts, its test rows, and rejected rows.

They are written once, when the run is made or items are added, and read from here alone. Each row
of an item or a test has a salted hash, its commitment; the settings hold a digest of all of them
and the chain one of the settings, so that an edit by hand is found. An erased row keeps its
commitment, which reveals nothing without the salt.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import canonical, erased_name
from stacksl.ledger.purchases import ItemRecord
from stacksl.ledger.store.schema import ITEMS, REJECTED, TEST, Table

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

_CONTENT: Final = ("id", "size", "part", "prompt", "candidates", "answer", "unknown", "model")
_KEPT: Final = ("surrogate", "commitment", "size", "part")  # also of an erased row
_PERSONAL: Final = tuple(name for name in _CONTENT if name not in ("id", *_KEPT))
CLEARED: Final = ", ".join(
    [f"id = '{erased_name('')}' || surrogate", *(f"{name} = NULL" for name in ("salt", *_PERSONAL))]
)
"""SQL that erases a row: it gets a name in place of its id, and what is left reveals nothing."""
_BLOCK: Final = 4096
_TWICE: Final = "item ids should be unique, got '{}' twice: give each new item an id of its own"
_DAMAGED: Final = (
    "a row of the items or the test was edited or damaged: restore the run's database from a copy"
)


class RejectedRow(NamedTuple):
    """A row of a file that could not be used: its number and id, and why."""

    part: int
    row: int
    id: str | None
    reason: str


def write_items(store: Store, records: Iterable[ItemRecord]) -> int:
    """Append items, in the open transaction; gives how many there were.

    Raises:
        LedgerError: an id appears twice, or belongs to another item of the run.
    """
    rows = _Rows(records, store.count(ITEMS))
    try:
        for block in rows.blocks():
            store.insert(ITEMS, block)
    except sqlite3.IntegrityError as fault:
        raise LedgerError(_TWICE.format(rows.last)) from fault
    return rows.count


def write_test(store: Store, test: Iterable[ItemRecord]) -> None:
    """Write the test rows of a new run, after its items.

    Raises:
        LedgerError: two items have one id.
    """
    query = "SELECT id FROM items GROUP BY id HAVING count(*) > 1 LIMIT 1"
    for (id,) in store.connection.execute(query):
        raise LedgerError(_TWICE.format(id))
    for block in _Rows(test, 0).blocks():
        store.insert(TEST, block)


def write_rejected(store: Store, rows: Iterable[RejectedRow]) -> None:
    """Append rows that could not be used, in the open transaction."""
    first = store.count(REJECTED)
    store.insert(REJECTED, ((place, *row) for place, row in enumerate(rows, first)))


@dataclass(slots=True)
class _Rows:
    """The rows of a table of items from its records; `last` is the id of the one before."""

    records: Iterable[ItemRecord]
    first: int
    last: str = ""
    count: int = 0

    def blocks(self) -> Iterator[Iterator[tuple[object, ...]]]:
        """Some thousands of rows at a time: place, surrogate, salt, commitment and content."""
        records = iter(self.records)
        while block := list(islice(records, _BLOCK)):
            noise = os.urandom(24 * len(block)).hex()
            yield self._block(block, noise)

    def _block(self, block: list[ItemRecord], noise: str) -> Iterator[tuple[object, ...]]:
        for start, record in zip(range(0, len(noise), 48), block, strict=True):
            self.last = record.id
            listed, surrogate = record.candidates, noise[start : start + 16]
            salt = noise[start + 16 : start + 48]
            values = (
                record.id,
                record.size,
                record.part,
                record.prompt,
                None if listed is None else json.dumps(list(listed)),
                record.answer,
                record.unknown,
                record.model,
            )
            place = self.first + self.count
            yield (place, surrogate, salt, _commitment(salt, values), *values)
            self.count += 1


def read_items(
    store: Store, table: Table = ITEMS
) -> Iterator[list[tuple[str, ItemRecord | None, int, int | None]]]:
    """Yield the id of each item in order, what is kept of it, its part and K, in blocks.

    Of an erased item nothing is kept.
    """
    for page in store.paged(table, ("salt", *_CONTENT), -math.inf, ""):
        yield [_read(salt, *values) for _, salt, *values in page]


def read_never_asked(
    store: Store, find: str, start: int, count: int
) -> tuple[int, list[ItemRecord]]:
    """How many items that nobody was asked about have a text or id with `find`, and some of them.

    These are `count` from place `start` on, in the order of the items; `find` is case-folded.
    """
    store.connection.create_function("casefold", 1, str.casefold, deterministic=True)
    where = (
        "salt IS NOT NULL AND surrogate NOT IN (SELECT item FROM events WHERE event = 'reserved')"
        " AND (instr(casefold(prompt), ?) OR instr(casefold(id), ?))"
    )
    clauses = f"WHERE {where} ORDER BY place LIMIT ? OFFSET ?"
    rows = store.select(ITEMS, ("salt", *_CONTENT), clauses, find, find, count, start)
    items = [item for _, item, _, _ in (_read(*row) for row in rows) if item is not None]
    return store.count(ITEMS, where, find, find), items


def _read(
    salt: str | None,
    id: str,
    size: int | None,
    part: int,
    prompt: str | None,
    listed: str | None,
    answer: int | None,
    unknown: str | None,
    model: int | None,
) -> tuple[str, ItemRecord | None, int, int | None]:
    if salt is None:
        return id, None, part, size
    candidates = None if listed is None else _list_in(listed)
    if prompt is None:
        raise LedgerCorrupt(_DAMAGED)
    return id, ItemRecord(id, prompt, size, candidates, answer, unknown, model, part), part, size


def _list_in(text: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, list):
        raise LedgerCorrupt(_DAMAGED)
    return content


def read_test(store: Store) -> Iterator[ItemRecord]:
    """Yield the test rows that were not erased, in order."""
    for _, record, *_ in chain.from_iterable(read_items(store, TEST)):
        if record is not None:
            yield record


def read_rejected(store: Store) -> list[RejectedRow]:
    """The rows that could not be used, in order."""
    columns = ("part", "row", "id", "reason")
    return [RejectedRow(*row) for row in store.select(REJECTED, columns, "ORDER BY place")]


def erase_item(store: Store, surrogate: str) -> None:
    """Erase an item, test rows with its prompt, and its id in rejected rows.

    In the open transaction. What stays of its row are a name, its place, its part and K.
    """
    of_item = "(SELECT {} FROM items WHERE surrogate = ?)"
    for statement in (
        f"UPDATE test SET {CLEARED} WHERE prompt = {of_item.format('prompt')}",
        f"UPDATE rejected SET id = NULL WHERE id = {of_item.format('id')}",
        f"UPDATE items SET {CLEARED} WHERE surrogate = ?",
    ):
        store.connection.execute(statement, (surrogate,))


def digest_of_rows(store: Store) -> str:
    """The SHA-256, hexadecimal, of what an erased item or test row keeps."""
    digest = sha256()
    for table in (ITEMS, TEST):
        digest.update(table.name.encode())
        for page in store.paged(table, _KEPT, -math.inf, ""):
            digest.update(f"{canonical(page)[1:-1]},".encode())
    return digest.hexdigest()


def expect_rows(store: Store, digest: object, *, each: bool) -> None:
    """Compare all rows with their `digest`, and before with `each` every row with its commitment.

    Raises:
        LedgerCorrupt: a row was edited, added, removed or moved.
    """
    for table in (ITEMS, TEST) if each else ():
        columns = ("surrogate", "commitment", "salt", *_CONTENT)
        rows = chain.from_iterable(store.paged(table, columns, -math.inf, ""))
        for number, (_, surrogate, commitment, salt, *values) in enumerate(rows, start=1):
            if not _is_whole(surrogate, commitment, salt, values):
                raise LedgerCorrupt(
                    f"row {number} of the table '{table.name}' in {store.name} was edited or"
                    " damaged: restore the file from a copy"
                )
    if digest_of_rows(store) != digest:
        raise LedgerCorrupt(
            f"rows of the items or the test in {store.name} were added, removed or edited:"
            " restore the file from a copy"
        )


def _is_whole(surrogate: str, commitment: str, salt: str | None, values: Sequence[object]) -> bool:
    if salt is not None:
        return _commitment(salt, values) == commitment
    left = dict(zip(_CONTENT, values, strict=True))
    named = left["id"] == erased_name(surrogate)
    return named and all(left[name] is None for name in _PERSONAL)


def _commitment(salt: str, values: Sequence[object]) -> str:
    """The salted hash of a row, by its values in their order."""
    return salted(salt, ascii(tuple(values)))  # alike in every version, and quicker than JSON


def salted(salt: str | None, content: str) -> str:
    """The SHA-256 of a salt and a text, hexadecimal.

    Raises:
        LedgerCorrupt: there is no salt, or it is damaged.
    """
    try:
        noise = bytes.fromhex(salt)  # type: ignore[arg-type]  # None is a TypeError
    except (TypeError, ValueError):
        raise LedgerCorrupt(
            "the salt of an item should be hexadecimal digits, but is not: the ledger is damaged, "
            "restore the file from a copy"
        ) from None
    return sha256(noise + content.encode("utf-8", "surrogatepass")).hexdigest()
