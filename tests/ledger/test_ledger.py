"""Buying: decisions, reservations, answers, and the budget."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from stacksl.errors import LabelerError, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord
from stacksl.types import Label

from .conftest import charge, commits_of, events, lessons, sums


def test_a_reservation_is_on_disk_before_post_returns(book, decision, path):
    ledger = book()
    commits = commits_of(ledger)
    ledger.post([decision(1, "skipped")])
    with Ledger.open(path, readonly=True) as other:
        assert other.accounts.spent == 0
        assert list(other.rows()) == []  # the skip may wait
    ledger.post([decision(2)])
    with Ledger.open(path, readonly=True) as other:
        assert other.accounts.spent == 1
        assert events(other) == ["round", "round", "reserved"]  # and keeps its place
    assert len(commits) == 1


def test_answers_wait_only_where_they_can_be_had_again(book, decision, path):
    ledger = book()
    ledger.post([decision(1), decision(2)])
    commits = commits_of(ledger)
    assert len(lessons(ledger.take([Answer("q0", 0, 1, 0, "oracle")], durable=False))) == 1
    assert commits == []
    with Ledger.open(path, readonly=True) as other:
        assert len(other.open_purchases()) == 2
    assert len(lessons(ledger.take([Answer("q1", 0, 1, 0, "person")], durable=True))) == 1
    assert len(commits) == 1
    with Ledger.open(path, readonly=True) as other:
        assert other.open_purchases() == []
        assert (other.accounts.spent, len(other.accounts.learned_labels)) == (2, 2)


def test_wants_beyond_the_budget_are_refused(book, decision):
    ledger = book(budget=1)
    posted = ledger.post([decision(1), decision(2)])
    assert [d.status for d in posted] == ["reserved", "refused"]
    assert posted[1].state == decision(2).skip_state
    assert (ledger.accounts.spent, ledger.accounts.left) == (1, 0)
    assert [row.decision() for row in ledger.rows() if row.event == "round"] == posted


def test_money_is_a_budget_too(book, decision):
    ledger = book(budget=10, money=5_000_000, price=2_000_000)
    posted = ledger.post([decision(1), decision(2), decision(3)])
    assert [d.status for d in posted] == ["reserved", "reserved", "refused"]
    assert sums(ledger, "spent", "spent_money", "left") == (2, 4_000_000, 0)
    ledger.take([Answer("q0", 0, 1, 0, "cheap", 500_000)])  # cheaper than was reserved
    assert (ledger.accounts.spent_money, ledger.accounts.left) == (2_500_000, 1)
    with pytest.raises(LabelerError, match="the 2000000 micro-units reserved, got 2000001"):
        ledger.take([Answer("q1", 0, 1, 0, "dear", 2_000_001)])
    assert ledger.accounts.spent_money == 2_500_000


def test_a_decision_comes_back_bit_for_bit(book, decision, path):
    ledger = book()
    wanted = decision(1)
    ledger.post([wanted])
    ledger.close()
    with Ledger.open(path) as again:
        ((late, label),) = lessons(again.take([Answer("q0", 0, 1, 1, "me")]))
        assert late == wanted.reserved()
        assert label == Label(1)
        assert math.copysign(1, late.score) == -1


def test_a_second_answer_that_differs_is_kept_uncharged(book, decision):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([Answer("q0", 0, 1, 1, "me")])
    assert lessons(ledger.take([Answer("q0", 0, 1, 2, "me"), Answer("q0", 0, 1, 2, "me")])) == []
    assert events(ledger)[-1] == "late"
    assert events(ledger).count("late") == 1
    assert (ledger.accounts.spent, len(ledger.accounts.learned_labels)) == (1, 1)
    assert ledger.export()[0]["answer"] == 1


def test_a_late_answer_is_charged_where_budget_is_left(book, decision, slow):
    ledger = book(budget=1)
    ledger.post([decision(1)])
    slow.ask(ledger.open_purchases())
    assert ledger.release(ledger.open_purchases()[0], "expired")
    assert (ledger.accounts.spent, ledger.accounts.left) == (0, 1)
    slow.say("q0")
    assert [label for _, label in lessons(ledger.take(slow.answers()))] == [Label(0)]
    assert (ledger.accounts.spent, ledger.accounts.left) == (1, 0)
    assert sum(charge(row) for row in ledger.rows()) == 1


def test_a_late_answer_without_budget_is_kept(book, decision, slow):
    ledger = book(budget=1)
    ledger.post([decision(1)])
    slow.ask(ledger.open_purchases())
    ledger.release(ledger.open_purchases()[0], "expired")
    ledger.post([decision(2)])
    slow.say("q0")
    slow.say("q0")
    assert lessons(ledger.take(slow.answers())) == []
    assert ledger.accounts.spent == 1
    assert [r["state"] for r in ledger.export()] == ["late", "open"]
    assert events(ledger).count("late") == 1


def test_a_late_answer_takes_over_the_open_lease(book, decision, slow):
    ledger = book(budget=1)
    (posted,) = ledger.post([decision(1)])
    slow.ask(ledger.open_purchases())
    ledger.release(ledger.open_purchases()[0], "expired")
    again = ledger.lease("q0")
    assert (again.token, again.round) == (2, 1)
    slow.ask([again])
    slow.say("q0", token=1, index=3)
    assert lessons(ledger.take(slow.answers())) == [(posted, Label(3))]
    assert ledger.open_purchases() == []
    assert ledger.accounts.spent == 1
    (row,) = (row for row in ledger.rows() if row.event == "answered")
    assert (row.token, row.payload["given"]) == (2, 1)  # the lease it closes, the one it came on
    slow.say("q0", token=2, index=3)  # the same answer from the other lease buys nothing more
    assert lessons(ledger.take(slow.answers())) == []
    assert (ledger.accounts.spent, len(ledger.accounts.learned_labels)) == (1, 1)
    assert sum(charge(row) for row in ledger.rows()) == 1


def test_a_late_answer_never_waits_since_it_needs_budget(book, decision, path):
    ledger = book(budget=1)
    ledger.post([decision(1)])
    ledger.release(ledger.open_purchases()[0], "expired")
    with Ledger.open(path) as other:
        other.post([decision(2)])
    assert ledger.accounts.left == 1  # not looked yet
    assert lessons(ledger.take([Answer("q0", 0, 1, 0, "oracle")], durable=False)) == []
    assert (ledger.accounts.spent, ledger.accounts.left, events(ledger)[-1]) == (1, 0, "late")
    assert [row["state"] for row in ledger.export()] == ["late", "open"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("q1", 0, 1, 0, "x"), "never made"),
        (Answer("q0", 1, 1, 0, "x"), "never made"),
        (Answer("q0", 0, 2, 0, "x"), "never made"),
        (Answer("q0", 0, 1, 4, "x"), "one of its 4 candidates, got 4"),
        (Answer("q0", 0, 1, -1, "x"), "one of its 4 candidates, got -1"),
    ],
)
def test_a_wrong_answer_takes_nothing(book, decision, answer, words):
    ledger = book()
    ledger.post([decision(1), decision(3)])
    with pytest.raises(LabelerError, match=words):
        ledger.take([Answer("q2", 0, 1, 0, "x"), answer])
    assert len(ledger.accounts.learned_labels) == 0
    assert events(ledger) == ["round", "reserved", "round", "reserved"]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"price": -10}, "the price of .* by 'x' should be 0 micro-units or more, got -10"),
        ({"price": 0.5}, "the price of .* should be a whole number, got 0.5"),
        ({"price": float("nan")}, "the price of .* should be a whole number, got nan"),
        ({"index": 0.9}, "the index of .* should be a whole number, got 0.9"),
        ({"index": "1"}, "the index of .* should be a whole number, got '1'"),
        ({"index": None}, "the index of .* should be a whole number, got None"),
        ({"token": 1.5}, "the token of .* should be a whole number, got 1.5"),
        ({"slot": "a"}, "the slot of .* should be a whole number, got 'a'"),
        ({"item": ["q0"]}, "not among the 30 items"),
    ],
)
@pytest.mark.parametrize("stage", ["open", "released", "answered"])
def test_an_answer_comes_in_whole_numbers_and_at_no_negative_price(
    book, decision, numbers, words, stage
):
    ledger = book(money=100, price=10)
    ledger.post([decision(1), decision(2)])
    if stage == "released":
        ledger.release(ledger.open_purchases()[0], "expired")
    if stage == "answered":
        ledger.take([Answer("q0", 0, 1, 0, "x", 7)])
    before = (ledger.accounts.spent, ledger.accounts.spent_money, events(ledger))
    wrong = replace(Answer("q0", 0, 1, 0, "x"), **numbers)
    for durable in (True, False):
        with pytest.raises(LabelerError, match=words):
            ledger.take([Answer("q1", 0, 1, 0, "x"), wrong], durable=durable)
    assert (ledger.accounts.spent, ledger.accounts.spent_money, events(ledger)) == before


def test_integers_of_numpy_are_whole_numbers(book, decision):
    ledger = book(money=100, price=10)
    ledger.post([decision(1)])
    answer = Answer("q0", np.int64(0), np.int32(1), np.uint8(2), "x", np.int64(4))  # type: ignore[arg-type]
    assert [label for _, label in lessons(ledger.take([answer]))] == [Label(2)]
    assert lessons(ledger.take([answer])) == []
    assert ledger.accounts.spent_money == 4


def test_a_late_answer_dearer_than_was_reserved_is_refused(book, decision, slow):
    ledger = book(money=100, price=10)
    ledger.post([decision(1)])
    slow.ask(ledger.open_purchases())
    ledger.release(ledger.open_purchases()[0], "expired")
    slow.say("q0", price=95)
    with pytest.raises(LabelerError, match="item 'q0' by 'slow' .* at most the 10 .*, got 95"):
        ledger.take(slow.answers())
    assert (*sums(ledger, "spent", "spent_money"), events(ledger)[-1]) == (0, 0, "released")
    slow.say("q0", price=10)
    assert len(lessons(ledger.take(slow.answers()))) == 1
    assert ledger.accounts.spent_money == 10


def test_a_round_is_posted_once(book, decision, path):
    ledger = book()
    ledger.post([decision(1), decision(2, "skipped")])
    ledger.post([decision(5, "skipped")])
    ledger.post([decision(4, "skipped")])  # an order of its own is fine
    for repeated in (1, 2, 5):
        with pytest.raises(LedgerError, match="events.round.* was recorded twice"):
            ledger.post([decision(repeated, item="q9")])
    assert [row.round for row in ledger.rows() if row.event == "round"] == [1, 2, 5, 4]
    assert ledger.accounts.spent == 1


def test_what_waits_is_bounded(path, decision, records):
    many = [ItemRecord(f"q{i}", "", 2) for i in range(3000)]
    ledger = Ledger.create(path, run="r", budget=0, items=many)
    for round in range(1, 3001):
        ledger.post([decision(round, "skipped")])
    assert ledger.head.count == 2048  # two full lots of 1,024; the rest waits
    ledger.close()


def test_corrections_are_numbered(book, decision):
    ledger = book()
    ledger.post([decision(1)])
    with pytest.raises(LedgerError, match="its purchase is open"):
        ledger.correct("q0", 2, "me")
    ledger.take([Answer("q0", 0, 1, 1, "me")])
    ledger.correct("q0", 2, "you")
    ledger.correct("q0", 3, "me")
    assert [r.number for r in ledger.rows() if r.event == "corrected"] == [1, 2]
    assert ledger.export()[0]["answer"] == 3
    assert (ledger.accounts.spent, len(ledger.accounts.learned_labels)) == (1, 1)
    with pytest.raises(LabelerError, match="got 4"):
        ledger.correct("q0", 4, "me")
    with pytest.raises(LabelerError, match="a whole number, got 1.5"):
        ledger.correct("q0", 1.5, "me")  # type: ignore[arg-type]


def test_export_gives_one_row_a_purchase(book, decision, clock):
    ledger = book(money=9, price=3)
    ledger.post([decision(1), decision(2), decision(3)])
    clock.now = 2_000.0
    ledger.take([Answer("q1", 0, 1, 2, "me", 1)])
    ledger.release(ledger.open_purchases()[1], "refused")
    nothing = {"answer": None, "kind": None, "learned_at": None, "labeler": None}
    nothing |= {"purpose": "train", "slot": 0}
    assert ledger.export() == [
        {**nothing, "item": "q0", "state": "open", "price": 3},
        nothing
        | {"item": "q1", "state": "answered", "answer": 2, "kind": "label", "price": 1}
        | {"learned_at": 2000.0, "labeler": "me"},
        {**nothing, "item": "q2", "state": "released", "price": 0},
    ]


def test_a_lease_again_needs_budget_and_a_released_purchase(book, decision):
    ledger = book(budget=2)
    ledger.post([decision(1)])
    with pytest.raises(LedgerError, match="its purchase is open"):
        ledger.lease("q0")
    ledger.reserve(["q5"])
    first = ledger.open_purchases()[0]
    ledger.release(first, "refused")
    ledger.post([decision(2)])
    assert ledger.lease("q0") is None
    assert not ledger.release(first, "refused")
