"""`gates`: every gate of the registry, ratios to the best of a cell, their intervals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.core import Gate
from stacksl.core.gates.registry import First
from stacksl_lab.baselines.registry import GATES, make_gate
from stacksl_lab.streams.gates.entries import (
    DEFAULTS,
    RESET,
    Entry,
    Place,
    entries,
    place_of,
    swept_of,
)
from stacksl_lab.streams.gates.pilot import PILOT_SEEDS, candidates
from stacksl_lab.streams.gates.scores import scores, summary
from stacksl_lab.streams.gates.study import BUDGETS, GATES_STUDY, measure, trial
from stacksl_lab.streams.trial import StreamStudy, samples
from stacksl_lab.synthetic.playing import play, regrets
from stacksl_lab.synthetic.streams import KINDS, make_stream

from .small_cases import rows_by_line

TUNED = ", tuned"  # the end of the name of an entry with the pilot's best setting
PILOT = Path(__file__).resolve().parents[3] / "docs" / "studies" / "pilots" / "gates.json"


def test_every_gate_of_the_registry_is_in_it() -> None:
    assert {entry.gate for entry in entries()} == set(GATES) - {"always"}
    names = [entry.name for entry in entries()]
    assert len(set(names)) == len(names)
    assert set(DEFAULTS) <= set(names)
    for entry in entries():
        settings = entry.settings(0.3, 20)
        if settings.get("gate_scale") != "calibrated":
            make_gate(**settings)


def _gate(entry: Entry) -> Gate:
    return make_gate(**entry.settings(0.3, 20))


def _piloted() -> dict[str, list[tuple[Entry, float]]]:
    """The kept pilot's settings by gate, with their geometric means on the way."""
    kept = json.loads(PILOT.read_text(encoding="utf-8"))
    assert kept["seeds"] == list(PILOT_SEEDS)
    found: dict[str, list[tuple[Entry, float]]] = {}
    for one in kept["candidates"]:
        entry = Entry("", one["gate"], one["parameters"])
        mean = one["regret_per_round"]["geometric_mean"]
        found.setdefault(entry.gate, []).append((entry, mean))
    return found


def test_the_kept_pilot_compared_the_grid() -> None:
    kept = [_gate(entry) for settings in _piloted().values() for entry, _ in settings]
    assert len(kept) == len(candidates())
    assert all(_gate(entry) in kept for entry in candidates())


def test_tuned_entries_are_those_that_the_pilot_found_much_better() -> None:
    """A gate has one iff some setting is at least 5% below that it stands at, and it is the best.

    Those that a gate stands at are its entries that the pilot compared too.
    """
    plain = [e for e in entries() if not e.reset and e.parameters.get("gate_scale") is None]
    for gate, settings in _piloted().items():
        best, least = min(settings, key=lambda one: one[1])
        usual = [e for e in plain if e.gate == gate and not e.name.endswith(TUNED)]
        standing = min(mean for one, mean in settings if _gate(one) in map(_gate, usual))
        tuned = [_gate(e) for e in plain if e.gate == gate and e.name.endswith(TUNED)]
        assert tuned == ([_gate(best)] if standing >= 1.05 * least else []), gate


def test_the_grid_has_each_stream_once_and_every_cell() -> None:
    *trials, iid, shift = GATES_STUDY.trials(False)
    sources = [(one.source["kind"], one.source["feedback"]) for one in trials]
    assert sorted(sources) == sorted((k, f) for k in KINDS for f in ("scalar", "softmax"))
    rows = [line.row for one in trials for line in one.lines]
    assert len(set(rows)) == len(rows) == 14 * len(BUDGETS) * len(entries())
    assert all(place_of(row).row == row for row in rows)
    swept = [swept_of(line.row) for one in (iid, shift) for line in one.lines]
    assert len(set(swept)) == len(swept) == 2 * 4 * 4
    assert {s.ridge for s in swept if s} == {1.0, 0.1, 0.01, 0.001}


def test_lines_of_a_trial_play_their_gate_budget_and_action() -> None:
    one = trial("iid", "scalar", 300, [e for e in entries() if e.gate in ("first", "llf")])
    stream = make_stream("iid", "scalar", 3, rounds=300, dim=20)
    found = [measure(stream, line, 3) for line in one.lines]
    by_hand = play(stream, First(), 6, settings={"action": "asked"}, seed=3)
    first = next(n for n, line in zip(found, one.lines, strict=True) if "first" in line.row)
    assert first["regret_per_round"] == pytest.approx(float(regrets(stream, by_hand).mean()))
    assert first["asked_fraction"] == pytest.approx(0.02)
    llf = next(n for n, line in zip(found, one.lines, strict=True) if "llf" in line.row)
    assert llf["asked_fraction"] == pytest.approx(0.02), "c calibrated under its cap opens"


def _made_up(values: dict[tuple[str, str], list[float]]) -> dict[str, dict[str, list[float]]]:
    """Samples of entries in two cells of one feedback and budget."""
    return {
        Place(entry, kind, "scalar", 0.1).row: {
            "regret_per_round": seeds,
            "final_regret": [2 * seed for seed in seeds],
        }
        for (entry, kind), seeds in values.items()
    }


MADE_UP = _made_up(
    {
        ("margin", "iid"): [1.0, 3.0],
        ("margin", "rare"): [8.0, 8.0],
        ("information", "iid"): [3.0, 5.0],
        ("information", "rare"): [2.0, 2.0],
        ("first, reset", "iid"): [100.0, 100.0],
        ("first, reset", "rare"): [100.0, 100.0],
    }
)


def test_scores_of_made_up_numbers_by_hand() -> None:
    """Means 2, 8 and 4, 2: ratios 1, 4 and 2, 1."""
    found = {score.entry: score for score in scores(MADE_UP, "regret_per_round", reset=False)}
    margin, other = found["margin"], found["information"]
    assert (margin.geometric_mean, margin.worst) == pytest.approx((2.0, 4.0))
    assert (other.geometric_mean, other.worst) == pytest.approx((math.sqrt(2), 2.0))
    assert (margin.cell, other.cell) == ("rare · scalar · 0.1", "iid · scalar · 0.1")
    again = scores(MADE_UP, "regret_per_round", reset=True)
    assert [(one.entry, one.geometric_mean) for one in again] == [("first, reset", 1.0)]
    assert scores(MADE_UP, "regret_per_round", reset=False, feedback="softmax") == []


def test_the_summary_names_one_default_of_regret() -> None:
    lines = summary(MADE_UP)
    assert [line["gate"] for line in lines] == ["information", "margin", "first, reset"]
    assert [line["gate"] for line in lines if line["default"]] == ["information"]
    assert [line["aim"] for line in lines] == ["regret", "model", None]
    assert lines[0]["geometric_mean"] == round(math.sqrt(2), 4)
    assert lines[0]["final"]["worst"] == 2.0


def _small() -> StreamStudy:
    few = [
        e
        for e in entries()
        if e.gate in ("first", "contested", "margin")
        and not e.name.removesuffix(RESET).endswith(TUNED)
    ]
    return replace(
        GATES_STUDY,
        trials=lambda quick: [trial(kind, "softmax", 120, few) for kind in ("iid", "concept")],
    )


def test_a_small_battery_gives_rows_and_a_summary() -> None:
    study = _small()
    found = rows_by_line(study, measure)
    rows = study.rows_from(found)
    assert {row.metric for row in rows} >= {"regret_per_round", "final_regret", "worst"}
    assert all(row.study == "gates" and row.seeds == 2 for row in rows)
    assert len(summary(samples(found))) == 8
