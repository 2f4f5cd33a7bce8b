"""Which labels of a column are doubted, and rows of it without a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stacksl
from stacksl.api.labeling import label_own
from stacksl.core.blocks import SharedBlock
from stacksl.models.metrics import Powers, moments
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.loop.game import silent
from stacksl.runs.loop.head_fitting import AMONG_WRONG, column_strength, doubt_of, held_out
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec

from ..benchmarks import benchmark, marked_table, record
from ..ledgers import items_bought
from .column_cases import COUNT, TOPICS, column_run, facts_of, tickets


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> stacksl.Run:
    """A run whose first 20 rows have no label in the column."""
    rows = [{**row, "gpt": row["gpt"] * (n >= 20)} for n, row in enumerate(tickets())]
    return column_run(rows, tmp_path_factory.mktemp("blank"), budget=50)


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


def test_rows_of_one_text_with_different_labels_are_asked_first(tmp_path: Path) -> None:
    rows = tickets(right=1.0)
    twins = [{**rows[n], "ticket_id": f"twin{n}", "gpt": rows[n + 1]["gpt"]} for n in (0, 50, 101)]
    run = column_run([*rows, *twins], tmp_path, audit=0, budget=6)
    asked = items_bought(run, "train")
    assert asked == {*(row["ticket_id"] for row in twins), "T0", "T50", "T101"}
    assert facts_of(run)["column"]["changed"] == 3
    assert facts_of(run)["column"]["audit"]["accuracy"] is None
    assert "with those of the audit" not in run.status()["column"]["sentence"], "there is none"
    said = (run.path / "report.html").read_text()
    assert "How many labels of the column are right is not known" in said


def test_rows_without_a_label_are_told_of_and_labeled_by_the_model(blank: stacksl.Run) -> None:
    run = blank
    assert "rows without a label in 'gpt': 20" in run.status()["warnings"]
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


@pytest.mark.parametrize(("wrong", "weakest"), [(0.0, False), (0.5, True)])
def test_the_final_head_of_a_column_is_as_free_as_held_out_labels_ask(
    wrong: float, weakest: bool
) -> None:
    """With frequent and rare classes a strong penalty gives the rare ones away; errors ask for it.

    Measured on rows with their true classes, which the choice does not see.
    """
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.repeat(0, 150), np.repeat(np.arange(1, 16), 8)])
    vectors = np.eye(16)[truth] + 0.45 * rng.normal(size=(len(truth), 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    block, texts = SharedBlock(vectors.astype(np.float32), 16), np.arange(len(truth))
    labels = np.where(rng.random(len(truth)) < wrong, rng.integers(16, size=len(truth)), truth)
    chosen = column_strength(block, texts, labels, 0, held_out(block, texts, labels, 0))
    assert (chosen.value == AMONG_WRONG[0]) is weakest
    assert len(chosen.tried) == len(AMONG_WRONG)
    assert chosen.value == AMONG_WRONG[int(np.argmin(chosen.tried))]


def test_the_page_shows_the_record() -> None:
    found = record("doubtful_labels")
    table = benchmark("doubtful_labels").shown(found)
    assert marked_table("docs/answering.md", "doubtful_labels") == table.strip()
    rows = found["rows"]
    cells = {(row["set"], row["right"], row["seed"]) for row in rows}
    assert len(cells) == len(rows) == 45
