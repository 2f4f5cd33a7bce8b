"""Corrections, and answers that are held, set aside or kept: what is learned, and what measures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stacksl.errors import LabelerError, LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer

from .conftest import lessons


@pytest.fixture
def ledger(book, decision, path) -> Iterator[Ledger]:
    """Anna's labels of q0 and q1, Ben's of q2; the audit's of q3 by Anna and q4 by Ben."""
    made = book(budget=9)
    made.reserve(["q3", "q4"])
    made.post([decision(n) for n in (1, 2, 3)])
    said = [("q0", 1, "anna"), ("q1", 0, "anna"), ("q2", 2, "ben")]
    said += [("q3", 1, "anna"), ("q4", 0, "ben")]
    made.take([Answer(item, 0, 1, index, who) for item, index, who in said])
    yield made
    spent = made.accounts.spent, made.accounts.spent_money
    made.close()
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        assert (again.accounts.spent, again.accounts.spent_money) == spent


def labels(ledger: Ledger) -> dict[str, int | None]:
    """What refits learn, by the rows alone, as a replay reads them."""
    found: dict[str, int | None] = {}
    for row in ledger.rows():
        if row.event in ("learned", "relabeled"):
            found[str(row.item)] = row.payload.get("index")
    return found


def audited(ledger: Ledger, **how: bool) -> dict[str, object]:
    return ledger.audited(**how)


def test_a_label_is_corrected_from_and_to_every_kind(ledger: Ledger) -> None:
    for said in ("none", "ambiguous", "broken"):
        ledger.correct("q0", None, "anna", kind=said)  # type: ignore[arg-type]
        assert labels(ledger)["q0"] is None
        assert ledger.counts_by_kind(("train",))[said] == 1
        ledger.correct("q0", 3, "anna")
        assert labels(ledger)["q0"] == ledger.label_of("q0") == 3
    assert (ledger.accounts.spent, len(ledger.accounts.learned_labels)) == (5, 3)
    with pytest.raises(LabelerError, match="belongs only to kind='label'"):
        ledger.correct("q0", 1, "anna", kind="none")


def test_another_slot_takes_the_place_of_a_withdrawn_label(ledger: Ledger) -> None:
    ledger.reserve(["q0"], "train")
    ledger.take([Answer("q0", 1, 1, 3, "ben")])
    ledger.correct("q0", None, "anna", kind="broken")
    assert labels(ledger)["q0"] == 3
    ledger.correct("q0", 1, "anna")
    assert labels(ledger)["q0"] == 1


def test_an_audit_is_corrected_until_it_is_shown(ledger: Ledger) -> None:
    ledger.correct("q3", 2, "anna")
    assert audited(ledger) == {"q3": 2, "q4": 0}
    ledger.show_audit()
    ledger.show_audit()
    assert [row.event for row in ledger.rows()].count("shown") == 1
    ledger.correct("q3", 0, "anna")
    ledger.correct("q4", None, "ben", kind="none")
    assert audited(ledger) == {"q3": 2, "q4": 0}
    assert audited(ledger, now=True) == {"q3": 0, "q4": "none"}


def test_agreement_is_of_the_first_two_answers_of_a_row_as_they_came(ledger: Ledger) -> None:
    """A third is asked for where two differ, and would make them agree less than people do."""
    ledger.reserve(["q0"], "train")
    ledger.take([Answer("q0", 1, 1, 3, "ben")])
    ledger.correct("q0", 3, "anna")
    ledger.reserve(["q0"], "train")
    ledger.take([Answer("q0", 2, 1, 3, "carl")])
    assert [(a.word, b.word) for a, b in ledger.agreement()] == [(1, 3)]
    assert [(a.labeler, b.labeler) for a, b in ledger.agreement()] == [("anna", "ben")]
    ledger.set_standing("set_aside", "anna")
    assert ledger.agreement() == [], "the other two were not asked independently"


def test_answers_of_one_set_aside_are_paid_and_learned_when_kept(ledger, decision) -> None:
    ledger.set_standing("set_aside", "anna")
    ledger.post([decision(6, item="q5")])
    assert lessons(ledger.take([Answer("q5", 0, 1, 1, "anna")])) == []
    assert ledger.accounts.spent == 6
    ledger.set_standing("kept", "anna")
    assert labels(ledger) == {"q0": 1, "q1": 0, "q2": 2, "q5": 1}
    assert ledger.standing["anna"] == "kept"


def test_who_is_set_aside_teaches_nothing_until_kept(ledger: Ledger) -> None:
    ledger.reserve(["q1"], "train")
    ledger.take([Answer("q1", 1, 1, 3, "ben")])
    ledger.set_standing("set_aside", "anna")
    assert labels(ledger) == {"q0": None, "q1": 3, "q2": 2}
    assert ledger.set_aside == {"anna"}
    assert audited(ledger) == {"q4": 0}
    ledger.reserve(["q0"], "train")
    ledger.reserve(["q3"], "further")
    ledger.take([Answer("q0", 1, 1, 2, "ben"), Answer("q3", 1, 1, 3, "ben")])
    assert labels(ledger)["q0"] == 2
    assert audited(ledger) == {"q3": 3, "q4": 0}
    assert ledger.bought("audit") == ["q3", "q4"]
    ledger.set_standing("kept", "anna")
    assert labels(ledger) == {"q0": 1, "q1": 0, "q2": 2}
    assert audited(ledger) == {"q3": 1, "q4": 0}


def test_who_is_set_aside_later_still_measures_the_audit_that_was_shown(ledger: Ledger) -> None:
    ledger.show_audit()
    ledger.set_standing("set_aside", "anna")
    assert audited(ledger) == {"q3": 1, "q4": 0}
    assert audited(ledger, now=True) == {"q4": 0}
    with pytest.raises(LedgerError, match="a further slot belongs"):
        ledger.reserve(["q3"], "train")


def test_a_forgotten_item_is_not_learned_again(ledger: Ledger) -> None:
    ledger.forget("q0")
    ledger.set_standing("set_aside", "anna")
    assert [row.event for row in ledger.rows()][-2:] == ["set_aside", "relabeled"]


def test_a_label_that_the_answers_do_not_give_is_found(ledger: Ledger) -> None:
    item = ledger.items.surrogates["q0"]
    with pytest.raises(LedgerCorrupt, match="do not give that label"), ledger.together():
        ledger.record("relabeled", {"index": 3}, surrogate=item)
    assert ledger.label_of("q0") == 1


def test_an_answer_that_named_an_added_class_measures_an_audit_that_was_shown(book) -> None:
    ledger = book(budget=9)
    ledger.reserve(["q3"])
    ledger.take([Answer("q3", 0, 1, None, "anna", kind="none", text="more")])
    ledger.show_audit()
    ledger.correct("q3", 2, "anna", named=True)
    assert audited(ledger) == audited(ledger, now=True) == {"q3": 2}
