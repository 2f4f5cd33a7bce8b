"""What was said, as the report counts it: kinds, agreement, costs, changes of the budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord
from stacksl.report.quality import Agreement, BudgetChange, Cost
from stacksl.runs.finish.rounds import Rounds, asking_of
from stacksl.types import Decision

PRICE = 2_500_000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    items = [ItemRecord(f"item-{n}", f"prompt {n}", 3) for n in range(12)]
    made = Ledger.create(
        tmp_path / "run.db", run="r", budget=10, price=PRICE, money=10 * PRICE, items=items
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
    place = {f"item-{n}": n for n in range(12)}
    changes = Rounds.read(ledger.rows(), place).changes
    assert asking_of(ledger, changes, priced=True).changes == (
        BudgetChange(1, 8, 8 * PRICE),
        BudgetChange(2, 11, 11 * PRICE),
    )
