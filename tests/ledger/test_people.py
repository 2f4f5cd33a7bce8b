"""What people were handed, and their names, beside the chain."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed

from .conftest import chain_of

ROWS = [
    Handed("k7f3-q", "q0", 0, 1, "Ann Example", 1, (2, 0, 3, 1)),
    Handed("k7f4-r", "q1", 0, 1, "Ben Example", 1, (0, 1, 2, 3)),
]


@pytest.fixture
def ledger(book, decision):
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2), decision(3)])
    return ledger


def test_what_was_handed_out_comes_back(ledger, path):
    ledger.hand_out(ROWS)
    with Ledger.open(path, readonly=True) as other:
        assert other.private.handed() == ROWS, "it is on disk at once"
    third = Handed("a-0", "q2", 0, 1, "Ann Example", 2, (3,))
    ledger.hand_out([third])
    ledger.hand_out([])
    assert ledger.private.handed() == [*ROWS, third]
    assert [ledger.private.handed(key) for key in ("k7f4-r", "k1")] == [[ROWS[1]], []]
    assert [row.event for row in ledger.rows()] == ["round", "reserved"] * 3 + ["stored"] * 2
    ledger.close()
    with Ledger.open(path, readonly=True) as again:
        assert again.private.handed() == [*ROWS, third]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"key": "k7f3-q"}, "handed.key.*recorded twice"), ({"item": "stranger"}, "not among them")],
)
def test_a_row_that_cannot_be_is_refused_with_all_others(ledger, changes, words):
    ledger.hand_out(ROWS[:1])
    with pytest.raises(LedgerError, match=words):
        ledger.hand_out([Handed("new", "q2", 0, 1, "Cy", 2, (0,)), replace(ROWS[1], **changes)])
    assert ledger.private.handed() == ROWS[:1]
    with pytest.raises(LedgerError, match="handed.key.*recorded twice"):
        ledger.hand_out([Handed("new", f"q{n}", 0, 1, "Cy", 2, (0,)) for n in (1, 2)])
    ledger.hand_out([Handed("new", "q2", 0, 1, "Cy", 2, (0,))])
    assert [row.annotator for row in ledger.private.handed()] == ["Ann Example", "Cy"]


def test_the_chain_holds_codes_of_people(ledger, path):
    ledger.hand_out(ROWS)
    ledger.take([Answer("q0", 0, 1, 1, "Ann Example"), Answer("q1", 0, 1, 2, "Ben Example")])
    ledger.take([Answer("q0", 0, 1, 2, "Ann Example")])
    ledger.correct("q1", 3, "Ann Example")
    ledger.take([Answer("q2", 0, 1, 2, "oracle")])
    told = ["Ann Example"] * 2 + ["Ben Example"] * 2 + ["Ann Example"]
    assert [row.labeler for row in ledger.rows() if row.labeler][:5] == told
    assert [row["labeler"] for row in ledger.export()] == ["Ann Example", "Ben Example", "oracle"]
    assert [each.labeler for each in ledger.uncharged()[0]] == ["Ann Example"]
    ledger.close()
    chain, codes = chain_of(path), re.findall(r"person:\w+", chain_of(path, "names"))
    assert "Example" not in chain
    assert len(set(codes)) == 2
    assert all(code in chain for code in codes)
    with Ledger.open(path) as again:
        again.verify()
        assert next(row["labeler"] for row in again.export()) == "Ann Example"


def test_another_process_knows_the_names(ledger, path, decision):
    with Ledger.open(path) as other:
        other.hand_out(ROWS)
        other.post([decision(4)])
    ledger.take([Answer("q0", 0, 1, 1, "Ann Example")])
    assert ledger.export()[0]["labeler"] == "Ann Example"
    assert "Example" not in chain_of(path)
