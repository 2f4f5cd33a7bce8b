"""What the sums of a chain refuse, whoever wrote the row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Entry


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


@pytest.mark.parametrize("price", [-1, 0.5])
def test_a_reservation_has_a_price(price) -> None:
    accounts = Accounts(budget=5, money=100, price=10)
    with pytest.raises(LedgerCorrupt, match=f"its price is {price}, not 0 micro-units or more"):
        accounts.apply(entry("reserved", price=price))
    assert (accounts.spent, accounts.spent_money) == (0, 0)


@pytest.mark.parametrize(
    ("price", "payload", "words"),
    [
        (-10, {"index": 0}, "its price is -10"),
        (2.5, {"index": 0}, "its price is 2.5"),
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
            ("learnt", AUDIT | LABEL),
            "its answer cannot be learnt",
        ),
        (
            [("reserved", {}), ("answered", {"text": '{"said":"none"}'})],
            ("learnt", LABEL),
            "its answer cannot be learnt",
        ),
        (
            [
                *(("reserved", {}), ("reserved", SECOND), ("answered", LABEL), ("learnt", LABEL)),
                ("answered", SECOND | LABEL),
            ],
            ("learnt", SECOND | LABEL),
            "it was learnt before",
        ),
        ([], ("reserved", OWNED | {"price": 1}), "an owned label costs nothing"),
        ([("reserved", AUDIT)], ("answered", LABEL), "its purchase is for 'audit'"),
        ([("reserved", {})], ("answered", {"text": '{"said":"label"}'}), "its index is None"),
        ([("reserved", {})], ("answered", {"text": '{"said":"dunno"}'}), "its index is None"),
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
    sums = (accounts.spent, accounts.asked, accounts.learnt, accounts.classes)
    with pytest.raises(LedgerCorrupt, match=words):
        accounts.apply(rows(last)[0])
    assert (accounts.spent, accounts.asked, accounts.learnt, accounts.classes) == sums


def test_what_fails_half_way_is_taken_back_whole(book) -> None:
    ledger = book(budget=9)
    item = ledger.items.surrogates["q0"]
    one = {"payload": {"index": 1}, "surrogate": item, "slot": 0, "token": 1, "purpose": "train"}
    told = [
        *((event, one) for event in ("reserved", "answered", "learnt")),
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
    accounts = ledger.accounts
    assert (accounts.budget, accounts.money, accounts.classes, accounts.taught) == (
        12,
        4,
        5,
        {item: 1},
    )
