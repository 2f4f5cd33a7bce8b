"""Renewed features begin an epoch."""

from __future__ import annotations

import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.ledger import Ledger

from ..charges import charge
from ..saved_arrays import edit


def test_renewed_features_begin_an_epoch(book, decision) -> None:
    ledger = book()
    ledger.post([decision(1, "skipped"), decision(2)])
    ledger.note_refreshed(1, {"refit": 1})
    ledger.post([decision(3)])
    ledger.post([decision(4, "skipped")])
    ledger.note_refreshed(2, {"refit": 2})
    ledger.post([decision(5, "skipped")])
    assert ledger.accounts.epoch == 2
    rows = [row for row in ledger.rows() if row.event == "refreshed"]
    assert [(row.number, row.item, charge(row), dict(row.payload)) for row in rows] == [
        (1, None, 0, {"labels": 1, "refit": 1}),
        (2, None, 0, {"labels": 2, "refit": 2}),
    ]
    ledger.verify({"a file": ledger.head})


def test_the_epoch_is_counted_again_when_the_ledger_is_opened(book, decision, path) -> None:
    ledger = book()
    ledger.note_refreshed(3, {})
    ledger.close()
    with Ledger.open(path) as again:
        assert again.accounts.epoch == 1
        again.post([decision(1)])
        again.note_refreshed(4, {})
        assert again.accounts.epoch == 2


def test_what_waits_in_memory_is_written_before_the_epoch_begins(book, decision) -> None:
    ledger = book()
    ledger.post([decision(1, "skipped")])  # may wait
    ledger.note_refreshed(0, {})
    assert [row.event for row in ledger.rows()] == ["round", "refreshed"]


@pytest.mark.parametrize("number", [2, 0, None])
def test_an_epoch_that_does_not_follow_is_found(book, path, number) -> None:
    ledger = book()
    ledger.note_refreshed(1, {})
    ledger.close()
    edit(path, "UPDATE events SET number = ? WHERE seq = 1", number)
    with pytest.raises(LedgerCorrupt, match="its epoch does not follow the last one"):
        Ledger.open(path)
