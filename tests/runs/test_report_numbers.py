"""The numbers of one report agree, in runs of all kinds: uses of labels, roles of items."""

from __future__ import annotations

import csv
import random
from pathlib import Path

from stacksl.api import Run, run
from stacksl.report import render
from stacksl.report.facts import Facts
from stacksl.runs.changes.forgetting import forget

from ..ledgers import bought
from .changing_cases import POOL, audits, finished, labeled
from .conftest import CLASSES, class_items
from .people_cases import Row, answer_all, begin, facts_of, play, truth, wrong
from .test_table_right import expect_counts, sources

TWO = {"annotators": "anna,ben", "sheets.overlap": 6}


def expect_agreement(done: Run) -> Facts:
    """Each label spent has one use and each item one role, and both are those of the ledger."""
    facts = facts_of(done)
    budget, paid = facts.budget, [row for row in bought(done) if row["purpose"] != "owned"]
    charged = [row for row in paid if row["state"] in ("open", "answered")]
    parts = [budget.answered, budget.unlearned, budget.unnamed, budget.aside, budget.open]
    assert min(parts) >= 0
    assert sum(parts) == budget.asked
    assert sum(parts) + budget.audit == budget.spent == len(charged)
    assert budget.spent <= budget.labels
    assert budget.audit == sum(row["purpose"] == "audit" for row in charged)
    assert facts.asking.answers == sum(row["state"] == "answered" for row in charged)
    assert sum(cost.answers for cost in facts.asking.costs) == facts.asking.answers
    roles = {row.name: int(row.value) for row in facts.data.roles}
    assert sum(roles.values()) == facts.data.items
    owned = roles.get("with a label owned before", 0)
    assert sum(row.bought for row in facts.classes) == budget.answered + owned
    page = render(facts)
    for number in (budget.spent, facts.data.items):
        assert f"<dt>{number:,}</dt>" in page
    return facts


@POOL
def test_an_oracle_s(tmp_path: Path, mode: str) -> None:
    expect_agreement(finished(tmp_path, mode=mode, audit=6, budget=40))


@POOL
def test_people_s_with_second_answers_and_some_that_name_nothing(tmp_path: Path, mode: str) -> None:
    rng = random.Random(3)

    def say(row: Row) -> str:
        return rng.choice([truth(row), truth(row), wrong(row), "none", "ambiguous"])

    done = play(begin(tmp_path, mode=mode, audit=5, budget=36, price="2", **TWO), say)
    facts = expect_agreement(done)
    assert min(facts.budget.unlearned, facts.budget.unnamed, facts.budget.audit) > 0
    (items,) = (row for row in facts.data.roles if row.name == "asked for, to learn from")
    assert int(items.value) == facts.budget.asked - facts.budget.unlearned, "as the headline says"
    with done.ledger as ledger:
        differ = sum(one.word != other.word for one, other in ledger.agreement())
    assert facts.asking.disputed == differ > 0, "two people answered each of these"
    (table, words), found = expect_counts(done), sources(done)
    assert found["human: none"] + found["human: ambiguous"] > 0
    assert table.people + table.model + found["human: none"] + found["human: ambiguous"] == 60
    assert "agree with the annotators (95% interval " in words
    assert ", counting people's labels as agreeing." in words
    assert f"stacksl label {done.path}" in (done.path / "report.html").read_text("utf-8")


def test_answers_of_somebody_set_aside(tmp_path: Path) -> None:
    waiting = begin(tmp_path, budget=40, audit=6, **TWO)
    answer_all(waiting)
    waiting.people(set_aside="anna")
    done = play(waiting)
    assert expect_agreement(done).budget.aside > 0
    assert expect_counts(done)[0].people < 40


