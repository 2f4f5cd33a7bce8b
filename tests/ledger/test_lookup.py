"""Of a large pool a ledger reads the items that its rows name, and those it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord


@pytest.fixture
def large(tmp_path: Path) -> Ledger:
    records = [ItemRecord(f"i{n}", f"text {n}", 2 + n % 3) for n in range(40)]
    ledger = Ledger.create(tmp_path / "run.db", run="r", budget=9, items=records)
    ledger.reserve(["i7", "i8"])
    ledger.forget("i8")
    ledger.close()
    return Ledger.open(tmp_path / "run.db")


def known(ledger: Ledger) -> int:
    return len(ledger.items.surrogates)


def test_a_ledger_reads_the_items_that_its_rows_name(large: Ledger) -> None:
    assert known(large) == 0
    assert [purchase.item for purchase in large.open_purchases()] == ["i7"]
    assert known(large) == 2, "of 40, those of its rows"
    large.verify()
    assert not any(large.seen(f"i{number}") for number in range(40))
    assert known(large) == 2
    large.reserve(["i3", "i4"])
    assert known(large) == 4


def test_what_is_not_there_is_looked_for_and_refused(large: Ledger) -> None:
    assert "i8" not in large.items, "it was forgotten"
    grave = next(row.item for row in large.rows() if row.erased)
    assert str(grave) in large.items
    with pytest.raises(LedgerError, match="has 40 items, 'x' is not among them"):
        large.label_of("x")
    assert large.items.largest == 4
