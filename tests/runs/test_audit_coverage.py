"""The measurement of the audit's interval: what it counts, and that its page shows its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from stacksl.models.audit import default_size

from ..benchmarks import benchmark, marked_table, record

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


@pytest.mark.parametrize(
    ("mark", "kept", "table"),
    [
        ("audit_coverage", "audit_coverage", coverage.table),
        ("audit_people", "audit_people", coverage.people_table),
        ("audit_both", "audit_people", coverage.both_table),
        ("audit_powered", "audit_powered", benchmark("audit_powered").table),
        ("accuracy_stop", "accuracy_stop", stopping.table),
        ("table_right", "audit_powered", benchmark("audit_powered").table_of_labels),
    ],
)
def test_the_page_shows_the_record(mark: str, kept: str, table: Callable[[Any], str]) -> None:
    page = "docs/report.md" if mark == "table_right" else PAGE
    assert marked_table(page, mark) == table(record(kept)["rows"]).strip()


def test_a_run_stops_at_an_accuracy_that_it_has_not_as_seldom_as_is_wanted() -> None:
    assert max(row["false"] for row in record("accuracy_stop")["rows"]) <= 50, "of 1000 runs each"


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


@pytest.mark.parametrize("people", [False, True])
def test_a_model_just_below_the_mark_is_seldom_let_through(people: bool) -> None:
    """Of 150 runs 7.5 would be 5%: 17 have a chance of one in a thousand then."""
    found = stopping.cell([0.899] * 4, 60, people=people, runs=150, seed=1)
    assert sum(found["decided"]) == found["false"] < 17
    sure = stopping.cell([0.8, 0.999], 100, people=people, runs=20, seed=1)
    assert sum(sure["decided"]) > 0
    assert sure["false"] == 0
