"""Labels that the data has in a column: judged by an audit, ranked by doubt, mended by people."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stacksl
from stacksl.api.labeling import label_own
from stacksl.cli.entry import call
from stacksl.cli.verbs.run import labels_so_far, shown_run
from stacksl.core.blocks import SharedBlock
from stacksl.errors import StackslError
from stacksl.label.asked import page_of
from stacksl.models.metrics import Powers, moments, wilson
from stacksl.models.promise import allowed_wrong
from stacksl.models.second_look import of_class
from stacksl.report.quality import SecondLook
from stacksl.report.sentences import column_words, commands, outside
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.loop.choosers import COVERAGE
from stacksl.runs.loop.head_fitting import doubt_of, held_out
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.loop.progress import silent
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import read_facts

from ..benchmarks import benchmark, record, shown
from ..ledgers import rows_of
from .people_cases import Row, answer_all, expect_sound, fill, play, read_rows, sheets, write_rows

TOPICS = ("branches", "cards", "loans", "rates")
COUNT = 160


def tickets(count: int = COUNT, right: float = 0.85) -> list[dict[str, str]]:
    """Texts that name their topic, and labels of a model that takes some for the next topic."""
    rng, rows = np.random.default_rng(5), []
    for n in range(count):
        topic = n % 4
        said = topic if rng.random() < right else (topic + 1) % 4
        word = TOPICS[topic][:4]
        text = f"{word}{rng.integers(6)} {word}x w{rng.integers(9)} n{n}"
        row = {"ticket_id": f"T{n}", "text": text, "gpt": TOPICS[said], "truth": TOPICS[topic]}
        rows.append(row)
    return rows


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    return write_rows(folder / "tickets.csv", rows)


def judged(data: Any, folder: Path, **settings: Any) -> stacksl.Run:
    """A run in `folder` over the column `gpt` of a file, a frame or rows, which `truth` answers."""
    data = str(write(folder, data)) if isinstance(data, list) else data
    given = {"model_labels": "gpt", "labeler": "oracle", "columns.label": "truth", "seed": 3}
    given |= {"features": "hashing", "audit": 40, "budget": 80, "out": folder / "run"}
    return stacksl.run(data, **{k: v for k, v in (given | settings).items() if v is not None})


def without_truth(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows as people get them, whose answers are not in the file."""
    return [{name: value for name, value in row.items() if name != "truth"} for row in rows]


