"""Items of a ledger are looked up as they are asked for; where many are, all are read at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord
from stacksl.ledger.store import items as register


@pytest.fixture
def large(tmp_path: Path) -> Ledger:
    records = [ItemRecord(f"i{n}", f"text {n}", 2 + n % 3) for n in range(40)]
    ledger = Ledger.create(tmp_path / "run.db", run="r", budget=9, items=records)
    ledger.reserve(["i7", "i8"])
    ledger.forget("i8", {})
    ledger.close()
    return Ledger.open(tmp_path / "run.db")


def known(ledger: Ledger) -> int:
    return len(ledger._journal.items._items)


def test_a_ledger_reads_the_items_that_its_rows_name(large: Ledger) -> None:
    assert [purchase.item for purchase in large.open_purchases()] == ["i7"]
    assert known(large) == 1, "of 40, that of the open purchase"
    large.verify()
    assert known(large) == 2


def test_what_is_not_there_is_looked_for_and_refused(large: Ledger) -> None:
    assert "i8" not in large._journal.items, "it was forgotten"
    grave = next(row.item for row in large.rows() if row.erased)
    assert str(grave) in large._journal.items
    with pytest.raises(LedgerError, match="has 40 items, 'x' is not among them"):
        large.seen("x")
    assert large._journal.items.largest == 4


def test_many_items_are_read_at_once(large: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "_FEW", 5)
    for number in range(5):
        assert not large.seen(f"i{number}")
    assert known(large) == 5
    large.seen("i20")
    assert known(large) == 40
    assert "x" not in large._journal.items
