"""Numbers, tables and JSON as they are shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stacksl.cli.printing import as_json, gate, spent
from stacksl.cli.verbs import ls
from stacksl.cli.verbs.dry_run import shown_forecast
from stacksl.runs.finish.forecasting import EVERY


def test_the_gate_is_told_with_the_labels_that_it_does_not_choose() -> None:
    of_model = {"mode": "pool", "lm.adapt": "lora", "lm.normalization": "auto"}
    plain = {"gate.name": "margin", "mode": "pool", "lm.adapt": None, "lm.normalization": "auto"}
    assert gate(plain) == "margin"
    assert gate(plain | of_model) == "margin, after up to 25 labels drawn at random"
    assert gate(plain | of_model | {"lm.normalization": "sum"}) == "margin"
    assert gate(plain | {"model_labels": "topic"}) is None


def test_json_has_no_word_that_is_not_json() -> None:
    value = {
        "nan": float("nan"),
        "inf": np.float64("inf"),
        "array": np.arange(2),
        "path": Path("a/b"),
        "pair": (1, None),
        "flag": True,
        "text": "Grüße",
    }
    assert json.loads(as_json(value)) == {
        "nan": None,
        "inf": None,
        "array": [0, 1],
        "path": "a/b",
        "pair": [1, None],
        "flag": True,
        "text": "Grüße",
    }
    assert "Grüße" in as_json(value)


def test_the_forecast_of_a_run_that_goes_on_says_why_its_labels_move_in_steps() -> None:
    found = {"expected": [], "now": None, "labels": 25, "rests_on": "", "reason": ""}
    why = f"It moves in steps of {EVERY}, because smaller steps would reveal an audit's answers."
    assert f"Labels learned  25 so far. {why}" in shown_forecast(found, ls.STEPS)
    assert "steps" not in shown_forecast(found)


def test_a_narrow_interval_has_its_estimate_in_it() -> None:
    now = {"accuracy": 0.9985, "low": 0.9967, "high": 0.9993}
    told = {"expected": [], "now": now, "labels": 30, "rests_on": "", "reason": ""}
    assert "0.999 (0.997 to 0.999)" in shown_forecast(told)
    assert "0.999 (0.91 to 1.00)" in shown_forecast({**told, "now": {**now, "low": 0.91}})


def test_a_run_is_listed_with_all_its_labels() -> None:
    counts = {"rounds": 7, "asked": 7, "spent": 9, "budget": 12}
    row = {"run": "r", "state": "waiting", "audit": None, "test": None, **counts}
    assert ls._row(row) == ("r", "waiting", 7, 9, 12, None), "with those that only measure"
    known = {"accuracy": 0.9, "interval": [0.8, 0.95]}
    assert ls._row({**row, "test": known})[-1] == "90.0% (80.0% to 95.0%)"


def test_what_a_finished_run_spent_was_paid() -> None:
    """Its labels that measure are not among those that `answered` counts."""
    status = {"money": {"spent": 60.0, "budget": 80.0}, "spent": 30, "answered": 20}
    assert spent({**status, "state": "finished"}) == "$60.00 of $80.00"
    assert spent({**status, "state": "waiting"}) == "$60.00 of $80.00, paid or reserved"
