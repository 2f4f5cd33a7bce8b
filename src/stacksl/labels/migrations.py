"""The named steps that bring a ledger of any age to the present schema.

A step that was released is never changed; a new one goes to the end of `STEPS`. The names of
the steps applied stand in the table `schema_steps`, so a ledger tells its age by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, inspect, select
from sqlalchemy.exc import NoSuchTableError

from stacksl.errors import LedgerError
from stacksl.labels.schema import steps

if TYPE_CHECKING:
    from alembic.operations import Operations
    from sqlalchemy import Connection

__all__ = ["STEPS", "applied", "migrate", "pending"]

Step = tuple[str, Callable[["Operations"], None]]


def _chain(op: Operations) -> None:
    """What a run may spend, and its chain of events."""
    from sqlalchemy import BigInteger, Column, Integer, String, Text

    op.create_table(
        "runs",
        Column("run", String(200), primary_key=True),
        Column("budget", BigInteger, nullable=False),
        Column("money", BigInteger),
        Column("price", BigInteger, nullable=False),
        Column("created", BigInteger, nullable=False),
    )
    op.create_table(
        "events",
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


def _items(op: Operations) -> None:
    """The items beside the chain."""
    from sqlalchemy import Column, Integer, String, Text

    op.create_table(
        "items",
        Column("run", String(200), primary_key=True),
        Column("surrogate", String(32), primary_key=True),
        Column("id", Text),
        Column("size", Integer),
        Column("salt", String(32)),
        Column("content_hash", String(64)),
    )
    op.create_index("items_id", "items", ["run", "id"], unique=True)


def _once_each(op: Operations) -> None:
    """The rules of buying, kept by the database too."""
    from sqlalchemy import text

    rules = {
        "one_certificate": ("round", ["round"]),
        "one_lease": ("reserved", ["item", "slot", "token"]),
        "one_release": ("released", ["item", "slot", "token"]),
        "one_answer": ("answered", ["item", "slot", "token"]),
        "one_accepted_answer": ("answered", ["item", "slot"]),
        "one_lesson": ("learnt", ["item", "slot"]),
        "numbered_corrections": ("corrected", ["item", "slot", "number"]),
    }
    for name, (event, columns) in rules.items():
        where = text(f"event = '{event}'")
        op.create_index(
            name,
            "events",
            ["run", *columns],
            unique=True,
            sqlite_where=where,
            postgresql_where=where,
        )


def _beside(op: Operations) -> None:
    """What people are called, said in free words and were handed, beside the chain."""
    from sqlalchemy import BigInteger, Column, Integer, String, Text

    def run() -> Column[str]:
        return Column("run", String(200), primary_key=True)

    op.create_table(
        "names",
        run(),
        Column("code", String(16), primary_key=True),
        Column("name", Text, nullable=False),
    )
    op.create_index("names_name", "names", ["run", "name"], unique=True)
    op.create_table(
        "texts",
        run(),
        Column("item", String(32), primary_key=True),
        Column("words", String(64), primary_key=True),
        Column("text", Text),
        Column("note", Text),
    )
    op.create_table(
        "handed",
        run(),
        Column("key", String(32), primary_key=True),
        Column("place", BigInteger, nullable=False),
        Column("item", String(32), nullable=False),
        Column("slot", Integer, nullable=False),
        Column("token", Integer, nullable=False),
        Column("annotator", String(16), nullable=False),
        Column("sheet", Integer, nullable=False),
        Column("shown", Text, nullable=False),
    )


def _one_lesson(op: Operations) -> None:
    """An item is learnt once, however many slots it has."""
    from sqlalchemy import text

    where = text("event = 'learnt'")
    op.drop_index("one_lesson", "events")
    op.create_index(
        "one_lesson_an_item",
        "events",
        ["run", "item"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )


STEPS: Final[Sequence[Step]] = (
    ("chain", _chain),
    ("items", _items),
    ("once_each", _once_each),
    ("beside", _beside),
    ("one_lesson", _one_lesson),
)


def applied(connection: Connection) -> list[str]:
    """The names of the steps that a ledger went through, in order.

    Raises:
        LedgerError: the database is not a ledger, or of a schema that is not ours.
    """
    try:
        inspect(connection).get_columns(steps.name)
    except NoSuchTableError:
        raise LedgerError(
            "expected a ledger, came a database without its tables: name the ledger.db of a run"
        ) from None
    names = [row.name for row in connection.execute(select(steps).order_by(steps.c.number))]
    known = [name for name, _ in STEPS]
    if names != known[: len(names)]:
        strange = next((n for n in names if n not in known), names[-1])
        raise LedgerError(
            f"the ledger has the schema step '{strange}', this version knows up to "
            f"'{known[-1]}': the ledger is newer, install a newer stacksl to read it"
        )
    return names


def pending(connection: Connection) -> list[str]:
    """The names of the steps that a ledger still lacks."""
    return [name for name, _ in STEPS[len(applied(connection)) :]]


def migrate(connection: Connection) -> None:
    """Apply the steps that are missing, inside the transaction of `connection`."""
    # alembic takes a third of a second to import, and most ledgers are up to date
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    steps.create(connection, checkfirst=True)
    done = len(applied(connection))
    operations = Operations(MigrationContext.configure(connection))
    for number, (name, step) in enumerate(STEPS[done:], start=done + 1):
        step(operations)
        connection.execute(insert(steps).values(number=number, name=name))
