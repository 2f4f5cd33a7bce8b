"""`complexity`: the counts, the slopes of made-up times, and that it measures what it says."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl_lab.streams.complexity import (
    BASE,
    COMPLEXITY,
    KINDS,
    SWEEPS,
    derive,
    held,
    paper_memory,
    paper_time,
    trials,
)
from stacksl_lab.streams.trial import Samples
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.store import Store


def test_the_counts_by_hand() -> None:
    assert paper_time(3, 5, 2, 10) == 2 * 3 * 5 + 8 * 3
    assert paper_memory(3, 5, 2, 10) == 9 + 15
    assert held(3, 5, 2, 10) == 9 + 15 + 70
    counts = {name: kind.counted(3, 5, 2, 10) for name, kind in KINDS.items()}
    assert counts == {
        "LLF, UCB every round": 10 * 5 * 9,
        "LLF, greedy": 2 * 5 * 9 + 10 * 5 * 3,
        "first, greedy": 10 * 5 * 3 + 2 * 9,
        "contested, certified": 10 * 5 * 9,
    }


def made_up() -> Samples:
    """Times that are exactly the paper's count, memory exactly what is held."""
    found = {}
    for trial in trials(False):
        sizes = (trial.source["d"], trial.source["K"], trial.source["B"], trial.source["T"])
        for line in trial.lines:
            found[line.row] = {
                "milliseconds": [0.5 * paper_time(*sizes), 1.5 * paper_time(*sizes)],
                "peak_mib": [held(*sizes)] * 2,
            }
    return found


def test_slopes_of_made_up_times() -> None:
    rows = derive(made_up())
    assert len(rows) == len(KINDS) * len(SWEEPS) * 4
    named = {(row.row, row.metric): row for row in rows}
    for name, places in SWEEPS.items():
        sizes = [{**BASE, name: value} for value in places]
        over = [paper_time(s["d"], s["K"], s["B"], s["T"]) for s in sizes]
        row = named[f"first, greedy, over {name}", "slope of milliseconds"]
        wanted = np.polyfit(np.log(places), np.log(over), 1)[0]
        assert row.value == pytest.approx(wanted, abs=1e-6) == pytest.approx(row.paper, abs=1e-6)
        end = named[f"first, greedy, over {name}", "end slope of peak_mib"]
        assert end.value == pytest.approx(end.settings["counted"], abs=1e-6)
    both = named["LLF, UCB every round, over d", "end slope of milliseconds"]
    assert both.settings["counted"] == pytest.approx(2.0)
    assert both.paper == pytest.approx(1.0)


def test_it_runs() -> None:
    rows = COMPLEXITY.reproduce(Bench(Store(), quick=True), range(2))
    plain = {(row.row, row.metric): row for row in rows}
    assert all((row.value or 0.0) > 0 for row in rows if "slope" not in row.metric)
    small = plain["first, greedy, T = 200", "peak_mib"].value or 0.0
    large = plain["first, greedy, T = 400", "peak_mib"].value or 0.0
    assert large - small >= 200 * 5 * 8 / 2**20, "a round leaves at least five numbers"
    assert {row.asked_fraction for row in rows if row.row.endswith("B = 40")} == {0.2}