def test_owned_labels_added_rows_a_larger_budget_and_forgotten_items(tmp_path: Path) -> None:
    owned = labeled(tmp_path / "owned.csv", ids=True, first=900, count=15)
    done = play(begin(tmp_path, owned=str(owned), audit=6))
    table, _ = expect_counts(done)
    assert (table.people, table.model) == (24, 60 - 24), "files of owned labels are not in it"
    assert ("with a label owned before", "15") in [
        (row.name, row.value) for row in expect_agreement(done).data.roles
    ]
    more = labeled(tmp_path / "more.csv", ids=True, first=500, count=20)
    done.change(items=str(more), budget=28, later=True)
    assert done.status()["table"] is None, "the table is another one now"
    done = play(done.resume())
    assert expect_agreement(done).budget.labels == 28
    table, words = expect_counts(done)
    added = sum(int(str(row["item"])[1:]) >= 500 for row in bought(done, purpose="train"))
    assert table.people + table.model == 80 - (20 - added)
    assert "by the model, without its labels of rows added later) an" in words
    forget(done.path, audits(done)[0])
    assert expect_counts(done.resume())[0].people == table.people - 1
    forget(done.path, next(str(row["item"]) for row in bought(done, purpose="train", kind="label")))
    done.change(budget=36, later=True)
    done = play(done.resume())
    facts = expect_agreement(done)
    assert ("erased", "2") in [(row.name, row.value) for row in facts.data.roles]


def test_rows_with_the_text_of_an_owned_label_have_that_label_in_the_table(tmp_path: Path) -> None:
    done = play(begin(tmp_path, audit=6))
    row = next(row for row in done.table().rows if row["source"] == "model")
    other = next(name for name in CLASSES if name != row["label"])
    for label in (row["label"], other):  # the last one given counts
        owned = tmp_path / f"owned-{label}.csv"
        with owned.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), (row["text"], label)])
        done.change(owned=str(owned), later=True)
    before = facts_of(done).table
    done = play(done.resume())
    table, words = expect_counts(done)
    assert f"({table.people} by people or owned, {table.model} by the model)" in words
    assert "counting these labels as agreeing" in words
    assert before is not None
    assert (table.people, table.model) == (before.people + 1, before.model - 1)
    rows = {row["id"]: row for row in done.table().rows}
    assert len(rows) == 60
    assert (rows[row["id"]]["label"], rows[row["id"]]["source"]) == (other, "human")
    own = facts_of(done).own
    assert (own.rest, sum(total.human for total in own.totals)) == (table.model, table.people)


def test_the_page_says_which_rows_of_the_ledger_it_counts(tmp_path: Path) -> None:
    """`ledger verify` counts all rows, among them those on the page itself."""
    done = finished(tmp_path / "run", budget=30, audit=6)
    done.change(budget=40)
    (mark,) = (row for row in facts_of(done).fingerprints if row.name.startswith("ledger"))
    assert mark.name == "ledger before this report, without rows on saved arrays"
    with done.ledger as ledger:
        rows, (count, tip) = list(ledger.rows()), ledger.told_head
        before = next(row.seq for row in rows if row.hash == tip)
        assert {row.event for row in rows[before:]} == {"stored", "derived"}
        stored = sum(row.event == "stored" for row in rows[:before])
    assert mark.value == f"{before - stored} rows, last {tip}"
    assert count == before - stored < len(rows)
    assert mark.name in (done.path / "report.html").read_text(encoding="utf-8")


@POOL
def test_the_items_of_the_classes_are_those_of_the_run(tmp_path: Path, mode: str) -> None:
    done = play(begin(tmp_path, mode=mode, count=200, budget=90, audit=40, open_questions=30))
    own = facts_of(done).own
    assert (own.source, own.measured) == ("audit", 40)
    counted = sum(row.human + row.predicted for row in own.totals)
    assert counted == own.rest + sum(row.human for row in own.totals) == 200
    for row in own.totals:
        assert row.human <= row.low <= row.total <= row.high  # type: ignore[operator]
    assert [row.name for row in own.totals] == list(CLASSES)


def test_the_curve_knows_nothing_of_later_labels(tmp_path: Path) -> None:
    """Its point at n labels is the final model of a run whose budget was n, bought alike."""
    items, answers = class_items(80)
    test = class_items(40, seed=9)
    options = {"gate": "first", "order": "file", "test": test}
    whole = run(items, answers, budget=60, out=tmp_path / "whole", **options)
    part = run(items, answers, budget=30, out=tmp_path / "part", **options)
    curve = {point.labels: point.accuracy for point in facts_of(whole).curve}
    assert curve[30] == facts_of(part).test.accuracy


def test_a_curve_names_what_it_was_measured_on(tmp_path: Path) -> None:
    audited = facts_of(finished(tmp_path / "a", budget=60, audit=20))
    assert (audited.measured_on, audited.curve[-1].labels) == ("audit", 40)
    assert audited.curve[-1].accuracy == audited.audit.accuracy
    none = facts_of(finished(tmp_path / "c", budget=60, audit=0))
    assert none.curve == ()
