"""What a run over a column of labels refuses, and a file of labels in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from stacksl.errors import StackslError
from stacksl.runs.loop.choosers import COVERAGE

from ..ledgers import rows_of
from .column_cases import PEOPLE, TOPICS, column_run, facts_of, tickets


def with_values(values: list[str]) -> list[dict[str, str]]:
    return [{**row, "gpt": value} for row, value in zip(tickets(len(values)), values, strict=True)]


@pytest.mark.parametrize(
    ("given", "rows", "sentence"),
    [
        ({"model_labels": "gtp"}, None, "no column 'gtp' .* 'gpt'.*-labels, or name a file"),
        ({"model_labels": "gtp", "classes": "classes.txt"}, None, "no column 'gtp' .* 'gpt'"),
        ({}, with_values([""] * 20), "no row has a label in the column 'gpt'"),
        ({"model_labels": "ticket_id"}, None, "'ticket_id' has 160 different labels in 160 rows"),
        (
            {"classes": "classes.txt"},
            with_values([*TOPICS[:2] * 20, "card"]),
            r"label in the column 'gpt' should be one of the 2 classes, got 1 of .* mean 'cards'",
        ),
        ({"model_labels": "truth"}, None, "'truth' is named as the label and as the labels"),
        (
            {"columns.label": None},
            [{**row, "label": row["gpt"]} for row in tickets()],
            "'gpt' is the same as the answers in every row",
        ),
        ({"mode": "stream"}, None, "model_labels needs a pool"),
        (
            {"stop_when": "gain=0.01/100"},
            None,
            "stop_when needs a forecast, .* not those that judge a column",
        ),
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
        column_run(rows or tickets(), tmp_path, **given)
    assert not (tmp_path / "run").exists()


def test_the_column_is_read_from_the_worksheet_that_is_named(tmp_path: Path) -> None:
    book, file, rows = Workbook(), tmp_path / "tickets.xlsx", tickets()
    for name in ("other", "tickets"):
        sheet = book.create_sheet(name)
        for cells in ([*rows[0]], *(list(row.values()) for row in rows)):
            sheet.append(cells if name == "tickets" else ["text", "said"])
    book.save(file)
    run = column_run(str(file), tmp_path, **{"read.worksheet": "tickets"})
    assert facts_of(run)["column"]["labeled"] == len(rows)


def test_a_file_keeps_its_meaning_and_people_need_their_labeler(tmp_path: Path) -> None:
    said = tmp_path / "said.csv"
    said.write_text("text,label\n" + "".join(f"{r['text']},{r['gpt']}\n" for r in tickets()))
    classes = tmp_path / "classes.txt"
    classes.write_text("\n".join(TOPICS))
    for n, given in enumerate(({}, {"classes": str(classes)})):
        given |= {"model_labels": str(said), "audit": 0, "budget": 30}
        (folder := tmp_path / str(n)).mkdir()
        run = column_run(tickets(), folder, **given)
        assert run.status()["column"] is None
    reasons = {row.decision().reason for row in rows_of(run, "round")}
    assert reasons <= {"drawn", COVERAGE}
    given = {"model_labels": str(said), "annotators": "anna,ben", "labeler": None}
    with pytest.raises(StackslError, match="annotators belongs to people"):
        column_run(tickets(), tmp_path, **given)


def test_the_name_of_the_judged_column_shows_that_a_first_row_is_a_header(tmp_path: Path) -> None:
    rows = [
        {"Case ID": row["ticket_id"], "what was asked": row["text"], "gpt": row["gpt"]}
        for row in tickets()
    ]
    run = column_run(rows, tmp_path, **PEOPLE, annotators="anna")
    assert run.status()["state"] == "waiting"
