"""What was said, as the report counts it: kinds, agreement, costs, changes, the audit's answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stacksl.items import Decision
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, ItemRecord
from stacksl.report.asking import Agreement, BudgetChange, Cost
from stacksl.runs.audit import judge_audit
from stacksl.runs.responses import asking_of, audit_of

from .test_audit import policies

PRICE = 2_500_000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    items = [ItemRecord(f"item-{n}", f"prompt {n}", 3) for n in range(12)]
    made = Ledger.create(
        tmp_path / "ledger.db", run="r", budget=10, price=PRICE, money=10 * PRICE, items=items
    )
    with made:
        yield made


def want(round: int) -> Decision:
    """A round that wants the label of the item of its number."""
    nan = float("nan")
    everything = (0, 1, 2)
    return Decision(
        round, f"item-{round}", everything, 0, nan, nan, "gate", nan, nan, nan, nan, nan, (), (),
        "wanted",
    )  # fmt: skip


def give(ledger: Ledger, item: str, said: object, who: str = "ben", slot: int = 0) -> None:
    """An answer to the open lease of a slot: a candidate's index, or another word."""
    index = said if isinstance(said, int) else None
    word = "label" if isinstance(said, int) else said
    ledger.take([Answer(item, slot, 1, index, who, PRICE, said=word)])  # type: ignore[arg-type]


def buy(ledger: Ledger, round: int, said: object, slots: Mapping[str, int] | None = None) -> None:
    ledger.post([want(round)], slots)
    give(ledger, f"item-{round}", said)


def test_nothing_was_said_yet(ledger: Ledger) -> None:
    found = asking_of(ledger, priced=True)
    assert found.answers == 0
    assert (found.agreement, found.costs, found.changes) == (None, (), ())


def test_kinds_costs_and_disputes_are_counted(ledger: Ledger) -> None:
    for round, said in ((1, 0), (2, "none"), (3, "ambiguous"), (4, "broken"), (5, 2)):
        buy(ledger, round, said)
    ledger.reserve(["item-9"], "audit")
    give(ledger, "item-9", 1, who="anna")
    give(ledger, "item-1", 1, who="anna")  # contradicts what ben said
    ledger.own([("item-11", 0)], "older work")
    found = asking_of(ledger, priced=True)
    assert (found.labels, found.none_of_these, found.ambiguous, found.broken) == (3, 1, 1, 1)
    assert found.disputes == 1
    assert found.costs == (Cost("anna", 1, PRICE), Cost("ben", 5, 5 * PRICE))
    assert asking_of(ledger, priced=False).costs == (Cost("anna", 1), Cost("ben", 5))


def test_two_annotators_are_compared_over_all_that_can_be_said(ledger: Ledger) -> None:
    second = {1: 0, 2: "none", 3: 1}
    for round, said in ((1, 0), (2, "none"), (3, 2)):
        buy(ledger, round, said, {f"item-{round}": 2})
        give(ledger, f"item-{round}", second[round], who="anna", slot=1)
    found = asking_of(ledger, priced=False).agreement
    by_chance = (1 * 1 + 1 * 1) / 9
    assert found == Agreement(3, 2, (2 / 3 - by_chance) / (1 - by_chance))


def test_changes_of_the_budget_stand_where_they_took_effect(ledger: Ledger) -> None:
    buy(ledger, 1, 0)
    ledger.set_budget(8, 8 * PRICE, {})
    buy(ledger, 2, 0)
    ledger.set_budget(11, 11 * PRICE, {})
    assert asking_of(ledger, priced=True).changes == (
        BudgetChange(1, 8, 8 * PRICE),
        BudgetChange(2, 11, 11 * PRICE),
    )


def test_the_audit_is_judged_by_its_own_answers(ledger: Ledger) -> None:
    assert audit_of(ledger, []) is None
    ids = [f"item-{n}" for n in range(12)]
    buy(ledger, 1, 2)
    ledger.reserve([ids[4], ids[0], ids[3], ids[2]], "audit")
    for item, said in ((ids[0], 0), (ids[4], 1), (ids[2], "none")):
        give(ledger, item, said)
    audit = audit_of(ledger, [4, 0, 3, 2], passed_over=0.25)
    assert audit is not None
    assert audit.labels(ids) == [(4, 1), (0, 0)]
    asked = policies(0, 0, 0, 0, 0)
    found = judge_audit(
        {ids[row]: asked[ids[row]] for row in audit.rows}, audit.answers, passed_over=0.25
    )
    assert (found.n, found.correct, found.none_of_these, found.unknown) == (4, 1, 1, 1)
    assert found.passed_over == 0.25


def test_a_corrected_audit_answer_counts_as_corrected(ledger: Ledger) -> None:
    ledger.reserve(["item-0"], "audit")
    give(ledger, "item-0", 1)
    ledger.correct("item-0", 2, "anna")
    audit = audit_of(ledger, [0])
    assert audit is not None
    assert audit.answers == {"item-0": ("label", 2)}
