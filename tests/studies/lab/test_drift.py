"""`drift`: alarms counted by hand, shares with their limits, rows of the schema."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from stacksl.studies.lab.bench import reproduce
from stacksl.studies.lab.claims.drift import BUDGETS, DRIFT, GATES, alarms, derive, measure
from stacksl.studies.lab.claims.drift_rows import GUARDS, Case, case_of
from stacksl.studies.lab.trial import Trial


def _played(resets: list[int], asked: list[int]) -> Any:
    bought = np.zeros(100, dtype=bool)
    bought[[t - 1 for t in asked]] = True
    return cast(Any, SimpleNamespace(resets=np.array(resets, dtype=np.int64), asked=bought))


def test_alarms_of_a_stationary_stream_are_all_false() -> None:
    assert alarms(_played([3, 80], [3, 80]), None) == {"false_alarms": 2.0}


def test_delays_count_from_the_change() -> None:
    """Round 50 is the last of the old θ*: a reset after it is false, one after 51 is not."""
    found = alarms(_played([50, 61, 70], [40, 50, 51, 55, 61, 62]), 50)
    assert found == {
        "false_alarms": 1.0,
        "detected": 1.0,
        "delay_rounds": 11.0,
        "delay_labels": 3.0,
    }


def test_a_change_that_is_not_found_has_no_delay() -> None:
    found = alarms(_played([], [60]), 50)
    assert found["detected"] == 0.0
    assert found["delay_rounds"] is None
    assert found["delay_labels"] is None


def _samples(alarmed: list[float], kind: str = "iid") -> dict[str, dict[str, list[float]]]:
    case = Case("guarded", "random", kind, "scalar", 0.1)
    regret = {"regret_per_round": [2.0, 6.0], "final_regret": [1.0, 1.0]}
    plain = {"regret_per_round": [1.0, 2.0], "final_regret": [1.0, 2.0]}
    return {
        case.row: {**regret, "false_alarms": alarmed},
        case.under("no reset").row: plain,
    }


def test_gains_are_the_means_of_the_seeds_ratios() -> None:
    rows = {row.metric: row.value for row in derive(_samples([0.0, 0.0]))}
    assert rows["regret_per_round_over_none"] == 2.5
    assert rows["final_regret_over_none"] == 0.75


def test_shares_have_the_exact_upper_limit() -> None:
    """No alarm in n runs: 1 − 0.05^(1/n)."""
    row = derive(_samples([0.0, 0.0]))[-1]
    assert row.metric == "runs_with_a_false_alarm"
    assert row.value == 0.0
    assert row.settings["limit"] == pytest.approx(1 - 0.05**0.5, abs=1e-4)
    row = derive(_samples([3.0, 0.0]))[-1]
    assert (row.value, row.settings["alarms"]) == (0.5, 3.0)
    assert derive(_samples([3.0, 3.0]))[-1].settings["limit"] == 1.0


def test_the_changed_stream_has_no_part_in_the_shares() -> None:
    found = derive(_samples([5.0, 5.0], kind="concept"))
    assert not [row for row in found if row.metric == "runs_with_a_false_alarm"]


def test_rows_are_named_by_what_they_were_measured_under() -> None:
    rows = [line.row for one in DRIFT.trials(False) for line in one.lines]
    assert len(set(rows)) == len(rows) == 14 * len(GUARDS) * len(GATES) * len(BUDGETS)
    assert all(case_of(row).row == row for row in rows)


def test_a_small_study_gives_rows_tables_and_a_figure() -> None:
    small = [Trial({**one.world, "rounds": 240, "dim": 4}, one.lines) for one in DRIFT.trials(True)]
    study = replace(DRIFT, trials=lambda quick: small)
    found = {
        line.row: [measure(one.world, [line], seed)[0] for seed in (0, 1)]
        for one in small
        for line in one.lines
    }
    rows = reproduce(study, found)
    assert {row.metric for row in rows} >= {
        "false_alarms",
        "detected",
        "regret_per_round_over_none",
    }
    assert study.layout is not None
    assert study.figures is not None
    text = study.layout(rows)
    assert "| guarded · contested · softmax | 4 |" in text
    assert set(study.figures(rows)) == {"drift"}
