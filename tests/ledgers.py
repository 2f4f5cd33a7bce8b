"""What tests read of the ledger of a run: rows, purchases, accounts, what people were handed."""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.api import Run
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Row
from stacksl.ledger.purchases import Handed, Purchase, Purpose


def rows_of(run: Run, *events: str) -> list[Row]:
    """The rows of the chain, or those of some events."""
    with run.ledger as ledger:
        return [row for row in ledger.rows() if not events or row.event in events]


def bought(run: Run, **wanted: object) -> list[Mapping[str, object]]:
    """The purchases, as an export has them, with these values."""
    with run.ledger as ledger:
        rows = ledger.export()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def items_bought(run: Run, purpose: Purpose | None = None) -> set[str]:
    """The items bought for one purpose, or for all."""
    with run.ledger as ledger:
        return set(ledger.bought(purpose))


def handed_rows(run: Run) -> list[Handed]:
    """The rows that people were handed."""
    with run.ledger as ledger:
        return ledger.private.handed()


def open_leases(run: Run) -> list[Purchase]:
    """The purchases that wait for an answer."""
    with run.ledger as ledger:
        return ledger.open_purchases()


def accounts_of(run: Run) -> Accounts:
    """What was spent, promised and learned."""
    with run.ledger as ledger:
        return ledger.accounts


def verify(run: Run) -> None:
    """The chain is whole."""
    with run.ledger as ledger:
        ledger.verify()
