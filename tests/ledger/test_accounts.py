"""What rows come to: accounts, receipts, and look-ups."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Entry
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord

from .conftest import sums


def entry(event: str, *, price: object = None, **payload: object) -> Entry:
    return Entry(
        0, event, round=1, surrogate="s1", slot=0, token=1, number=1, purpose="train", code="x",
        price=price, text=json.dumps(payload),  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def accounts() -> Accounts:
    accounts = Accounts(budget=5, money=100, price=10)
    accounts.apply(entry("reserved", price=10))
    return accounts


@pytest.mark.parametrize(
    ("price", "payload", "words"),
    [
        (-10, {"index": 0}, "its price is -10"),
        (11, {"index": 0}, "it cost more than was reserved"),
        (5, {"index": 0.9}, "its index is 0.9, not a whole number"),
        (5, {}, "its index is None, not a whole number"),
        (5, {"index": 0, "given": "1"}, "its given is '1', not a whole number"),
    ],
)
@pytest.mark.parametrize("released", [False, True])
def test_an_answer_has_an_index_and_a_price_that_was_reserved(
    accounts, price, payload, words, released
) -> None:
    if released:
        accounts.apply(entry("released"))
    before = (accounts.spent, accounts.spent_money)
    with pytest.raises(LedgerCorrupt, match=words):
        accounts.apply(entry("answered", price=price, **payload))
    assert (accounts.spent, accounts.spent_money) == before


@pytest.mark.parametrize("event", ["late", "corrected"])
def test_other_answers_have_an_index(accounts, event) -> None:
    accounts.apply(entry("answered", price=5, index=1))
    with pytest.raises(LedgerCorrupt, match="its index is 1.5"):
        accounts.apply(entry(event, price=0, index=1.5))


def rows(*told: tuple[str, dict[str, object]]) -> list[Entry]:
    """Rows of one item that differ from a plain purchase in what is told."""
    plain = Entry(0, "", surrogate="s1", slot=0, token=1, purpose="train", code="x", price=0)
    return [replace(plain, event=event, **more) for event, more in told]  # type: ignore[arg-type]


LABEL = {"text": '{"index":1}'}
AUDIT, OWNED, SECOND = {"purpose": "audit"}, {"purpose": "owned"}, {"slot": 1}


@pytest.mark.parametrize(
    ("before", "last", "words"),
    [
        (
            [("reserved", AUDIT), ("answered", AUDIT | LABEL)],
            ("learned", AUDIT | LABEL),
            "its answer cannot be learned",
        ),
        (
            [("reserved", {}), ("answered", {"text": '{"kind":"none"}'})],
            ("learned", LABEL),
            "its answer cannot be learned",
        ),
        (
            [
                *(("reserved", {}), ("reserved", SECOND), ("answered", LABEL), ("learned", LABEL)),
                ("answered", SECOND | LABEL),
            ],
            ("learned", SECOND | LABEL),
            "it was learned before",
        ),
        ([], ("reserved", OWNED | {"price": 1}), "an owned label costs nothing"),
        ([("reserved", AUDIT)], ("answered", LABEL), "its purchase is for 'audit'"),
        ([("reserved", {})], ("answered", {"text": '{"kind":"label"}'}), "its index is None"),
        ([("reserved", {})], ("answered", {"text": '{"kind":"dunno"}'}), "its index is None"),
        ([], ("class_added", {"number": 2, "text": '{"size":5}'}), "added last"),
        (
            [("class_added", {"number": 1, "text": '{"size":5}'})],
            ("class_added", {"number": 2, "text": '{"size":5}'}),
            "added last",
        ),
    ],
)
def test_rows_that_contradict_their_purpose_are_refused(before, last, words) -> None:
    accounts = Accounts(budget=5, money=None, price=0)
    for entry in rows(*before):
        accounts.apply(entry)
    before = repr(accounts)
    with pytest.raises(LedgerCorrupt, match=words):
        accounts.apply(rows(last)[0])
    assert repr(accounts) == before


def test_what_fails_half_way_is_taken_back_whole(book) -> None:
    ledger = book(budget=9)
    item = ledger.items.surrogates["q0"]
    one = {"payload": {"index": 1}, "surrogate": item, "slot": 0, "token": 1, "purpose": "train"}
    told = [
        *((event, one) for event in ("reserved", "answered", "learned")),
        ("budget", {"payload": {"budget": 12, "money": 4}}),
        ("class_added", {"number": 1, "payload": {"size": 5}}),
    ]
    fresh = repr(ledger.accounts)

    def record(rows) -> None:
        with ledger.later():
            for event, more in rows:
                ledger.record(event, **more)

    with pytest.raises(LedgerCorrupt):
        record([*told, told[0]])
    assert (repr(ledger.accounts), ledger.entries) == (fresh, [])
    record(told)
    assert sums(ledger, "budget", "money", "classes") == (12, 4, 5)
    assert ledger.accounts.learned_labels == {item: 1}


# Of a large pool a ledger reads the items that its rows name, and those it is asked for ---------


@pytest.fixture
def large(tmp_path: Path) -> Ledger:
    records = [ItemRecord(f"i{n}", f"text {n}", 2 + n % 3) for n in range(40)]
    ledger = Ledger.create(tmp_path / "run.db", run="r", budget=9, items=records)
    ledger.reserve(["i7", "i8"])
    ledger.forget("i8")
    ledger.close()
    return Ledger.open(tmp_path / "run.db")


def items_read(ledger: Ledger) -> int:
    return len(ledger.items.surrogates)


def test_a_ledger_reads_the_items_that_its_rows_name(large: Ledger) -> None:
    assert items_read(large) == 0
    assert [purchase.item for purchase in large.open_purchases()] == ["i7"]
    assert items_read(large) == 2, "of 40, those of its rows"
    large.verify()
    assert not any(large.has_decision(f"i{number}") for number in range(40))
    assert items_read(large) == 2
    large.reserve(["i3", "i4"])
    assert items_read(large) == 4


def test_what_is_not_there_is_looked_for_and_refused(large: Ledger) -> None:
    assert "i8" not in large.items, "it was forgotten"
    grave = next(row.item for row in large.rows() if row.erased)
    assert str(grave) in large.items
    with pytest.raises(LedgerError, match="has 40 items, 'x' is not among them"):
        large.label_of("x")


# A receipt tells of each answer what became of it, and what is to be learned ---------------------


FIRST = Answer("q0", 0, 1, 2, "me")


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
    assert [receipt.outcome for receipt in receipts] == [
        "accepted", "accepted", "repeated", "disputed", "repeated", "accepted",
    ]  # fmt: skip
    assert [receipt.example is None for receipt in receipts] == [False, False, *[True] * 4]
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
