"""`llf`: its cells, the map and the tuned entry."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl_lab.streams.llf import pilot
from stacksl_lab.streams.llf import study as llf
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.store import Store
from stacksl_lab.synthetic.streams import make_stream

ROOT = Path(__file__).parents[3]


def test_the_first_spread_by_hand() -> None:
    source = make_stream("iid", "scalar", 3, rounds=5, dim=4)
    wanted = 2 * (0.3 * math.sqrt(2 * math.log(20)) / 0.1 + np.linalg.norm(source.truth))
    assert llf.first_spread(source, 0.01) == pytest.approx(wanted)


def test_the_map_of_made_up_samples() -> None:
    """Twice the regret of `first` in one cell of eight, half in another; a fifth of the labels."""
    samples = {
        line.row: {
            "regret_per_round": [1.0, 3.0],
            "asked_fraction": [0.2 * line.budget_fraction] * 2,
        }
        for trial in llf.trials(True)
        for line in trial.lines
    }
    name = llf.TUNED.name
    samples[f"{name} · iid · scalar · 0.02"]["regret_per_round"] = [2.0, 6.0]
    samples[f"{name} · shift-2 · softmax · 0.1"]["regret_per_round"] = [0.25, 0.75]
    found = {(row.row, row.metric): row for row in llf.derive(samples)}
    assert found[name, "over_first"].value == pytest.approx((2.0 / 4.0) ** (1 / 8), abs=1e-6)
    worst = found[name, "worst_over_information"]
    assert (worst.value, worst.settings["cell"]) == (2.0, "iid · scalar · 0.02")
    assert found[name, "budget_used"].value == pytest.approx(0.2)
    assert found["first", "over_first"].value == 1.0


def test_the_tuned_entry_is_the_best_of_the_pilot_under_rewards() -> None:
    """Over all cells, and under labels alone, nothing is below `first`."""
    record = json.loads((ROOT / "docs/studies/pilots/llf.json").read_text(encoding="utf-8"))
    assert {one["entry"] for one in record["candidates"]} == {e.name for e in pilot.candidates()}
    assert set(record["seeds"]).isdisjoint(range(100))
    mine = [one for one in record["candidates"] if one["entry"].startswith("llf")]

    def best(feedback: str) -> dict[str, Any]:
        return min(mine, key=lambda one: float(one[feedback]["over_first"]))

    assert best("scalar")["entry"] == llf.TUNED.name
    for feedback in ("both", "softmax"):
        assert best(feedback)["entry"].startswith("llf, λ = 1,")
        assert best(feedback)[feedback]["over_first"] == 1.0


def test_it_runs() -> None:
    rows = llf.LLF_STUDY.reproduce(Bench(Store(), quick=True), range(2))
    assert {row.row for row in rows} >= {entry.name for entry in llf.PLAYED}
