"""Answers that name no candidate: charged once, never learned, their texts beside the chain."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stacksl.errors import LabelerError, LedgerCorrupt
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.types import Label

from ..saved_arrays import edit
from .conftest import chain_of, events, lessons, sums

NONE = Answer("q0", 0, 1, None, "me", kind="none", text="a third thing", note="see page 4")


@pytest.mark.parametrize("kind", ["none", "ambiguous", "broken"])
def test_it_is_charged_once_and_never_learned(book, decision, path, kind):
    ledger = book(money=100, price=10)
    ledger.post([decision(1)])
    answer = Answer("q0", 0, 1, None, "me", 7, kind=kind)
    assert lessons(ledger.take([answer, answer])) == []
    assert lessons(ledger.take([answer])) == []
    assert sums(ledger, "asked", "spent", "spent_money", "learned") == (1, 1, 7, 0)
    assert ledger.open_purchases() == []
    assert events(ledger) == ["round", "reserved", "answered"]
    counts = {"label": 0, "none": 0, "ambiguous": 0, "broken": 0}
    assert ledger.counts_by_kind() == ledger.counts_by_kind(("train",)) == counts | {kind: 1}
    assert ledger.counts_by_kind(("audit",)) == counts
    assert (ledger.export()[0]["answer"], ledger.export()[0]["kind"]) == (None, kind)
    ledger.close()
    with Ledger.open(path) as again:
        assert again.counts_by_kind() == counts | {kind: 1}
        assert lessons(again.take([answer])) == []
        again.verify({"a file": again.head})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "maybe"}, "one of label, none, ambiguous, broken, got another"),
        ({"index": 1}, "the index .* belongs only to kind='label'"),
        ({"kind": "label"}, "the index .* should be a whole number, got None"),
        ({"kind": "broken"}, "the right text only to kind='none', got 'broken'"),
        ({"text": 5}, "the text .* should be a text or None, got an int"),
        ({"note": b"x"}, "the note .* should be a text or None, got a bytes"),
    ],
)
def test_what_does_not_belong_together_is_refused_without_a_quotation(
    book, decision, changes, words
):
    ledger = book()
    ledger.post([decision(1), decision(2)])
    with pytest.raises(LabelerError, match=words) as caught:
        ledger.take([Answer("q1", 0, 1, 0, "me"), replace(NONE, **changes)])
    assert "third thing" not in str(caught.value)
    assert "page 4" not in str(caught.value)
    assert ledger.counts_by_kind()["label"] == 0


def test_texts_lie_beside_the_chain_which_holds_their_salted_hash(book, decision, path):
    ledger = book()
    ledger.post([decision(1), decision(2), decision(3)])
    noted = Answer("q2", 0, 1, 3, "you", note="quite sure")
    ledger.take([NONE, Answer("q1", 0, 1, 1, "me"), noted], durable=False)
    assert ledger.texts() == [NONE, noted]
    ledger.verify()
    ledger.close()
    with Ledger.open(path, readonly=True) as again:
        assert again.texts() == [NONE, noted]
    chain, hashes = chain_of(path), re.findall("[0-9a-f]{64}", chain_of(path, "texts"))
    assert "third thing" not in chain
    assert "sure" not in chain
    assert len(hashes) == 2
    assert all(words in chain for words in hashes)


def test_a_text_waits_for_no_later_commit(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([NONE], durable=False)
    with Ledger.open(path, readonly=True) as other:
        assert other.texts() == [NONE]


def test_what_comes_with_more_words_is_kept_and_is_no_dispute(book, decision):
    """A row answered again with the right text filled in: nothing that was said is lost."""
    ledger = book()
    ledger.post([decision(1)])
    bare = replace(NONE, text=None, note=None)
    ledger.take([bare])
    for _ in range(2):
        assert lessons(ledger.take([bare, NONE])) == []
    assert events(ledger) == ["round", "reserved", "answered", "late"]
    assert ledger.texts() == [NONE]
    assert ledger.uncharged() == ([], [])
    assert (ledger.accounts.spent, ledger.counts_by_kind()["none"]) == (1, 1)


def test_empty_texts_are_none(book, decision):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([replace(NONE, text="", note="")])
    assert ledger.texts() == []
    assert "words" not in list(ledger.rows())[-1].payload


@pytest.mark.parametrize(
    "change",
    [
        "text = 'another'",
        "note = NULL",
        "note = 'x'",
        "words = substr(words, 2) || substr(words, 1, 1)",
    ],
)
def test_an_edited_text_is_found(book, decision, path, change):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([NONE])
    ledger.close()
    edit(path, f"UPDATE texts SET {change}")
    with (
        Ledger.open(path) as again,
        pytest.raises(LedgerCorrupt, match="row 3 .* texts holds others") as caught,
    ):
        again.verify()
    assert "third thing" not in str(caught.value)


def test_a_correction_to_a_candidate_is_learned_once(book, decision, path):
    ledger = book()
    posted = ledger.post([decision(1), decision(2)])
    ledger.take([NONE, Answer("q1", 0, 1, 1, "me")])
    assert ledger.correct("q1", 2, "me") is None  # learned before: refits use the correction
    assert ledger.correct("q0", 3, "mapped") == (posted[0], Label(3))
    assert ledger.correct("q0", 1, "mapped") is None
    again = ["corrected", "relabeled"]
    assert events(ledger)[-6:] == [*again, "corrected", "learned", *again]
    assert (*sums(ledger, "spent", "learned"), ledger.counts_by_kind()["label"]) == (2, 2, 2)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        assert len(again.accounts.learned_labels) == 2


def test_a_dispute_ends_with_the_correction_that_grants_it(book, decision):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([Answer("q0", 0, 1, 1, "me"), Answer("q0", 0, 1, 2, "me")])
    ledger.take([Answer("q0", 0, 1, 2, "me", note="really")])
    assert [each.index for each in ledger.uncharged()[0]] == [2]
    ledger.correct("q0", 3, "me")
    assert [each.index for each in ledger.uncharged()[0]] == [2]
    ledger.correct("q0", 2, "me")
    assert ledger.uncharged() == ([], [])


def test_late_answers_are_counted_as_they_were_told(book, decision):
    """Also those that agree with the accepted one: they are not paid either."""
    ledger = book()
    ledger.post([decision(1), decision(2)])
    ledger.release(ledger.open_purchases()[0], "expired")
    ledger.lease("q0")
    ledger.take([Answer("q0", 0, 2, 1, "me"), Answer("q1", 0, 1, 1, "me")])
    more = [Answer("q0", 0, 1, 1, "you"), Answer("q1", 0, 1, 2, "you"), Answer("q1", 0, 1, 3, "me")]
    told = [receipt.outcome for receipt in ledger.take(more)]
    assert told == ["late", "late", "disputed"]
    assert ledger.uncharged() == (more[2:], more[:2])
