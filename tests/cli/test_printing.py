"""Numbers, tables and JSON as they are shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stacksl.cli.printing import as_json, gate, measured, quality
from stacksl.cli.verbs import ls, run
from stacksl.cli.verbs.dry_run import shown_forecast
from stacksl.runs.finish.forecasting import EVERY


def test_the_gate_is_told_with_the_labels_that_it_does_not_choose() -> None:
    of_model = {"mode": "pool", "lm.adapt": "lora", "lm.normalization": "auto"}
    plain = {"gate.name": "margin", "mode": "pool", "lm.adapt": None, "lm.normalization": "auto"}
    assert gate(plain) == "margin"
    assert gate(plain | of_model) == "margin, after up to 25 labels drawn at random"
    assert gate(plain | of_model | {"lm.normalization": "sum"}) == "margin"
    assert gate(plain | {"model_labels": "topic"}) is None


def test_a_run_is_listed_with_all_its_labels() -> None:
    counts = {"rounds": 7, "asked": 7, "spent": 9, "budget": 12}
    row = {"run": "r", "state": "waiting", "audit": None, "test": None, **counts}
    assert ls._row(row) == ("r", "waiting", 7, 9, 12, None), "with those that only measure"


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


def test_an_audit_drawn_late_is_said_to_be_of_the_other_rows() -> None:
    audit = {"accuracy": 0.9, "interval": (0.8, 0.95), "n": 50, "measures": "accuracy"}
    early, late = (measured({**audit, "passed_over": share}) for share in (0.0, 0.2))
    assert early == "accuracy 0.900 (95% interval 0.800 to 0.950, 50 items)"
    assert late == f"{early}, of rows that nobody had been asked about"


@pytest.mark.parametrize(
    ("still", "measures", "told"), [(1, "accuracy", 1), (0, "accuracy", 0), (1, "agreement", 0)]
)
def test_the_accuracy_says_how_open_items_count(still: int, measures: str, told: int) -> None:
    """1 of 68 rows is open and the others are right: that is .993, and no row is wrong."""
    second = {"sampled_open": 0, "differing_open": still}
    audit = {"accuracy": 0.9926, "interval": [0.9, 1.0], "n": 68, "measures": measures}
    result = dict.fromkeys(
        ("column", "table", "stated", "last_report", "test", "stopped", "stop_when", "rest")
    )
    shown = dict(quality({**result, "audit": {**audit, "second": second}}))["By the audit"]
    assert str(shown).startswith(f"{measures} 0.993 (95% interval 0.900 to 1.000, 68 items)")
    open_item = ", with 1 open: each counts half, or as others like it"
    assert str(shown).count(open_item) == told


def test_the_labels_of_a_finished_run_are_those_bought_and_those_that_measure() -> None:
    result = {"state": "finished", "resume": None, "spent": 160, "budget": 160, "rounds": 2000}
    told = run._labels({**result, "mode": "pool", "measuring": 50})
    assert told == "160 of 160 bought, 50 of them only to measure"
    stream = {**result, "mode": "stream", "measuring": 0}
    assert run._labels(stream) == "160 of 160 bought in 2,000 rounds"


def test_the_forecast_of_a_run_that_goes_on_says_why_its_labels_move_in_steps() -> None:
    found = {"expected": [], "now": None, "labels": 25, "rests_on": "", "reason": ""}
    why = f"It moves in steps of {EVERY}, because smaller steps would reveal the audit's answers."
    assert f"Labels learned  25 so far. {why}" in shown_forecast(found, ls.STEPS)
    assert "steps" not in shown_forecast(found)


def test_the_forecast_of_a_run_that_a_model_labels_is_of_agreement() -> None:
    row = {"accuracy": 0.929, "low": 0.9, "high": 0.95}
    found = {"expected": [], "now": row, "labels": 25, "rests_on": "", "reason": ""}
    shown = shown_forecast(found, measure="Agreement with the model")
    assert "Agreement with the model now  0.929" in shown
    assert "Accuracy" not in shown


def test_rows_that_were_added_after_an_audit_are_told() -> None:
    audit = {"accuracy": 0.9, "interval": [0.8, 0.95], "n": 50, "rows": 600, "rows_after": 80}
    assert (measured(audit) or "").endswith("without 80 of 600 rows added after it was drawn")
