"""The ledger's tables, and the number of their format.

`runs` holds what a run may spend, `events` the chain. The chain names an item by a random
surrogate, a person by a random code and free texts by a salted hash; the other tables hold what
these stand for, so that forgetting an item never changes the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import contains
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from stacksl.errors import LedgerCorrupt, LedgerError

METADATA: Final = MetaData()

FORMAT: Final = 1
"""The format this version writes and reads; any change to a table or a row's meaning raises it."""

formats: Final = Table("format", METADATA, Column("number", Integer, primary_key=True))
"""One row: the format of the file. No other table is read before it."""

runs: Final = Table(
    "runs",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("budget", BigInteger, nullable=False),  # labels
    Column("money", BigInteger),  # micro-units, or null
    Column("price", BigInteger, nullable=False),  # micro-units a label, at most
    Column("created", BigInteger, nullable=False),  # microseconds
)
"""What each run may spend; row 1 of its chain follows a hash of this."""

items: Final = Table(
    "items",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("surrogate", String(32), primary_key=True),
    Column("id", Text),
    Column("size", Integer),
    Column("salt", String(32)),
    Column("content_hash", String(64)),
    Index("items_id", "run", "id", unique=True),
)
"""The id and the salt of each item, which the chain must not hold."""

names: Final = Table(
    "names",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("code", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Index("names_name", "run", "name", unique=True),
)
"""The names for the codes of the chain: annotators, and the sources of owned labels."""

texts: Final = Table(
    "texts",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("item", String(32), primary_key=True),
    Column("words", String(64), primary_key=True),  # the salted hash that the chain holds
    Column("text", Text),
    Column("note", Text),
)
"""The free texts of answers: the right text of a none-of-these, and notes."""

handed: Final = Table(
    "handed",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("key", String(32), primary_key=True),
    Column("place", BigInteger, nullable=False),  # in the order of handing out, from 1
    Column("item", String(32), nullable=False),
    Column("slot", Integer, nullable=False),
    Column("token", Integer, nullable=False),
    Column("annotator", String(16), nullable=False),
    Column("sheet", Integer, nullable=False),
    Column("shown", Text, nullable=False),  # candidate indices as shown, JSON
)
"""Which lease was handed to whom, on which row of which sheet."""

events: Final = Table(
    "events",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("event", String(16), nullable=False),
    Column("round", BigInteger),
    Column("item", String(32)),
    Column("slot", Integer),
    Column("token", Integer),
    Column("number", Integer),
    Column("purpose", String(8)),
    Column("labeler", Text),
    Column("price", BigInteger),
    Column("payload", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)
"""The chain, append-only."""


def make_tables(connection: Connection) -> None:
    """Create missing tables, in the transaction of `connection`."""
    METADATA.create_all(connection)
    if connection.execute(select(formats)).first() is None:
        connection.execute(insert(formats).values(number=FORMAT))


def expect_format(connection: Connection) -> None:
    """Check that a database is a ledger of the format that this version reads.

    Raises:
        LedgerError: it is not a ledger, or has an older or newer format.
    """
    found = inspect(connection).get_table_names()
    if events.name not in found:
        raise LedgerError(
            "expected a ledger, got a database without its tables: name the ledger.db of a run"
        )
    rows = connection.execute(select(formats)).all() if formats.name in found else ()
    number = next((row.number for row in typed(formats.c, rows)), 0)
    if number != FORMAT:
        newer = number > FORMAT
        raise LedgerError(
            f"the ledger has format {number}, this version of stacksl reads format {FORMAT}: "
            + ("install a newer stacksl" if newer else "use the version that wrote it")
        )


def typed(columns: Iterable[Column[Any]], rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the `rows`, each after a check that its values have the types of their `columns`.

    SQLite accepts a text in a column of integers, so a damaged file can hold one.

    Raises:
        LedgerCorrupt: naming the table and the column.
    """
    columns = tuple(columns)
    kinds: list[set[type]] = [{int if isinstance(c.type, Integer) else str} for c in columns]
    for kind, column in zip(kinds, columns, strict=True):
        kind |= {type(None)} if column.nullable else set()
    for row in rows:
        if not all(map(contains, kinds, map(type, row))):
            wrong = next(
                c for c, kind, v in zip(columns, kinds, row, strict=True) if type(v) not in kind
            )
            raise LedgerCorrupt(
                f"the column '{wrong.name}' of the ledger's table '{wrong.table.name}' holds a "
                "value of another type: the file is damaged, restore it from a copy"
            )
        yield row


def _once(name: str, where: str, *columns: str) -> Index:
    """A partial unique index: at most one such row."""
    condition = text(where)
    return Index(
        name,
        *(events.c[c] for c in ("run", *columns)),
        unique=True,
        sqlite_where=condition,
        postgresql_where=condition,
    )


_once("one_certificate", "event = 'round'", "round")
_once("one_lease", "event = 'reserved'", "item", "slot", "token")
_once("one_release", "event = 'released'", "item", "slot", "token")
_once("one_answer", "event = 'answered'", "item", "slot", "token")
_once("one_accepted_answer", "event = 'answered'", "item", "slot")
_once("one_lesson_an_item", "event = 'learnt'", "item")
_once("numbered_corrections", "event = 'corrected'", "item", "slot", "number")
