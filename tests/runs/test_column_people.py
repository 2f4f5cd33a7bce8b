"""People judge and mend a column of labels, and what is told of their answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api.labeling import label_own
from stacksl.cli.entry import call
from stacksl.models.metrics import Z, wilson
from stacksl.models.second_look import looked, looked_at_some, of_class, split
from stacksl.report.quality import SecondLook
from stacksl.report.sentences import commands
from stacksl.report.wording import plural
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.storage.folder import read_facts

from .column_cases import (
    COUNT,
    PEOPLE,
    THREE,
    TOPICS,
    column_run,
    facts_of,
    tickets,
    truth,
    without_truth,
    write,
)
from .people_cases import Row, answer_all, expect_sound, fill, play, read_rows, sheets


def test_people_judge_the_column_alone_and_look_again(tmp_path: Path) -> None:
    rows = without_truth(tickets())
    run = column_run(rows, tmp_path, **THREE)
    status = run.status()
    assert (status["labeler"], status["budget"], status["asked"]) == ("file", 56, 0)
    shown = [row for sheet in sheets(run) for row in read_rows(sheet)]
    assert {name for row in shown for name in row} == {"key", "prompt", "options", "answer", "note"}
    assert not any(row["answer"] for row in shown)
    answer_all(run, truth)
    assert run.status()["audit"]["waits"]
    sentences = [run.status()["audit"]["sentence"], (run.path / "README.md").read_text()]
    assert not any("reported when further people" in each for each in sentences)
    done = play(run, truth)
    audit = facts_of(done)["column"]["audit"]
    assert audit["measures"] == "accuracy"
    assert audit["second"]["errors"][0] == 0
    assert audit["low"] <= np.mean([truth({"prompt": r["text"]}) == r["gpt"] for r in rows])
    assert facts_of(done)["budget"]["asked"] == 0
    model = facts_of(done)["audit"]
    assert (model["measures"], model["second"]) == ("agreement with the annotators", None)
    text = unescape((done.path / "report.html").read_text())
    assert "There was no second look at the model's answers" in text
    assert "People err in an estimated 0.0% of answers" in done.status()["column"]["sentence"]
    before = done.status()
    done.change(stop_when="right=97%")
    after = done.status()
    assert after["column"]["sentence"] == before["column"]["sentence"], "no look was taken yet"
    assert (after["state"], after["spent"], after["out"]) == ("finished", before["spent"], 0)


def test_an_audited_row_may_be_forgotten_after_the_second_look(tmp_path: Path) -> None:
    rows = without_truth(tickets())
    done = play(column_run(rows, tmp_path, **THREE), truth)
    audit = facts_of(done)["column"]["audit"]
    assert audit["second"] is not None
    item = next(row["item"] for row in done.labels().rows if row["purpose"] == "audit")
    forget(done.path, item)
    assert done.resume().status()["state"] == "finished"
    assert facts_of(done)["column"]["audit"]["n"] == audit["n"] - 1


def test_a_dry_run_says_what_is_done_with_the_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path, without_truth(tickets()))
    words = ["run", str(data), "--model-labels", "gpt", "--annotators", "anna,ben", "--dry-run"]
    words += ["--features", "hashing", "--out", str(tmp_path / "run"), "--audit", "40"]
    prices = ["--price", "0.75"]
    for more, told in (([], False), (["--budget", "100"], True), (prices, False)):
        assert call([*words, *more]) == 0
        said = capsys.readouterr().out
        assert "answers:" not in said
        assert "it will measure the share of labels in 'gpt' that are right to within" in said
        assert ("the most doubtful ones are asked about" in said) == told
        assert "--stop-when right=97% in place of --audit promises" in said
    assert "Cost         $42.00 at most" in said


def test_audited_rows_that_stay_open_are_named_and_settled_for_their_price(tmp_path: Path) -> None:
    done = play(
        column_run(without_truth(tickets(right=0.6)), tmp_path, **THREE, price="0.50"), truth
    )
    column, budget = facts_of(done)["column"], facts_of(done)["budget"]
    still = column["audit"]["second"]["differing_open"] + column["audit"]["second"]["sampled_open"]
    assert still > 0
    assert sum(row["open"] for row in column["classes"]) == still
    call = f"stacksl change {done.path} --budget {budget['labels'] + 2 * still}"
    wanted = f"and {2 * still} more labels for ${still}.00 may settle {still} of them: `{call}`."
    assert wanted in done.status()["column"]["sentence"]
    done.change(budget=call.split()[-1])
    assert done.status()["state"] == "waiting"
    assert call not in done.status()["column"]["sentence"], "the budget is so large already"
    play(done, truth)
    after = facts_of(done)["column"]
    assert sum(row["open"] for row in after["classes"]) == 0
    assert facts_of(done)["budget"]["asked"] == 0
    width = column["audit"]["high"] - column["audit"]["low"]
    assert after["audit"]["high"] - after["audit"]["low"] < width
    expect_sound(done)


@pytest.mark.parametrize("column", [True, False])
def test_labels_that_a_second_look_left_are_told_and_spent_by_the_printed_command(
    column: bool, tmp_path: Path
) -> None:
    classes = tmp_path / "classes.txt"
    classes.write_text("\n".join(TOPICS))
    given = {**THREE, "audit": 40, "budget": 100}
    plain = {"model_labels": None, "labeler": "file", "classes": str(classes)}
    plain |= {"second_look": True, "columns.prompt": "text"}
    given |= {} if column else plain
    run = column_run(without_truth(tickets(600, right=0.9)), tmp_path, **given)
    assert run.status()["unspent"] is None
    done = play(run, truth)
    found, status = read_facts(done.folder), done.status()
    left = found.budget.unused
    assert left == status["left"] == 100 - status["spent"] > 0
    call_again = f"stacksl change {done.path} --budget 100"
    words = f"The second look left {plural(left, 'label')} unspent"
    assert status["unspent"] == f"{words}: `{call_again}` asks about more rows."
    assert words in (done.path / "report.html").read_text()
    more = 100 if found.column is None else found.column.flagged
    assert more > 0
    calls = [step for _, step in commands(replace(found, run=str(done.path)))]
    assert f"stacksl change {done.path} --budget {100 - left + more}" in calls
    assert call([*call_again.split()[1:], "--quiet"]) == 0
    play(done, truth)
    after = read_facts(done.folder).budget
    assert (after.spent, after.unused, after.further) == (100, 0, found.budget.further)
    assert after.asked == found.budget.asked + left
    assert done.status()["unspent"] is None
    expect_sound(done)


def another(row: Row, *, more: int) -> str:
    return TOPICS[(TOPICS.index(truth(row)) + more) % len(TOPICS)]


def test_the_price_of_open_rows_leaves_out_those_that_nobody_else_can_be_asked(
    tmp_path: Path,
) -> None:
    done = column_run(
        without_truth(tickets()), tmp_path, **PEOPLE, annotators="anna,ben", open_questions=80
    )
    while done.status()["state"] == "waiting":  # anna and ben never agree, and there is no third
        for sheet in sheets(done):
            fill(sheet, partial(another, more=int("ben" in sheet.name)))
        done.answer(*sheets(done))
    second = facts_of(done)["column"]["audit"]["second"]
    assert 0 < second["askable"] < second["differing_open"] + second["sampled_open"]
    askable = second["askable"]
    wanted = f"and {2 * askable} more labels may settle {askable} of them: `stacksl change"
    assert wanted in done.status()["column"]["sentence"]
    check = next(call for why, call in commands(read_facts(done.folder)) if "check" in why)
    flagged, labels = facts_of(done)["column"]["flagged"], facts_of(done)["budget"]["labels"]
    assert check.endswith(f"--budget {labels + flagged + 2 * askable}"), "those rows come first"
    done.change(budget=check.split()[-1])
    play(done, truth)
    assert facts_of(done)["budget"]["asked"] == flagged


def test_labels_whose_question_was_withdrawn_count_as_not_answered(tmp_path: Path) -> None:
    given = {**PEOPLE, "annotators": "anna", "open_questions": 80, "audit": 20}
    done = play(column_run(without_truth(tickets()), tmp_path, **given), truth)
    done.change(budget=40)
    done.change(budget=20, drop=True)
    column, table = facts_of(done)["column"], label_own(done, None).rows
    assert done.status()["state"] == "finished"
    assert column["unasked"] == sum(row["source"] == "column" for row in table) == COUNT - 20
    assert column["flagged"] == sum(row["doubtful"] is True for row in table) > 0


def test_the_labels_left_are_judged_by_the_second_look_of_audited_rows_like_them(
    tmp_path: Path,
) -> None:
    rows = tickets(400)
    given = {**THREE, "audit": 100, "budget": 240}
    done = play(column_run(without_truth(rows), tmp_path, **given), truth)
    found, table = read_facts(done.folder), label_own(done, None).rows
    assert found.column is not None
    assert found.table is not None
    assert found.column.audit is not None
    assert found.column.audit.second is not None
    right = np.mean(
        [row["label"] == known["truth"] for row, known in zip(table, rows, strict=True)]
    )
    assert found.column.asked > 50
    assert found.column.audit.high < found.table.low <= right


def test_some_rows_of_a_second_look_are_judged_like_all() -> None:
    items = [f"r{n}" for n in range(40)]
    predicted = dict.fromkeys(items, 1)
    right, other = 1, 0
    answers = {item: [right, right] for item in items} | {
        item: [other, other] for item in items[:6]
    }
    rows = split(items, predicted, {item: given[:1] for item, given in answers.items()}, ())
    whole = looked(rows, predicted, answers, judged=predicted)
    labels = {item: np.array([0.0, 1.0]) for item in items}
    assert looked_at_some(labels, None, rows, answers, Z, predicted) == whole
    part = {item: labels[item] for item in items[6:]}
    some = looked_at_some(part, None, rows, answers, Z, predicted)
    assert some is not None
    assert (some.n, some.differing, some.accuracy[0]) == (34, 0, 1.0)
    few = {item: labels[item] for item in (*items[:6], *rows[0][-20:])}
    assert not looked_at_some(few, None, rows, answers, Z, predicted), "no sample"


def test_a_class_allows_for_open_rows_and_for_errors_that_two_people_share() -> None:
    right, other = 1, 0
    found = SecondLook(40, 30, 10, 1, 1, 10, 2, 6, 2)
    rows = [[right]] * 10 + [[right, right]] * 4 + [[other], [other, other], []]
    assert of_class(1, rows, found)[:2] == (14, 2)
    low, high = of_class(1, rows, found)[2:]
    assert low == pytest.approx(wilson(14 - 10 * 0.2, 17)[0])
    assert high == pytest.approx(wilson(16 - 10 * 0.1, 17)[1])
    assert of_class(1, [[right], [other], ["broken"]], None)[:2] == (1, 1)


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({"annotators": "anna"}, 40),
        ({"annotators": "anna,ben", "second_look": False}, 40),
        ({"annotators": "anna,ben", "audit": None}, COUNT),
        ({"annotators": "anna", "budget": "50"}, 50),
    ],
)
def test_without_a_budget_the_audit_and_its_second_look_are_bought(
    given: dict[str, Any], budget: int, tmp_path: Path
) -> None:
    run = column_run(tickets(), tmp_path, **{**PEOPLE, **given})
    assert run.status()["budget"] == budget


def test_the_first_audit_stays_the_one_that_judges_the_column(tmp_path: Path) -> None:
    rows = tickets(300)
    run = column_run(rows, tmp_path, budget=None)
    before = facts_of(run)["column"]["audit"]
    offered = run.change(budget="280", dry_run=True)
    assert (offered.audit, offered.left) == (0, 240)
    run.change(budget="280")
    audit = facts_of(run)["column"]["audit"]
    assert facts_of(run)["column"]["asked"] == 240
    assert (audit["n"], audit["reference"]) == (40, 260) == (before["n"], before["reference"])
    assert (audit["passed_over"], audit["correct"]) == (0, before["correct"])
    assert audit["low"] <= np.mean([row["gpt"] == row["truth"] for row in rows]) <= audit["high"]
    assert audit["high"] - audit["low"] <= before["high"] - before["low"]
    assert run.status()["column"]["sentence"].startswith("Of the labels in the column 'gpt' an")
    assert run.replay()["labels"] == 240