def facts_of(run: stacksl.Run) -> dict[str, Any]:
    return dict(json.loads((run.path / "facts.json").read_text()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[stacksl.Run, list[dict[str, str]]]:
    folder, rows = tmp_path_factory.mktemp("column"), tickets()
    return judged(rows, folder), rows


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
    with run.ledger as ledger:
        audited = set(ledger.bought("audit"))
    for row in column["classes"]:
        mine = [r for r in rows if r["ticket_id"] in audited and r["gpt"] == row["name"]]
        assert row["audited"] == len(mine)
        assert row["right"] == sum(r["truth"] == row["name"] for r in mine)
        assert row["open"] == 0
    status = run.status()["column"]
    assert f"an estimated {audit['accuracy']:.1%} are right" in status["sentence"]
    page = (run.path / "report.html").read_text()
    assert "The labels that the data had" in page
    assert "<dt>Right in the column</dt>" in page
    assert "<dt>Audited" not in page.partition("</header>")[0]
    assert "What the model can label alone" not in page
    assert "Your items by class" not in page
    assert "There is no curve: the model has most of its labels, those of the column," in page
    assert f"<dd>{row['right']} of {row['audited']} audited labels right (95% interval" in page
    assert status["sentence"].split("(")[0].replace("'", "&#39;") in page


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
    assert column["audit"]["high"] < table["low"] <= right <= table["high"]
    assert "(80 by people, 80 by the column) an estimated" in table["sentence"]
    assert f"Right in the table  {table['sentence']}" in shown_run(run)
    table = audited.status()["table"]
    assert (table["people"], table["model"]) == (40, COUNT - 40), "nobody mended a doubtful label"
    own = facts_of(audited)["column"]["audit"]["accuracy"]
    assert table["share"] == pytest.approx((40 + own * (COUNT - 40)) / COUNT)


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
    return judged(tickets(), tmp_path_factory.mktemp("audited"), budget=None)


def copy_of(run: stacksl.Run, folder: Path) -> stacksl.Run:
    return stacksl.Run(shutil.copytree(run.path, folder / "run"))


def test_the_table_marks_the_doubtful_labels(audited: stacksl.Run) -> None:
    table, column = label_own(audited, None), facts_of(audited)["column"]
    sure = [
        [row["confidence"] for row in table.rows if row["doubtful"] is said]
        for said in (True, False)
    ]
    assert len(sure[0]) == column["flagged"] > 0
    assert sum(map(len, sure)) == column["unasked"] == COUNT - 40
    assert np.mean(sure[0]) < np.mean(sure[1])


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


def test_one_reason_is_given_why_nothing_is_forecast(
    made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = made
    assert "columns of labels" in facts_of(run)["more"]["reason"]
    assert "for a column of labels" in run.forecast()["reason"]
    assert call(["status", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "Final model" in said
    assert "Gate" not in said


def test_a_page_without_texts_names_neither_column_nor_classes(made: Any) -> None:
    run, _ = made
    page = run.report(text=False).read_text()
    assert "gpt" not in page
    assert "branches" not in page


def test_arrays_from_before_the_held_out_probability_was_kept_are_read(made: Any) -> None:
    with Session.open(RunSpec.open(made[0].folder)) as session:
        trainer = linear_trainer(session)
        arrays = trainer.state()
        del arrays["doubt.held_out"]
        trainer.restore(arrays)
        assert trainer.doubt is not None
        assert np.array_equal(trainer.doubt.held_out, trainer.doubt.sure)


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


def test_a_frame_is_a_table_too(tmp_path: Path) -> None:
    run = judged(pd.DataFrame(tickets()), tmp_path, budget=50, **{"columns.id": "ticket_id"})
    assert facts_of(run)["column"]["labeled"] == COUNT


# People ------------------------------------------------------------------------------------------


def truth(row: Row) -> str:
    return next(topic for topic in TOPICS if row["prompt"].startswith(topic[:4]))


PEOPLE: Mapping[str, Any] = dict.fromkeys(("labeler", "columns.label", "budget"))
PEOPLE = {**PEOPLE, "sheets.format": "csv"}
THREE = {**PEOPLE, "annotators": "anna,ben,cleo", "open_questions": 40}


def test_people_judge_the_column_alone_and_look_again(tmp_path: Path) -> None:
    rows = without_truth(tickets())
    run = judged(rows, tmp_path, **THREE)
    status = run.status()
    assert (status["labeler"], status["budget"], status["asked"]) == ("file", 56, 0)
    shown = [row for sheet in sheets(run) for row in read_rows(sheet)]
    assert {name for row in shown for name in row} == {"key", "prompt", "options", "answer", "note"}
    assert not any(row["answer"] for row in shown)
    done = play(run, truth)
    audit = facts_of(done)["column"]["audit"]
    assert audit["measures"] == "accuracy"
    assert audit["second"]["errors"][0] == 0
    assert audit["low"] <= np.mean([truth({"prompt": r["text"]}) == r["gpt"] for r in rows])
    assert facts_of(done)["budget"]["asked"] == 0
    model = facts_of(done)["audit"]
    assert (model["measures"], model["second"]) == ("agreement with the annotators", None)
    for page in ("report.html", "README.md"):
        text = unescape((done.path / page).read_text())
        assert "There was no second look at the model's answers" in text
        assert "Nobody was asked again" not in text
    assert "People err in an estimated 0.0% of answers" in done.status()["column"]["sentence"]
    before = done.status()
    done.change(stop_when="right=97%")
    after = done.status()
    assert after["column"]["sentence"] == before["column"]["sentence"], "no look was taken yet"
    assert (after["state"], after["spent"], after["out"]) == ("finished", before["spent"], 0)


def test_status_says_of_how_many_clear_rows_a_share_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = judged(without_truth(tickets()), tmp_path, **PEOPLE, annotators="anna", audit=20)
    [sheet] = sheets(run)
    fill(sheet, truth)
    fill(sheet, lambda row: "[ambiguous]", keys=[row["key"] for row in read_rows(sheet)[:5]])
    run.answer(sheet)
    audit = run.status()["audit"]
    assert audit["accuracy"] == audit["correct"] / 15
    assert call(["status", str(run.path)]) == 0
    said, page = capsys.readouterr().out, (run.path / "report.html").read_text()
    assert "of the 15 clear ones among 20 audited items" in page
    assert ", the 15 clear ones among 20 items)" in said
    assert ", the 15 clear ones among 20 audited rows)" in said
    assert ", the 15 clear ones among 20 audited rows)" in page


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
    done = play(judged(without_truth(tickets(right=0.6)), tmp_path, **THREE, price="0.50"), truth)
    column, budget = facts_of(done)["column"], facts_of(done)["budget"]
    still = column["audit"]["second"]["differing_open"] + column["audit"]["second"]["sampled_open"]
    assert still > 0
    assert sum(row["open"] for row in column["classes"]) == still
    wanted = f"and {2 * still} more labels for ${still}.00 may settle {still} of them)."
    assert wanted in done.status()["column"]["sentence"]
    done.change(budget=str(budget["labels"] + 2 * still))
    play(done, truth)
    after = facts_of(done)["column"]
    assert sum(row["open"] for row in after["classes"]) == 0
    assert facts_of(done)["budget"]["asked"] == 0
    width = column["audit"]["high"] - column["audit"]["low"]
    assert after["audit"]["high"] - after["audit"]["low"] < width
    expect_sound(done)


def another(row: Row, *, more: int) -> str:
    return TOPICS[(TOPICS.index(truth(row)) + more) % len(TOPICS)]


def test_the_price_of_open_rows_leaves_out_those_that_nobody_else_can_be_asked(
    tmp_path: Path,
) -> None:
    done = judged(
        without_truth(tickets()), tmp_path, **PEOPLE, annotators="anna,ben", open_questions=80
    )
    while done.status()["state"] == "waiting":  # anna and ben never agree, and there is no third
        for sheet in sheets(done):
            fill(sheet, partial(another, more=int("ben" in sheet.name)))
        done.answer(*sheets(done))
    second = facts_of(done)["column"]["audit"]["second"]
    assert 0 < second["askable"] < second["differing_open"] + second["sampled_open"]
    askable = second["askable"]
    wanted = f"and {2 * askable} more labels may settle {askable} of them)."
    assert wanted in done.status()["column"]["sentence"]
    column = read_facts(done.folder).column
    assert column is not None
    assert column.audit is not None
    nobody = replace(column.audit, second=SecondLook(**(second | {"askable": 0})))
    assert "unless you add an annotator, at most four answers a row)." in column_words(
        replace(column, audit=nobody), None
    )
    check = next(call for why, call in commands(read_facts(done.folder)) if "check" in why)
    flagged, labels = facts_of(done)["column"]["flagged"], facts_of(done)["budget"]["labels"]
    assert check.endswith(f"--budget {labels + flagged + 2 * askable}"), "those rows come first"
    done.change(budget=check.split()[-1])
    play(done, truth)
    assert facts_of(done)["budget"]["asked"] == flagged


def test_labels_whose_question_was_withdrawn_count_as_not_answered(tmp_path: Path) -> None:
    given = {**PEOPLE, "annotators": "anna", "open_questions": 80, "audit": 20}
    done = play(judged(without_truth(tickets()), tmp_path, **given), truth)
    done.change(budget=40)
    done.change(budget=20, drop=True)
    column, table = facts_of(done)["column"], label_own(done, None).rows
    assert done.status()["state"] == "finished"
    assert column["unasked"] == sum(row["source"] == "column" for row in table) == COUNT - 20
    assert column["flagged"] == sum(row["doubtful"] is True for row in table) > 0


def test_a_class_allows_for_open_rows_and_for_errors_that_two_people_share() -> None:
    right, other = ("label", 1), ("label", 0)
    found = SecondLook(40, 30, 10, 1, 1, 10, 2, 6, 2)
    rows = [[right]] * 10 + [[right, right]] * 4 + [[other], [other, other], []]
    assert of_class(1, rows, found)[:2] == (14, 2)
    low, high = of_class(1, rows, found)[2:]
    assert low == pytest.approx(wilson(14 - 10 * 0.2, 17)[0])
    assert high == pytest.approx(wilson(16 - 10 * 0.1, 17)[1])
    assert of_class(1, [[right], [other], [("broken", None)]], None)[:2] == (1, 1)


def test_the_parts_of_a_waiting_run_add_up_though_its_sheets_are_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = judged(tickets(), tmp_path, **PEOPLE, annotators="anna,ben", open_questions=30)
    old = run.status()["sheets"]
    answer_all(run, truth)
    status = {**run.status(), "sheets": [{"file": "", "open": 60}, *old]}  # as while a page is open
    assert status["out"] == sum(each.open for each in run.annotators())
    parts = labels_so_far(status).partition(": ")[2].split(", ")
    counts = [int(part.split()[-1]) for part in parts]
    assert min(counts) > 0
    assert sum(counts) == status["budget"]
    assert call(["status", str(run.path)]) == 0
    assert "Gate" not in capsys.readouterr().out, "it orders rows by doubt"


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
    run = judged(tickets(), tmp_path, **{**PEOPLE, **given})
    assert run.status()["budget"] == budget


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


def test_the_first_audit_stays_the_one_that_judges_the_column(tmp_path: Path) -> None:
    rows = tickets(300)
    run = judged(rows, tmp_path, budget=None)
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


def test_no_new_audit_is_offered_for_rows_that_were_added(made: Any) -> None:
    facts = read_facts(made[0].folder)
    assert facts.audit is not None
    added = replace(facts, audit=replace(facts.audit, rows=240, rows_after=80))
    offer = "a budget of 80 labels more has an audit of all rows that are left"
    assert offer not in outside(added)
    assert offer in outside(replace(added, column=None))


def test_labels_that_people_changed_are_held_against_the_estimate(made: Any) -> None:
    column = read_facts(made[0].folder).column
    assert column is not None
    assert column.audit is not None
    few = replace(column, asked=1, changed=1, mended=1)
    assert "unless people erred there" not in column_words(few, None)
    wrong = round((1 - column.audit.accuracy) * column.labeled) + 1
    said = column_words(replace(column, asked=wrong, changed=wrong + 5, mended=wrong), None)
    most = f"{100 * (1 - wrong / column.labeled):.1f}%"
    assert (
        f"changed {wrong + 5} labels of the exported table: {wrong} were found to be wrong, and the"
        f" others are unclear. So at most {most} of all are right" in said
    )


def test_the_next_command_corrects_the_column_as_long_as_labels_are_doubtful(
    audited: stacksl.Run, tmp_path: Path
) -> None:
    run = copy_of(audited, tmp_path)
    column = facts_of(run)["column"]
    said = shown_run(run)
    check = f"stacksl change {run.path} --budget {40 + column['flagged']}"
    assert f"  {check}  # Let people check {column['flagged']} labels" in said
    assert call([*check.split()[1:], "--yes", "--quiet"]) == 0
    facts = read_facts(run.folder)
    assert facts.column is not None
    assert facts.column.asked == column["flagged"]
    for flagged, offered in ((3, True), (0, False)):
        left = replace(facts, column=replace(facts.column, flagged=flagged))
        assert any("check 3 labels" in name for name, _ in commands(left)) == offered
        assert not any("Buy 100 more" in name for name, _ in commands(left))
        assert ("none has a doubtful label" in column_words(left.column, None)) != offered


def test_page_and_card_speak_of_the_column_and_not_of_a_model(made: Any) -> None:
    for path in ("report.html", "README.md"):
        said = unescape((made[0].path / path).read_text())
        for words in (
            "only measure the final model",
            "never got a label",
            "Buy ",
            "What 100 more",
            "the gate chose them",
            "this audit was shown before",
        ):
            assert words.lower() not in said.lower(), words
        assert "corrections do not change them" in said
        assert "doubtful labels" in said
    facts = facts_of(made[0])
    wrong = sum(row["count"] for row in facts["confusions"])
    assert wrong == facts["column"]["audit"]["n"] - facts["column"]["audit"]["correct"]
    assert "Label in the column" in (made[0].path / "report.html").read_text()


# A promise ---------------------------------------------------------------------------------------


def looks_of(run: stacksl.Run) -> list[dict[str, Any]]:
    """What was found at each look."""
    return [dict(row.payload) for row in rows_of(run, "looked")]


def expect_promised(
    run: stacksl.Run, share: float, topic: Callable[[Mapping[str, Any]], str]
) -> list[dict[str, Any]]:
    """The rows of the delivered table, of which no more are wrong than was promised."""
    look, rows = looks_of(run)[-1], label_own(run, None).rows
    assert look["reached"]
    wrong = sum(row["label"] != topic(row) for row in rows)
    assert wrong <= look["left"] <= allowed_wrong(share, len(rows))
    expect_sound(run)
    return [dict(row) for row in rows]


def test_a_column_is_mended_until_the_table_is_as_promised(tmp_path: Path) -> None:
    """The audits judge the labels that the table has: the column's, and else the model's."""
    table, promise = tickets(400), {"audit": None, "stop_when": "right=93%"}
    for row in table[:40]:
        row["gpt"] = ""
    hidden = random.Random(0).sample(table[40:], 12)  # wrong by no word of the text
    for row in hidden:
        row["truth"] = row["gpt"] = TOPICS[(TOPICS.index(row["truth"]) + 2) % 4]
    for row in hidden[:6]:
        row["gpt"] = TOPICS[(TOPICS.index(row["truth"]) + 2) % 4]
    run = judged(table, tmp_path, budget=390, **promise)
    rows = expect_promised(run, 0.93, lambda row: str(row["truth"]))
    assert Counter(row["source"] for row in rows).keys() == {"human", "column", "model"}
    kept = [row for row in rows if row["source"] == "column"]
    assert all(row["label"] == row["gpt"] for row in kept)
    stopped = run.status()["stopped"]
    assert "by the column or, where it has no label, the model: of" in stopped
    assert "rows of the column or the model drawn at random" in stopped
    said = run.status()["column"]["sentence"]
    assert said.startswith("Of the table's labels that people had not been asked about")
    with run.ledger as ledger:
        reasons = {row.decision().reason for row in ledger.rows() if row.event == "round"}
        audited = set(ledger.bought("audit"))
    assert reasons == {"doubt"}
    found = [row for row in rows if row["ticket_id"] in audited and row["gpt"]]
    wrong = sum(row["gpt"] != row["truth"] for row in found)
    assert sum(look["wrong"] for look in looks_of(run)) == wrong > 0


def test_nothing_is_bought_where_no_look_could_be_paid(tmp_path: Path) -> None:
    run = judged(tickets(300), tmp_path, budget=None)
    run.change(budget="230", stop_when="right=90%")
    expect_promised(run, 0.9, lambda row: str(row["truth"]))
    spent = run.status()["spent"]
    assert spent < 230
    offered = run.change(budget="250", stop_when="right=99.5%", dry_run=True)
    assert offered.measures.startswith("2 of 3 looks at the table are left. After a look")
    run.change(budget="250", stop_when="right=99.5%")
    assert run.status()["spent"] == spent
    assert run.status()["stopped"].startswith("That 99.5% of the 300 rows are right cannot be")
    assert f"can be paid, so {250 - spent} labels were left" in run.status()["stopped"]
    assert "`" not in (run.path / "report.html").read_text().partition("</header>")[0]
    expect_sound(run)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> stacksl.Run:
    """A run whose first 20 rows have no label in the column."""
    rows = [{**row, "gpt": row["gpt"] * (n >= 20)} for n, row in enumerate(tickets())]
    return judged(rows, tmp_path_factory.mktemp("blank"), budget=50)


def test_what_is_judged_is_what_the_table_says(blank: stacksl.Run) -> None:
    """The column's label, whatever the model says, and the model's where there is none."""
    run, table = blank, label_own(blank, None).rows
    with Session.open(RunSpec.open(run.folder)) as session:
        assert session.features is not None
        ending = HeadEnding(session.spec, session, session.features, silent)
        found = [TOPICS[int(np.argmax(each))] for each in ending.delivered(range(COUNT))]
        model = [TOPICS[int(np.argmax(each))] for each in ending.policies(range(COUNT))]
    for said, row in zip(found, table, strict=True):
        assert row["source"] == "human" or said == row["label"]
    pairs = [(a, b) for a, b, row in zip(found, model, table, strict=True) if row["gpt"]]
    assert sum(a != b for a, b in pairs) > 5


@pytest.mark.slow
def test_people_mend_a_column_until_the_table_is_as_promised(tmp_path: Path) -> None:
    """A scripted crew of three that errs in 2% of answers, over a column with 15% wrong labels."""
    table = without_truth(tickets(400))
    given = {"open_questions": 60, "audit": None, "budget": "380", "stop_when": "right=85%"}
    run = judged(table, tmp_path, **{**THREE, **given})

    def says(row: Row) -> str:
        right = TOPICS.index(truth(row))
        return TOPICS[(right + (random.Random(row["key"]).random() < 0.02)) % 4]

    play(run, says)
    rows = expect_promised(run, 0.85, lambda row: truth({"prompt": str(row["text"])}))
    assert facts_of(run)["column"]["changed"] == sum(row["label"] != row["gpt"] for row in rows)
    assert looks_of(run)[-1]["sample"] >= 30
    assert "of the column and" in run.status()["stopped"]
    assert run.status()["spent"] < 380
    assert "as the one who answered would say" not in run.status()["stopped"]


# What is doubted ---------------------------------------------------------------------------------


def test_rows_of_one_text_with_different_labels_are_asked_first(tmp_path: Path) -> None:
    rows = tickets(right=1.0)
    twins = [{**rows[n], "ticket_id": f"twin{n}", "gpt": rows[n + 1]["gpt"]} for n in (0, 50, 101)]
    run = judged([*rows, *twins], tmp_path, audit=0, budget=6)
    with run.ledger as ledger:
        asked = set(ledger.bought("train"))
    assert asked == {*(row["ticket_id"] for row in twins), "T0", "T50", "T101"}
    assert facts_of(run)["column"]["changed"] == 3
    assert facts_of(run)["column"]["audit"]["accuracy"] is None
    for path in ("report.html", "README.md"):
        said = (run.path / path).read_text()
        assert "How many labels of the column are right is not known" in said
        assert "accuracy on new items" not in said.lower()


def test_rows_without_a_label_are_told_of_and_labeled_by_the_model(blank: stacksl.Run) -> None:
    run = blank
    assert "20 rows have no label in 'gpt'" in run.status()["warnings"]
    column = facts_of(run)["column"]
    assert column["labeled"] == COUNT - 20
    assert column["audit"]["n"] < facts_of(run)["audit"]["n"] == 40
    filled = [row for row in label_own(run, None).rows if not row["gpt"]]
    assert {row["source"] for row in filled} == {"human", "model"}
    assert all(row["label"] == row["truth"] for row in filled)


def test_doubt_is_by_held_out_probability_confident_learning_and_twins() -> None:
    policies = np.array(
        [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.25, 0.75]], dtype=np.float32
    )
    column, texts = np.array([0, 0, 1, 0, -1]), np.array([0, 1, 2, 3, 2])
    found = doubt_of(policies, texts, column, np.array([0, 0, 1, 1, -1]))
    assert found.label.tolist() == [0, 0, 1, 0, 1]
    assert found.sure == pytest.approx([0.9, 0.6, 0.7, 0.0, 0.75])  # a person changed the fourth
    assert found.flagged.tolist() == [False, False, False, True, False]
    assert found.held_out == pytest.approx([0.9, 0.6, 0.7, 0.2, 0.75])  # whoever was asked
    twins = doubt_of(policies, np.zeros(5, dtype=np.int64), column, column)
    assert twins.sure == pytest.approx([0.75, 0.6, 0.25, 0.2, 0.25])
    assert twins.flagged.tolist() == [True, True, True, True, False]


def test_corrections_leave_the_estimate_by_the_audit_unbiased() -> None:
    """The most doubtful half of the rows that are not audited is corrected."""
    rows, size, errors = 300, 60, list[float]()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        right = rng.integers(4, size=rows)
        vectors = np.eye(4)[right] + 0.5 * rng.normal(size=(rows, 4))
        block = SharedBlock(np.asarray(vectors, dtype=np.float32), 4)
        column = np.where(rng.random(rows) < 0.7, right, (right + 1) % 4)
        audit, rest = np.split(rng.permutation(rows), [size])
        labels, texts = column.copy(), np.arange(rows)
        labels[audit] = -1
        before = doubt_of(held_out(block, texts, labels, 0), texts, column, labels)
        asked = rest[np.argsort(before.sure[rest])[: len(rest) // 2]]
        labels[asked] = right[asked]
        sure = doubt_of(held_out(block, texts, labels, 0), texts, column, labels).held_out
        hits = (column == right)[audit].astype(np.float64)
        estimate, _ = moments(hits, Powers(sure[audit], sure[rest]))
        errors.append(estimate - float(np.mean(column == right)))
    assert abs(np.mean(errors)) < 2 * np.std(errors) / np.sqrt(len(errors))


# Bad input ---------------------------------------------------------------------------------------


def with_values(values: list[str]) -> list[dict[str, str]]:
    return [{**row, "gpt": value} for row, value in zip(tickets(len(values)), values, strict=True)]


@pytest.mark.parametrize(
    ("given", "rows", "sentence"),
    [
        ({"model_labels": "gtp"}, None, "no column 'gtp' .* did you mean 'gpt'.* --model-labels"),
        ({}, with_values([""] * 20), "no row has a label in the column 'gpt'"),
        ({"model_labels": "ticket_id"}, None, "'ticket_id' has 160 different labels in 160 rows"),
        (
            {"classes": "classes.txt"},
            with_values([*TOPICS[:2] * 20, "card"]),
            r"1 rows have in the column 'gpt' a label that is none of the 2 .* mean 'cards'",
        ),
        ({"model_labels": "truth"}, None, "'truth' is named as the label and as the labels"),
        (
            {"columns.label": None},
            [{**row, "label": row["gpt"]} for row in tickets()],
            "'gpt' is the same as the answers in every row",
        ),
        ({"mode": "stream"}, None, "model_labels needs a pool"),
        ({"stop_when": "gain=0.01/100"}, None, "stop_when needs a forecast"),
        ({"stop_when": "accuracy=0.8"}, None, "stop_when with an accuracy refits .* a column"),
        ({"budget": None, "audit": 0}, None, "the budget must be above 0"),
        ({"budget": 30}, None, "within the budget, but 40 of a budget of 30 .* give at most 30"),
        ({**PEOPLE, "annotators": "anna,anna"}, None, "annotators should be different names"),
    ],
)
def test_bad_input_is_one_sentence(
    given: dict[str, Any],
    rows: list[dict[str, str]] | None,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("classes.txt").write_text("branches\ncards\n")
    with pytest.raises(StackslError, match=sentence):
        judged(rows or tickets(), tmp_path, **given)
    assert not (tmp_path / "run").exists()


def test_a_file_keeps_its_meaning_and_people_need_their_labeler(tmp_path: Path) -> None:
    said = tmp_path / "said.csv"
    said.write_text("text,label\n" + "".join(f"{r['text']},{r['gpt']}\n" for r in tickets()))
    run = judged(tickets(), tmp_path, model_labels=str(said), audit=0, budget=30)
    assert run.status()["column"] is None
    reasons = {row.decision().reason for row in rows_of(run, "round")}
    assert reasons <= {"drawn", COVERAGE}
    given = {"model_labels": str(said), "annotators": "anna,ben", "labeler": None}
    with pytest.raises(StackslError, match="annotators belongs to people"):
        judged(tickets(), tmp_path, **given)


# The benchmark -----------------------------------------------------------------------------------


def test_the_page_shows_the_record() -> None:
    rows = record("doubtful_labels")["rows"]
    table = benchmark("doubtful_labels").shown(rows)
    assert shown("docs/answering.md", "doubtful_labels") == table.strip()
    cells = {(row["set"], row["right"], row["seed"]) for row in rows}
    assert len(cells) == len(rows) == 45
