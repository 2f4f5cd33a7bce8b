"""A receipt tells of each answer what became of it, and what is to be learnt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed

FIRST = Answer("q0", 0, 1, 2, "me")


def outcomes(receipts):
    return [receipt.outcome for receipt in receipts]


def test_receipts_come_in_the_order_of_the_answers(book, decision):
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2)])
    ledger.reserve(["q7"])
    given = [
        Answer("q1", 0, 1, 0, "me"),
        FIRST,
        FIRST,
        replace(FIRST, index=1),
        replace(FIRST, note="sure"),
        Answer("q7", 0, 1, 3, "me"),
    ]
    receipts = ledger.take(given)
    assert [receipt.answer for receipt in receipts] == given
    assert outcomes(receipts) == [
        "accepted", "accepted", "repeated", "disputed", "repeated", "accepted",
    ]  # fmt: skip
    assert [receipt.lesson is None for receipt in receipts] == [False, False, *[True] * 4]
    assert ledger.take([]) == []


def test_items_with_a_second_slot_are_counted_once(book, decision, path):
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2)], {"q0": 3, "q1": 2})
    assert ledger.accounts.doubled == 2
    lease = next(p for p in ledger.open_purchases() if p.slot == 1)
    ledger.release(lease, "refused")
    ledger.lease(lease.item, slot=1)
    assert ledger.accounts.doubled == 2
    ledger.close()
    with Ledger.open(path, readonly=True) as again:
        assert again.accounts.doubled == 2


def test_rows_that_were_handed_out_are_found_by_their_keys(book, decision):
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2), decision(3)])
    rows = [Handed(f"k{9 - n}", f"q{n}", 0, 1, "Ann", 1, (0, 1, 2, 3)) for n in range(3)]
    ledger.hand_out(rows)
    assert ledger.private.handed() == rows
    assert ledger.private.handed(["k7", "k9", "k1", "k9"]) == [rows[0], rows[2]]
    assert ledger.private.handed([f"k{n}" for n in range(2_000)]) == rows
    assert ledger.private.handed([]) == []
    with pytest.raises(LedgerError, match="'k8' was handed out before"):
        ledger.hand_out([replace(rows[1], key="k8")])
