"""The tables of a run's database, and the number of their format.

`terms` holds what the run may spend, `events` the chain, `settings` how it is made, `items`, `test`
and `rejected` what it was given, `state` where it is, `arrays` what was learned. The chain names an
item by a random surrogate, a person by a random code and free texts by a salted hash; the other
tables hold what these stand for, so that erasing an item never changes the chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

FORMAT: Final = 20
"""The format this version writes and reads; any change to a table or a row's meaning raises it."""

KINDS: Final[dict[str, tuple[str, set[type]]]] = {
    "int": ("INTEGER NOT NULL", {int}),
    "str": ("TEXT NOT NULL", {str}),
    "int?": ("INTEGER", {int, type(None)}),
    "str?": ("TEXT", {str, type(None)}),
    "bytes": ("BLOB NOT NULL", {bytes}),
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns with the types of their values, `?` where they may be null."""

    name: str
    columns: dict[str, str]
    key: str


TERMS: Final = Table(
    "terms",
    {
        "run": "str",
        "budget": "int",  # labels
        "money": "int?",  # micro-units
        "price": "int",  # micro-units a label, at most
        "created": "int",  # microseconds
        "settings": "str",  # the digest of `settings` at the start
    },
    "run",
)
"""One row: what the run may spend; row 1 of the chain follows a hash of it."""

SETTINGS: Final = Table("settings", {"name": "str", "value": "str", "origin": "str?"}, "name")
"""What the run is made with, its classes as well: each value as JSON, of a setting its origin."""

STATE: Final = Table("state", {"record": "str"}, "record")
"""One row: where the run is, with what else there is to say of it, as JSON with its digest."""

_ROW: Final = {
    "salt": "str?",
    "commitment": "str",  # the salted hash of all columns behind it
    "id": "str",  # of an erased row a name in its place
    "prompt": "str?",
    "size": "int?",  # K
    "candidates": "str?",  # JSON: texts; null for the run's classes
    "answer": "int?",  # of the file: an index of its candidates
    "unknown": "str?",  # of the file: an answer that is none of the candidates
    "model": "int?",  # the class that a model gave it
    "part": "int",  # the number of its file, from 0
}

ITEMS: Final = Table("items", {"place": "int", "surrogate": "str", **_ROW}, "place")
"""The items, in order; of an erased one only a name, numbers and commitment remain."""

TEST: Final = Table("test", {"place": "int", "surrogate": "str", **_ROW}, "place")
"""The rows that the final model is tested on, as `items` are kept."""

REJECTED: Final = Table(
    "rejected",
    {"place": "int", "part": "int", "row": "int", "id": "str?", "reason": "str"},
    "place",
)
"""The rows of the files that could not be used."""

ERASING: Final = Table("erasing", {"item": "str"}, "item")
"""The items of which copies or bytes may be left."""

NAMES: Final = Table("names", {"code": "str", "name": "str"}, "code")
"""The names for the codes of the chain: annotators, and the sources of owned labels."""

TEXTS: Final = Table(
    "texts",
    {"item": "str", "words": "str", "text": "str?", "note": "str?"},
    "item, words",  # `words` is the salted hash that the chain holds
)
"""The free texts of answers: the right text of a none-of-these, and notes."""

HANDED: Final = Table(
    "handed",
    {
        "place": "int",  # in the order of handing out, from 1
        "salt": "str",
        "key": "str",
        "item": "str",
        "slot": "int",
        "token": "int",
        "annotator": "str",
        "sheet": "int",
        "shown": "str",  # candidate indices as shown, JSON
    },
    "place",
)
"""Which lease was handed to whom, on which row of which sheet."""

EVENTS: Final = Table(
    "events",
    {
        "seq": "int",
        "time": "int",
        "event": "str",
        "round": "int?",
        "item": "str?",
        "slot": "int?",
        "token": "int?",
        "number": "int?",
        "purpose": "str?",
        "labeler": "str?",
        "price": "int?",
        "payload": "str",
        "previous": "str",
        "hash": "str",
    },
    "seq",
)
"""The chain, append-only."""

ARRAYS: Final = Table(
    "arrays",
    {"seq": "int", "salt": "str", "tip": "str", "round": "int", "data": "bytes"},
    "seq",
)
"""One row: the learner's arrays after a row of the chain, with that row's hash."""

REQUESTS: Final = Table("requests", {"place": "int", "salt": "str", "content": "str"}, "place")
"""The calls to a model that answers: two rows each, JSON, in the order in which they happened."""

_TABLES: Final = (
    TERMS, SETTINGS, STATE, ARRAYS, ITEMS, TEST, REJECTED, NAMES, TEXTS,
    HANDED, REQUESTS, ERASING, EVENTS,
)  # fmt: skip

_ONCE: Final = (
    "items (id)",
    "items (surrogate)",
    "names (name)",
    "handed (key)",
    "events (round) WHERE event = 'round'",
    "events (item, slot, token) WHERE event = 'reserved'",
    "events (seq) WHERE event = 'settings'",  # to find the newest
    "events (seq) WHERE event = 'derived'",
)
"""Columns in which no two rows may be equal."""


def make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, in the open transaction of `connection`."""
    for table in _TABLES:
        columns = ", ".join(f"{name} {KINDS[kind][0]}" for name, kind in table.columns.items())
        connection.execute(f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({table.key}))")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def make_indexes(connection: sqlite3.Connection) -> None:
    """Create the indexes, in the open transaction: quicker once the items are written."""
    for number, columns in enumerate(_ONCE, start=1):
        connection.execute(f"CREATE UNIQUE INDEX once_{number} ON {columns}")
