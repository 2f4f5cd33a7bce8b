"""The measurement of the audit's interval: what it counts, and that its page shows its record."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from scipy.stats import hypergeom

from stacksl.models.audit import default_size
from stacksl.models.metrics import wilson

from ..benchmarks import ROOT, benchmark, marked_table, record

PAGE = "docs/audit.md"
coverage, stopping = benchmark("audit_coverage"), benchmark("accuracy_stop")


def test_the_record_is_whole_and_of_default_audits() -> None:
    rows = record("audit_coverage")["rows"]
    cells = {(row["set"], row["seed"]) for row in rows}
    assert cells == {(name, seed) for name in coverage.SETS for seed in range(10)}
    for row in rows:
        assert row["audit"] == default_size(row["labels"])
        assert row["labels"] == row["items"] // 10
        assert row["audits"] == 2000
        n, correct, size = row["block"], row["correct"], row["audit"]
        exact = coverage.exact(size, correct / n, lambda k: hypergeom(n, correct, size).pmf(k))  # noqa: B023
        assert row["exact"] == pytest.approx(exact, abs=1e-12)


def test_the_page_shows_the_record() -> None:
    table = coverage.table(record("audit_coverage")["rows"])
    assert marked_table(PAGE, "audit_coverage") == table.strip()


def test_the_widths_on_the_page_are_wilsons() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert len(rows) == 5
    for words in rows:
        n, half, near = (int(word) for word in words)
        for share, said in ((0.5, half), (0.9, near)):
            low, high = wilson(round(share * n), n)
            assert said == round(50 * (high - low))


def test_the_page_shows_the_record_of_people_who_err() -> None:
    kept = record("audit_people")
    rows = kept["rows"]
    for name, table in (("people", coverage.people_table), ("both", coverage.both_table)):
        assert marked_table(PAGE, f"audit_{name}") == table(rows).strip()
    assert kept["goals"] == coverage.people_goals(rows)
    assert kept["goals_both"] == coverage.people_goals(rows, *coverage.BOTH)
    cells = {(row["set"], row["errors"], row["audit"], row["people"]) for row in rows}
    assert len(cells) == len(rows) == 270


@pytest.mark.parametrize("crew", [2, 3])
def test_the_low_end_is_seldom_above_the_truth(crew: int) -> None:
    """Of 400 redraws 16 would be 4%: 29 have a chance of one in a thousand then."""
    rng = np.random.default_rng(0)
    gold = rng.integers(20, size=2000)
    said = np.where(rng.random(2000) < 0.85, gold, (gold + 1) % 20)
    sure = np.clip(0.8 * (said == gold) + 0.3 * rng.random(2000), 0.05, 1)
    errors = {"rate": 0.05, "times": 3, "along": 0.5}
    model = coverage.Answered(said, gold, 20, sure, 6000)
    found = coverage.people_cell(model, errors, 100, crew, 400, 0)
    for holds, over in (("holds", "over"), coverage.BOTH):
        assert 400 * found[over] < 29
        assert found[holds] > 0.93
    assert found["both_width"] < found["width"], "the probabilities tell which answers are right"
    assert found["plain"] < 0.9
    assert found["answers"] <= 0.4


def test_the_page_shows_the_record_of_probabilities() -> None:
    powered, rows = benchmark("audit_powered"), record("audit_powered")["rows"]
    assert marked_table(PAGE, "audit_powered") == powered.table(rows).strip()
    assert marked_table("docs/report.md", "table_right") == powered.table_of_labels(rows).strip()
    cells = {(row["audit"], row["set"], row["labels"]) for row in rows}
    assert cells == set(product(powered.SIZES, powered.SETS, powered.LABELS))
    assert len(rows) == len(cells)


def test_the_page_shows_the_record_of_stops() -> None:
    rows = record("accuracy_stop")["rows"]
    assert marked_table(PAGE, "accuracy_stop") == stopping.table(rows).strip()
    assert len(rows) == 2 * len(stopping.SIZES) * sum(map(len, stopping.PATHS.values()))
    for row in rows:
        assert row["runs"] == 1000
        assert row["false"] <= 50, "the goal: 5% of false decisions"
        if (row["path"], row["final"]) == ("rises", 0.94):
            assert 0 <= sum(row["decided"]) <= 200


@pytest.mark.parametrize("people", [False, True])
def test_a_model_just_below_the_mark_is_seldom_let_through(people: bool) -> None:
    """Of 150 runs 7.5 would be 5%: 17 have a chance of one in a thousand then."""
    found = stopping.cell([0.899] * 4, 60, people=people, runs=150, seed=1)
    assert sum(found["decided"]) == found["false"] < 17
    sure = stopping.cell([0.8, 0.999], 100, people=people, runs=20, seed=1)
    assert sum(sure["decided"]) > 0
    assert sure["false"] == 0
