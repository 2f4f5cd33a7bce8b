"""`drift`: alarms counted by hand, shares with their limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from stacksl_lab.figures.drift import GUARDS, Case, case_of
from stacksl_lab.streams.drift import BUDGETS, DRIFT, GATES, alarms, derive, measure

from .small_cases import rows_by_line, shrunk


def _played(resets: list[int], asked: list[int]) -> Any:
    bought = np.zeros(100, dtype=bool)
    bought[[t - 1 for t in asked]] = True
    return cast(Any, SimpleNamespace(resets=np.array(resets, dtype=np.int64), asked=bought))


def test_alarms_of_a_stationary_stream_are_all_false() -> None:
    assert alarms(_played([3, 80], [3, 80]), None) == {"false_alarms": 2.0}


def test_delays_count_from_the_change() -> None:
    """Round 50 is the last of the old θ*: a reset in it is false, one after it is not."""
    found = alarms(_played([50, 61, 70], [40, 50, 51, 55, 61, 62]), 50)
    assert found == {
        "false_alarms": 1.0,
        "alarmed_before": 1.0,
        "alarmed_after": 1.0,
        "delay_rounds": 11.0,
        "delay_labels": 3.0,
    }


def test_both_sides_of_the_change_are_watched_as_long() -> None:
    """After round 60 of 100 there are 40 rounds, so that 21 to 60 are those before it."""
    assert alarms(_played([20], []), 60)["alarmed_before"] == 0.0
    assert alarms(_played([21], []), 60)["alarmed_before"] == 1.0
    assert alarms(_played([20], []), 60)["false_alarms"] == 1.0
    found = alarms(_played([81], []), 40)
    assert (found["alarmed_after"], found["delay_rounds"]) == (0.0, None), "41 to 80 are watched"


def _samples(
    alarmed: list[float], kind: str = "iid", budget: float = 0.1
) -> dict[str, dict[str, list[float]]]:
    case = Case("guarded", "random", kind, "scalar", budget)
    regret = {"regret_per_round": [2.0, 6.0], "final_regret": [1.0, 1.0]}
    plain = {"regret_per_round": [1.0, 2.0], "final_regret": [1.0, 2.0]}
    return {
        case.row: {**regret, "false_alarms": alarmed},
        case.under("no reset").row: plain,
    }


def test_gains_are_ratios_of_means() -> None:
    rows = {row.metric: row for row in derive(_samples([0.0, 0.0]))}
    assert rows["regret_per_round_over_none"].value == pytest.approx(8 / 3)
    assert rows["final_regret_over_none"].value == pytest.approx(2 / 3)
    assert rows["final_regret_over_none"].se is not None


def test_shares_have_the_exact_interval() -> None:
    """No alarm in n runs: up to 1 − 0.025^(1/n)."""
    row = derive(_samples([0.0, 0.0]))[-1]
    assert (row.metric, row.value) == ("runs_with_a_false_alarm", 0.0)
    assert row.settings["interval"] == pytest.approx([0.0, 1 - 0.025**0.5], abs=1e-4)
    row = derive(_samples([3.0, 0.0]))[-1]
    assert (row.value, row.seeds, row.settings["alarms"]) == (0.5, 2, 3.0)


def test_runs_on_one_stream_are_never_taken_together() -> None:
    """Two kinds make four runs of a budget, the other budget on the same streams two more."""
    found = {
        **_samples([1.0, 0.0]),
        **_samples([0.0, 0.0], kind="rare"),
        **_samples([1.0, 1.0], budget=0.02),
    }
    rows = [row for row in derive(found) if row.metric == "runs_with_a_false_alarm"]
    assert [(row.value, row.seeds) for row in rows] == [(0.25, 4), (1.0, 2)]


def test_rows_are_named_by_what_they_were_measured_under() -> None:
    rows = [line.row for one in DRIFT.trials(False) for line in one.lines]
    assert len(set(rows)) == len(rows) == 14 * len(GUARDS) * len(GATES) * len(BUDGETS)
    assert all(case_of(row).row == row for row in rows)


def test_a_small_study_gives_rows() -> None:
    study = shrunk(DRIFT, rounds=240, dim=4)
    rows = study.rows_from(rows_by_line(study, measure))
    assert {row.metric for row in rows} >= {
        "false_alarms",
        "alarmed_after",
        "regret_per_round_over_none",
    }
