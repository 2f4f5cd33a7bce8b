"""Budget, items, classes and epoch may change on the way; what is spent stays spent."""

from __future__ import annotations

import pytest

from stacksl.errors import LabelerError, LedgerCorrupt, LedgerError
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Entry
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.rows import read_rejected
from stacksl.types import Label

from ..saved_arrays import edit
from .conftest import charge, commits_of, lessons, stored, sums


def test_a_changed_budget_holds_from_its_row_on(book, decision, path):
    ledger = book(budget=1, price=10)
    posted = ledger.post([decision(1), decision(2)])
    assert [d.status for d in posted] == ["reserved", "refused"]
    ledger.set_budget(3, 25, {"train": 2, "rounds": 40})
    assert (ledger.accounts.budget, ledger.accounts.money, ledger.accounts.left) == (3, 25, 1)
    assert [d.status for d in ledger.post([decision(3), decision(4)])] == ["reserved", "refused"]
    ledger.set_budget(4, None, {})
    (row, _) = (row for row in ledger.rows() if row.event == "budget")
    assert dict(row.payload) == {"budget": 3, "money": 25, "train": 2, "rounds": 40}
    assert (row.item, charge(row), row.purpose) == (None, 0, None)
    ledger.close()
    with Ledger.open(path) as again:
        assert sums(again, "budget", "money", "spent", "left") == (4, None, 2, 2)
        again.verify({"a file": again.head})


def test_an_overspending_budget_row_is_found(book, decision, path):
    ledger = book()
    ledger.post([decision(1), decision(2)])
    accounts: Accounts = ledger.accounts
    for payload, words in (
        ('{"budget":1,"money":null}', "below what is spent"),
        ('{"money":null}', "its budget is None"),
        ('{"budget":9,"money":"much"}', "its money is 'much'"),
    ):
        with pytest.raises(LedgerCorrupt, match=words):
            accounts.apply(Entry(0, "budget", text=payload))
    assert ledger.accounts.budget == 3


def test_items_that_came_later_can_be_bought(book, decision, path, records):
    ledger = book()
    more = [
        ItemRecord("n1", "A new one", 2, ["yes", "no"], 1, None, None, 1),
        ItemRecord("n2", "Another", 4, None, None, "perhaps", 3, 1),
    ]
    assert ledger.add_items(more, [(1, 3, None, "an empty prompt")]) == 2
    assert ledger.post([decision(1, item="n2")])[0].asked
    row, *_ = ledger.rows()
    assert (row.event, row.item, charge(row), set(row.payload)) == ("settings", None, 0, {"digest"})
    assert ledger.add_items([]) == 0
    ledger.close()
    assert stored(path) == [*records, *more], "in order, with all that is said of them"
    with opened(path, readonly=True) as store:
        assert read_rejected(store) == [(1, 3, None, "an empty prompt")]
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        assert [p.item for p in again.open_purchases()] == ["n2"]


def test_an_id_that_is_taken_adds_nothing(book, records, path):
    ledger = book()
    new = ItemRecord("n1", "new", 4)
    rejected = [(1, 1, None, "empty")]
    with pytest.raises(LedgerError, match="UNIQUE constraint failed: items.id") as caught:
        ledger.add_items([new, ItemRecord("q3", "a secret", 4)], rejected)
    assert "secret" not in str(caught.value)
    for again in ([records[3]], [new, new]):
        with pytest.raises(LedgerError, match="something was recorded twice, nothing was written"):
            ledger.add_items(again, rejected)
    assert "n1" not in ledger.items
    assert list(ledger.rows()) == []
    ledger.verify()
    ledger.close()
    assert stored(path) == records
    with opened(path, readonly=True) as store:
        assert read_rejected(store) == []


def test_another_process_learns_of_new_items(book, decision, path):
    ledger = book()
    with Ledger.open(path) as other:
        other.add_items([ItemRecord("n1", "new", 4)])
        other.post([decision(1, item="n1")])
    ledger.post([decision(2)])
    assert [p.item for p in ledger.open_purchases()] == ["n1", "q1"]


