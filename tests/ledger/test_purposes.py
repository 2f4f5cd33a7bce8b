"""Audits, owned labels and second slots: what each counts, and what is learned of it."""

from __future__ import annotations

import math

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.events import owned_decision
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.types import Label

from .conftest import chain_of, charge, events, lessons, sums


def test_an_audit_is_charged_and_never_asked_or_learned(book, decision, path):
    ledger = book(budget=5, money=50, price=10)
    leases = ledger.reserve(["q7", "q3"])
    assert [(p.item, p.slot, p.token, p.round, p.purpose, p.price) for p in leases] == [
        ("q7", 0, 1, 0, "audit", 10),
        ("q3", 0, 1, 0, "audit", 10),
    ]
    assert ledger.open_purchases() == leases
    assert sums(ledger, "asked", "spent", "spent_money", "left") == (0, 2, 20, 3)
    ledger.post([decision(1)])
    assert (ledger.accounts.asked, ledger.accounts.spent) == (1, 3)
    said = [Answer("q3", 0, 1, 2, "me", 4), Answer("q7", 0, 1, None, "me", kind="ambiguous")]
    assert lessons(ledger.take(said)) == []
    assert sums(ledger, "asked", "spent", "spent_money", "learned") == (1, 3, 14, 0)
    assert ledger.audited() == {"q3": said[0].word, "q7": said[1].word}
    assert not ledger.has_decision("q3")
    assert [row.round for row in ledger.rows() if row.purpose == "audit"] == [None] * 4
    assert sum(charge(row) for row in ledger.rows()) == ledger.accounts.spent
    assert ledger.counts_by_kind(("audit",)) == {"label": 1, "none": 0, "ambiguous": 1, "broken": 0}
    ledger.correct("q3", 1, "me")
    assert ledger.audited()["q3"] == 1
    assert len(ledger.accounts.learned_labels) == 0
    ledger.close()
    with Ledger.open(path) as again:
        assert (*sums(again, "asked", "spent"), again.audited()["q3"]) == (1, 3, 1)
        again.verify({"a file": again.head})


def test_an_audited_item_is_not_bought_and_a_bought_one_not_audited(book, decision):
    ledger = book(budget=9)
    ledger.post([decision(1)])
    with pytest.raises(LedgerError, match="its purchase is open"):
        ledger.reserve(["q5", "q0"])
    assert ledger.accounts.spent == 1
    ledger.reserve(["q5"])
    with pytest.raises(LedgerError, match="its purchase is open"):
        ledger.post([decision(6)])


def test_owned_labels_cost_nothing_and_are_learned(book, decision, path):
    ledger = book(budget=1, money=10, price=10)
    lessons = ledger.own([("q4", 3), ("q2", 0)], "labels from May.csv")
    assert [(d.item, label) for d, label in lessons] == [("q4", Label(3)), ("q2", Label(0))]
    first = lessons[0][0]
    assert (first.round, first.choice, first.presented) == (0, -1, (0, 1, 2, 3))
    assert math.isnan(first.statistic)
    assert sums(ledger, "asked", "spent", "spent_money", "learned") == (0, 0, 0, 2)
    assert ledger.accounts.left == 1
    assert events(ledger) == ["reserved", "answered", "learned"] * 2
    assert sum(charge(row) for row in ledger.rows()) == 0
    (row,) = (r for r in ledger.rows() if r.event == "answered" and r.item == "q4")
    assert repr(row.decision()) == repr(owned_decision("q4", 4))  # NaN is not equal to itself
    assert {row["labeler"] for row in ledger.export()} == {"labels from May.csv"}
    assert ledger.counts_by_kind() == dict.fromkeys(["label", "none", "ambiguous", "broken"], 0)
    assert ledger.counts_by_kind(("owned",))["label"] == 2
    assert ledger.post([decision(1)])[0].asked
    ledger.close()
    assert "May" not in chain_of(path)
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        assert (len(again.accounts.learned_labels), again.accounts.spent) == (2, 1)


def test_an_owned_item_is_owned_once_and_not_bought(book, decision):
    ledger = book()
    for labels, words in (
        ([("q1", 0), ("q1", 0)], "its purchase is answered"),
        ([("q1", 0), ("stranger", 0)], "'stranger' is not among them"),
    ):
        with pytest.raises(LedgerError, match=words):
            ledger.own(labels, "a")
    assert (len(ledger.accounts.learned_labels), events(ledger)) == (0, [])
    ledger.own([("q1", 0)], "a")
    with pytest.raises(LedgerError, match="its purchase is answered"):
        ledger.post([decision(2)])
    with pytest.raises(LedgerError, match="its purchase is answered"):
        ledger.reserve(["q1"])
    assert ledger.own([], "b") == []


def test_an_item_that_was_skipped_can_be_owned(book, decision):
    ledger = book()
    ledger.post([decision(1, "skipped")])
    assert [label for _, label in ledger.own([("q0", 1)], "a")] == [Label(1)]
    ledger.verify()


def test_of_two_slots_each_is_charged_and_the_first_label_learned(book, decision):
    ledger = book(budget=6)
    posted = ledger.post([decision(1), decision(2), decision(3)], {"q0": 2, "q2": 2})
    assert [(p.item, p.slot) for p in ledger.open_purchases()] == [
        ("q0", 0), ("q1", 0), ("q2", 0), ("q0", 1), ("q2", 1),
    ]  # fmt: skip
    assert (ledger.accounts.asked, ledger.accounts.spent, ledger.accounts.doubled) == (5, 5, 2)
    assert lessons(ledger.take([Answer("q0", 1, 1, 3, "ben")])) == [(posted[0], Label(3))]
    assert lessons(ledger.take([Answer("q0", 0, 1, 1, "anna")])) == []
    said = [Answer("q2", 0, 1, None, "anna", kind="none"), Answer("q2", 1, 1, 0, "ben")]
    assert lessons(ledger.take(said)) == [(posted[2], Label(0))]
    assert (ledger.accounts.asked, len(ledger.accounts.learned_labels)) == (5, 2)
    assert ledger.agreement() == [
        (Answer("q0", 0, 1, 1, "anna"), Answer("q0", 1, 1, 3, "ben")),
        (said[0], said[1]),
    ]
    ledger.correct("q0", 3, "anna")
    assert ledger.agreement()[0][0].index == 1  # as it came
    ledger.verify({"a file": ledger.head})


@pytest.mark.parametrize(("budget", "money"), [(2, None), (9, 29)])
def test_an_audit_fits_in_whole_or_not_at_all(book, budget, money):
    ledger = book(budget=budget, money=money, price=10)
    with pytest.raises(LedgerError, match="the budget is spent"):
        ledger.reserve(["q1", "q2", "q3"])
    assert (ledger.accounts.spent, ledger.open_purchases(), events(ledger)) == (0, [], [])
    assert len(ledger.reserve(["q1", "q2"])) == 2
    with pytest.raises(LedgerError, match="the budget is spent"):
        ledger.reserve(["q3"])


def test_a_lease_of_an_audit_is_given_up_and_taken_again(book):
    ledger = book()
    (lease,) = ledger.reserve(["q5"])
    assert ledger.release(lease, "refused")
    assert (ledger.accounts.spent, ledger.accounts.left) == (0, 3)
    again = ledger.lease("q5")
    assert (again.purpose, again.round, again.token) == ("audit", 0, 2)
    ledger.take([Answer("q5", 0, 1, 2, "me")])
    assert ledger.audited()["q5"] == 2
    assert sums(ledger, "spent", "asked", "learned") == (1, 0, 0)
