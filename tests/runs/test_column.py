"""Labels that the data has in a column: judged by an audit, ranked by doubt, and told of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stacksl
from stacksl.api.labeling import label_own
from stacksl.cli.entry import call
from stacksl.cli.verbs.run import shown_run
from stacksl.label.pages import page_of
from stacksl.report.sentences import outside
from stacksl.runs.changes.people import own_label
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import read_facts

from ..ledgers import items_bought, rows_of
from .column_cases import COUNT, TOPICS, column_run, facts_of, tickets
from .people_cases import copy_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[stacksl.Run, list[dict[str, str]]]:
    folder, rows = tmp_path_factory.mktemp("column"), tickets()
    return column_run(rows, folder), rows


def test_the_audit_judges_the_column_and_the_model_beside_it(made: Any) -> None:
    run, rows = made
    right = np.mean([row["gpt"] == row["truth"] for row in rows])
    facts = facts_of(run)
    column, audit = facts["column"], facts["column"]["audit"]
    assert column["labeled"] == COUNT
    assert audit["n"] == facts["audit"]["n"] == 40
    assert audit["low"] <= right <= audit["high"]
    assert audit["reference"] == COUNT - 40
    assert facts["audit"]["accuracy"] > audit["accuracy"]
    audited = items_bought(run, "audit")
    for row in column["classes"]:
        mine = [r for r in rows if r["ticket_id"] in audited and r["gpt"] == row["name"]]
        assert row["audited"] == len(mine)
        assert row["right"] == sum(r["truth"] == row["name"] for r in mine)
        assert row["open"] == 0
    status = run.status()["column"]
    assert f"an estimated {audit['accuracy']:.1%} are right" in status["sentence"]
    page = unescape((run.path / "report.html").read_text())
    assert f"<dd>{row['right']} of {row['audited']} audited labels right (95% interval" in page
    assert status["sentence"].split("(")[0] in page
    assert "Your items by class" not in page, "nothing is said of a model"


def test_the_rows_bought_are_the_doubtful_ones_in_that_order(made: Any) -> None:
    run, rows = made
    labels = {row["ticket_id"]: row for row in rows}
    asked = [row.decision() for row in rows_of(run, "round")]
    assert {each.reason for each in asked} == {"doubt"}
    doubts = [each.statistic for each in asked[:25]]  # one batch
    assert doubts == sorted(doubts, reverse=True)
    assert asked[24].statistic >= asked[24].threshold
    assert all(TOPICS[each.choice] == labels[each.item]["gpt"] for each in asked)
    wrong = [labels[each.item]["gpt"] != labels[each.item]["truth"] for each in asked]
    assert sum(wrong[:10]) == 10
    column = facts_of(run)["column"]
    assert column["asked"] == 40 > sum(wrong)  # the rest was in less doubt
    table = label_own(run, None).rows
    changed = sum(row["label"] != row["gpt"] for row in table)
    assert column["mended"] == column["changed"] == changed
    assert changed > sum(wrong), "the audit's rows are people's, too"
    words = f"those of the audit, changed {changed} labels of the exported table."
    assert words in run.status()["column"]["sentence"]
    assert run.replay()["labels"] == 40


def test_the_mended_table_has_a_number_of_its_own(made: Any, audited: stacksl.Run) -> None:
    run = made[0]
    right = np.mean([row["label"] == row["truth"] for row in label_own(run, None).rows])
    column, table = facts_of(run)["column"], run.status()["table"]
    assert (table["people"], table["model"]) == (80, column["unasked"]) == (80, COUNT - 80)
    assert column["audit"]["high"] < table["low"] <= right
    assert "(80 from the file's column 'truth', 80 by the column) an estimated" in table["sentence"]
    assert f"Right in the table  {table['sentence']}" in shown_run(run)
    table = audited.status()["table"]
    assert (table["people"], table["model"]) == (40, COUNT - 40), "nobody mended a doubtful label"
    own = facts_of(audited)["column"]["audit"]["accuracy"]
    assert table["share"] == pytest.approx((40 + own * (COUNT - 40)) / COUNT)


def test_rows_that_the_owner_labels_stay_beside_the_audit(made: Any, tmp_path: Path) -> None:
    """Without them, which are doubtful ones, the other rows would look better than the audited."""
    run = copy_of(made[0], tmp_path)
    items = RunSpec.open(run.folder).sources.usable
    asked = items_bought(run)
    for item in [item for item in items.values() if item.id not in asked][:3]:
        own_label(run.folder, item.id, item.candidates[0])
    run.resume()
    column = facts_of(run)["column"]
    assert column["unasked"] == COUNT - 80 - 3
    assert column["audit"]["reference"] == COUNT - 40


def test_the_table_comes_back_mended_with_the_source_of_each_label(made: Any) -> None:
    run, rows = made
    table = label_own(run, None)
    assert table.columns[-4:] == ("label", "confidence", "source", "doubtful")
    assert [row["ticket_id"] for row in table.rows] == [row["ticket_id"] for row in rows]
    for row in table.rows:
        human = row["source"] == "human"
        assert row["label"] == row["truth" if human else "gpt"]
        assert (row["confidence"] is None) == human
        assert human or (row["source"] == "column" and 0 < row["confidence"] <= 1)
        assert (row["doubtful"] is None) == human
    assert sum(row["source"] == "human" for row in table.rows) == 80
    column, marked = facts_of(run)["column"], [row["doubtful"] for row in table.rows]
    assert (column["flagged"], column["unasked"]) == (marked.count(True), len(rows) - 80)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> stacksl.Run:
    """A run that bought its audit alone; a test that changes it copies it."""
    return column_run(tickets(), tmp_path_factory.mktemp("audited"), budget=None)


def test_audited_rows_of_a_column_are_held_out(made: Any) -> None:
    """Neither the column's label of them nor people's is learned."""
    found = made[0].evaluate([f"a new message about cards {n}" for n in range(60)])
    assert found["held_out"] == 40


def test_labels_of_a_model_are_told_where_they_are_evaluated(made: Any, tmp_path: Path) -> None:
    table = label_own(made[0], None)
    path = tmp_path / "labeled.csv"
    pd.DataFrame(table.rows).to_csv(path, index=False)
    with pytest.warns(UserWarning, match="this is no accuracy but agreement with that model"):
        made[0].evaluate(str(path))


def test_the_owner_sees_the_columns_label_of_every_row_that_was_asked(made: Any) -> None:
    run, rows = made
    labels = {row["ticket_id"]: row["gpt"] for row in rows}
    pages = [page_of(run.folder, number)["rows"] for number in (1, 2)]
    asked = [row for page in pages for row in page if row["number"]]
    assert Counter("audit" in row["why"] for row in asked) == {True: 40, False: 40}
    for row in asked:
        assert row["before"] == labels[row["item"]]
        assert 0 <= row["sure_before"] <= 1


def test_a_copy_of_the_run_has_the_same_labels(made: Any, tmp_path: Path) -> None:
    from stacksl.api import prepare
    from stacksl.runs.settings.resolve import resolve

    run, _ = made
    spec = RunSpec.open(run.folder)
    known = {k: v for k, v in run.folder.config().items() if k not in ("data", "test")}
    table = resolve({"budget": "60"}, known)
    plan = prepare(spec, out=tmp_path / "copy", settings=table)
    assert plan.spec.sources.model_labels == spec.sources.model_labels
    assert plan.spec.budget.labels == 60


def test_a_budget_that_comes_after_the_audit_buys_the_doubtful_rows(
    audited: stacksl.Run, tmp_path: Path
) -> None:
    run = copy_of(audited, tmp_path)
    before = facts_of(run)["column"]
    assert (run.status()["spent"], before["asked"]) == (40, 0)
    run.change(budget="60", later=True)
    stacksl.Run(run.path).resume()
    column = facts_of(run)["column"]
    assert column["asked"] == 20
    assert column["changed"] > 10
    assert column["audit"]["n"] == before["audit"]["n"]
    assert stacksl.Run(run.path).replay()["labels"] == 20


def test_the_next_command_corrects_the_column_as_long_as_labels_are_doubtful(
    audited: stacksl.Run, tmp_path: Path
) -> None:
    run = copy_of(audited, tmp_path)
    column = facts_of(run)["column"]
    said = shown_run(run)
    check = f"stacksl change {run.path} --budget {40 + column['flagged']}"
    assert f"  {check}  # Let people check {column['flagged']} labels" in said
    assert call([*check.split()[1:], "--yes", "--quiet"]) == 0
    assert facts_of(run)["column"]["asked"] == column["flagged"]


def test_no_new_audit_is_offered_for_rows_that_were_added(made: Any) -> None:
    facts = read_facts(made[0].folder)
    assert facts.audit is not None
    added = replace(facts, audit=replace(facts.audit, rows=240, rows_after=80))
    offer = "a budget of 80 labels more has an audit of all rows that are left"
    assert offer not in outside(added)
    assert offer in outside(replace(added, column=None))