def test_a_class_is_one_more_candidate_of_every_item(book, decision, path):
    ledger = book()
    posted = ledger.post([decision(1), decision(2)])
    ledger.take([Answer("q0", 0, 1, None, "me", kind="none", text="maybe")])
    with pytest.raises(LabelerError, match="one of its 4 candidates, got 4"):
        ledger.correct("q0", 4, "mapped")
    ledger.add_class("maybe", 5)
    assert ledger.correct("q0", 4, "mapped") == (posted[0], Label(4))
    assert len(lessons(ledger.take([Answer("q1", 0, 1, 4, "me")]))) == 1
    ledger.add_class("never", 6)
    assert ledger.own([("q5", 5)], "old")[0][0].presented == (0, 1, 2, 3, 4, 5)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        rows = [row for row in again.rows() if row.event == "class_added"]
        assert [(r.number, dict(r.payload)) for r in rows] == [
            (1, {"name": "maybe", "size": 5}),
            (2, {"name": "never", "size": 6}),
        ]
        with pytest.raises(LedgerError, match="does not follow the class that was added last"):
            again.add_class("once more", 6)


def test_terms_that_cannot_be_written_do_not_change(book, decision, monkeypatch):
    ledger = book()
    ledger.post([decision(1, "skipped")])  # waits

    def full(self) -> None:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(ledger._store), "commit", full)
        for attempt in (
            lambda: ledger.set_budget(9, 9, {}),
            lambda: ledger.add_class("more", 5),
            lambda: ledger.add_items([ItemRecord("n1", "new", 4)]),
            lambda: ledger.reserve(["q3"]),
            lambda: ledger.own([("q3", 1)], "old"),
            lambda: ledger.note_refreshed(1, {}),
        ):
            with pytest.raises(LedgerError, match="full"):
                attempt()
    names = ("budget", "money", "spent", "learned", "epoch")
    assert sums(ledger, *names) == (3, None, 0, 0, 0)
    ledger.add_class("more", 5)
    assert ledger.add_items([ItemRecord("n1", "new", 4)]) == 1
    assert len(ledger.reserve(["q3"])) == 1
    assert len(ledger.own([("q4", 4)], "old")) == 1
    ledger.note_refreshed(1, {})
    ledger.verify({"a file": ledger.head})


def test_what_is_recorded_together_is_one_transaction_or_nothing(book, decision, path):
    ledger = book(budget=9)
    ledger.post([decision(1)])

    def change(last: str) -> None:
        assert ledger.add_items([ItemRecord("n1", "new", 4)]) == 1
        ledger.add_class("maybe", 5)
        ledger.own([("n1", 4)], "old")
        ledger.set_budget(7, None, {})
        ledger.reserve([last])

    rows, commits = len(list(ledger.rows())), commits_of(ledger)
    with pytest.raises(LedgerError, match="its purchase is open"), ledger.together():
        change("q0")
    assert sums(ledger, "budget", "classes", "learned", "spent") == (9, None, 0, 1)
    assert "n1" not in ledger.items
    assert (len(list(ledger.rows())), commits) == (rows, [])
    with ledger.together():
        change("q3")
    assert len(commits) == 1
    assert sums(ledger, "budget", "classes", "learned", "spent") == (7, 5, 1, 2)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        assert "n1" in again.items
        assert [p.item for p in again.open_purchases()] == ["q0", "q3"]


def test_renewed_features_begin_an_epoch_after_the_rows_that_waited(book, decision, path):
    ledger = book()
    ledger.post([decision(1, "skipped"), decision(2)])
    ledger.note_refreshed(1, {"refit": 1})
    ledger.post([decision(3, "skipped")])  # may wait
    ledger.note_refreshed(2, {"refit": 2})
    assert [row.event for row in ledger.rows()][-3:] == ["refreshed", "round", "refreshed"]
    ledger.post([decision(4, "skipped")])
    assert ledger.accounts.epoch == 2
    rows = [row for row in ledger.rows() if row.event == "refreshed"]
    assert [(row.number, row.item, charge(row), dict(row.payload)) for row in rows] == [
        (1, None, 0, {"labels": 1, "refit": 1}),
        (2, None, 0, {"labels": 2, "refit": 2}),
    ]
    ledger.close()
    with Ledger.open(path) as again:
        assert again.accounts.epoch == 2
        again.note_refreshed(4, {})
        assert again.accounts.epoch == 3
        again.verify({"a file": again.head})


@pytest.mark.parametrize("number", [2, 0, None])
def test_an_epoch_that_does_not_follow_is_found(book, path, number):
    ledger = book()
    ledger.note_refreshed(1, {})
    ledger.close()
    edit(path, "UPDATE events SET number = ? WHERE seq = 1", number)
    with pytest.raises(LedgerCorrupt, match="its epoch does not follow the last one"):
        Ledger.open(path)
