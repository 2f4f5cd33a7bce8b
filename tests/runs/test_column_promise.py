"""A column of labels that is mended until the table is as promised."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.api.labeling import label_own
from stacksl.models.promise import allowed_wrong

from ..ledgers import items_bought, rows_of
from .column_cases import THREE, TOPICS, column_run, facts_of, tickets, truth, without_truth
from .people_cases import Row, expect_sound, play
from .promise_cases import looks


def expect_promised(
    run: stacksl.Run, share: float, topic: Callable[[Mapping[str, Any]], str]
) -> list[dict[str, Any]]:
    """The rows of the delivered table, of which no more are wrong than was promised."""
    look, rows = looks(run)[-1], label_own(run, None).rows
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
    run = column_run(table, tmp_path, budget=390, **promise)
    rows = expect_promised(run, 0.93, lambda row: str(row["truth"]))
    assert Counter(row["source"] for row in rows).keys() == {"human", "column", "model"}
    kept = [row for row in rows if row["source"] == "column"]
    assert all(row["label"] == row["gpt"] for row in kept)
    stopped = run.status()["stopped"]
    assert "by the column or, where it has no label, the model: of" in stopped
    assert "rows of the column or the model drawn at random" in stopped
    said = run.status()["column"]["sentence"]
    assert said.startswith("Of the table's labels that people had not been asked about")
    assert {row.decision().reason for row in rows_of(run, "round")} == {"doubt"}
    audited = items_bought(run, "audit")
    found = [row for row in rows if row["ticket_id"] in audited and row["gpt"]]
    wrong = sum(row["gpt"] != row["truth"] for row in found)
    assert sum(look["wrong"] for look in looks(run)) == wrong > 0


def test_nothing_is_bought_where_no_look_could_be_paid(tmp_path: Path) -> None:
    run = column_run(tickets(300), tmp_path, budget=None)
    run.change(budget="230", stop_when="right=90%")
    expect_promised(run, 0.9, lambda row: str(row["truth"]))
    spent = run.status()["spent"]
    assert spent < 230
    offered = run.change(budget="250", stop_when="right=99.5%", dry_run=True)
    assert offered.measures.startswith("Looks at the table that are left: 2 of 3. After a look")
    run.change(budget="250", stop_when="right=99.5%")
    assert run.status()["spent"] == spent
    assert run.status()["stopped"].startswith("That 99.5% of the 300 rows are right cannot be")
    assert f"can be paid, so {250 - spent} labels were left" in run.status()["stopped"]
    assert "`" not in (run.path / "report.html").read_text().partition("</header>")[0]
    expect_sound(run)


@pytest.mark.slow
def test_people_mend_a_column_until_the_table_is_as_promised(tmp_path: Path) -> None:
    """A scripted crew of three that errs in 2% of answers, over a column with 15% wrong labels."""
    table = without_truth(tickets(400))
    given = {"open_questions": 60, "audit": None, "budget": "380", "stop_when": "right=85%"}
    run = column_run(table, tmp_path, **{**THREE, **given})

    def says(row: Row) -> str:
        right = TOPICS.index(truth(row))
        return TOPICS[(right + (random.Random(row["key"]).random() < 0.02)) % 4]

    play(run, says)
    rows = expect_promised(run, 0.85, lambda row: truth({"prompt": str(row["text"])}))
    assert facts_of(run)["column"]["changed"] == sum(row["label"] != row["gpt"] for row in rows)
    assert looks(run)[-1]["sample"] >= 30
    assert "of the column and" in run.status()["stopped"]
    assert run.status()["spent"] < 380
    assert "if whoever answered would say the same" not in run.status()["stopped"]
