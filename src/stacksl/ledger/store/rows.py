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
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import canonical, erased_name
from stacksl.ledger.purchases import ItemRecord
from stacksl.ledger.store.schema import ITEMS, REJECTED, SETTINGS, TEST, Table

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

ROWS: Final = "rows"  # a setting: the digest of what the run was given
_CONTENT: Final = tuple(ItemRecord.__dataclass_fields__)
_values_of = attrgetter(*_CONTENT)
_IMPERSONAL: Final = ("surrogate", "commitment", "size", "part")  # also of an erased row
_PERSONAL: Final = tuple(name for name in _CONTENT if name not in ("id", *_IMPERSONAL))
CLEARED: Final = ", ".join(
    [f"id = '{erased_name('')}' || surrogate", *(f"{name} = NULL" for name in ("salt", *_PERSONAL))]
)
"""SQL that erases a row: it gets a name in place of its id, and what is left reveals nothing."""
_DAMAGED: Final = (
    "a row of the items, the test or the sheets was edited or damaged: restore the run's database"
    " from a copy"
)


RejectedRow = tuple[int, int, str | None, str]
"""A row of a file that could not be used: part, number and id, and why."""


def write_items(store: Store, records: Iterable[ItemRecord], table: Table = ITEMS) -> int:
    """Append items or test rows, in the open transaction; gives how many there were."""
    start = store.count(table)
    store.insert(table, _rows(records, start))
    return store.count(table) - start


def _rows(records: Iterable[ItemRecord], start: int) -> Iterator[tuple[object, ...]]:
    """Place, surrogate, salt, commitment and content of each record."""
    for place, record in enumerate(records, start):
        id, prompt, size, candidates, *remaining = _values_of(record)
        candidates_json = None if candidates is None else json.dumps(list(candidates))
        values, noise = (id, prompt, size, candidates_json, *remaining), os.urandom(24).hex()
        surrogate, salt = noise[:16], noise[16:]
        yield place, surrogate, salt, _commitment(salt, values), *values


def write_rejected(store: Store, rows: Iterable[RejectedRow]) -> None:
    """Append rows that could not be used, in the open transaction."""
    start = store.count(REJECTED)
    store.insert(REJECTED, ((place, *row) for place, row in enumerate(rows, start)))


def read_items(store: Store, table: Table = ITEMS) -> Iterator[list[tuple[ItemRecord, bool]]]:
    """Yield each item in order, and whether it is erased: then its text is empty; in blocks."""
    for page in store.paged(table, ("salt", *_CONTENT), -math.inf, ""):
        yield [(_read(*row), row[0] is None) for _, *row in page]


def read_never_asked(
    store: Store, find: str, start: int, count: int
) -> tuple[int, list[ItemRecord]]:
    """How many items that nobody was asked about have a text or id with `find`, and some of them.

    These are `count` from place `start` on, in the order of the items; `find` is case-folded.
    """
    store.connection.create_function("casefold", 1, str.casefold, deterministic=True)
    condition = (
        "salt IS NOT NULL AND surrogate NOT IN (SELECT item FROM events WHERE event = 'reserved')"
        " AND (instr(casefold(prompt), ?) OR instr(casefold(id), ?))"
    )
    clauses = f"WHERE {condition} ORDER BY place LIMIT ? OFFSET ?"
    rows = store.select(ITEMS, ("salt", *_CONTENT), clauses, find, find, count, start)
    return store.count(ITEMS, condition, find, find), [_read(*row) for row in rows]


def _read(
    salt: str | None,
    id: str,
    prompt: str | None,
    size: int,
    candidates_json: str | None,
    *remaining: Any,
) -> ItemRecord:
    if prompt is None and salt is not None:
        raise LedgerCorrupt(_DAMAGED)
    candidates = None if candidates_json is None else list_in(candidates_json)
    return ItemRecord(id, prompt or "", size, candidates, *remaining)


def list_in(text: str) -> list[Any]:
    """The list in a column of JSON.

    Raises:
        LedgerCorrupt: there is none.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, list):
        raise LedgerCorrupt(_DAMAGED)
    return content


def read_rejected(store: Store) -> list[RejectedRow]:
    """The rows that could not be used, in order."""
    columns = ("part", "row", "id", "reason")
    return store.select(REJECTED, columns, "ORDER BY place")


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
        for page in store.paged(table, _IMPERSONAL, -math.inf, ""):
            digest.update(f"{canonical(page)[1:-1]},".encode())
    return digest.hexdigest()


def check_rows(store: Store, *, one_by_one: bool) -> None:
    """Compare all rows with their digest, before that `one_by_one` each with its commitment.

    Raises:
        LedgerCorrupt: a row was edited, added, removed or moved.
    """
    for table in (ITEMS, TEST) if one_by_one else ():
        columns = ("surrogate", "commitment", "salt", *_CONTENT)
        rows = chain.from_iterable(store.paged(table, columns, -math.inf, ""))
        for number, (_, surrogate, commitment, salt, *values) in enumerate(rows, start=1):
            if not _is_whole(surrogate, commitment, salt, values):
                raise LedgerCorrupt(
                    f"row {number} of the table '{table.name}' in {store.name} was edited or"
                    " damaged: restore the file from a copy"
                )
    digest_rows = store.select(SETTINGS, ("value",), "WHERE name = ?", ROWS)
    if not digest_rows or digest_of_rows(store) != json.loads(digest_rows[0][0]):
        raise LedgerCorrupt(
            f"rows of the items or the test in {store.name} were added, removed or edited:"
            " restore the file from a copy"
        )


def _is_whole(surrogate: str, commitment: str, salt: str | None, values: Sequence[object]) -> bool:
    if salt is not None:
        return _commitment(salt, values) == commitment
    content = dict(zip(_CONTENT, values, strict=True))
    is_renamed = content["id"] == erased_name(surrogate)
    return is_renamed and all(content[name] is None for name in _PERSONAL)


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
