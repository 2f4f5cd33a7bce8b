"""What the sums of a chain refuse, whoever wrote the row."""

from __future__ import annotations

import json

import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.labels.accounts import Accounts
from stacksl.labels.rows import Entry


def entry(event: str, *, price: object = None, **payload: object) -> Entry:
    return Entry(
        0, event, round=1, item="s1", slot=0, token=1, number=1, purpose="train", labeler="x",
        price=price, payload=json.dumps(payload),  # type: ignore[arg-type]
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
