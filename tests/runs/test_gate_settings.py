"""A gate's fields are settings of a run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from stacksl.api import prepare
from stacksl.core import GATES
from stacksl.errors import SettingsError
from stacksl.runs.settings.fields import Gate, descriptions, gate_group
from stacksl.runs.settings.resolve import resolve

from .conftest import class_items, pair_items


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"gate.gate_scale": 1}, "gate_scale belongs to the gate 'llf', which was not chosen"),
        ({"gate": "information", "gate.floor": "high"}, "floor must be a valid number, not 'high'"),
        (
            {"gate": "information", "flooor": 1},
            "unknown setting 'flooor': did you mean 'gate.floor'?",
        ),
        ({"gate": "information", "gate.floor": 2}, r"needs a reserve in \(0, 1\] and a floor in"),
        (
            {"gate": "margin", "gate.kappa": 1},
            "kappa belongs to the gate 'llf', which was not chosen",
        ),
    ],
    ids=str,
)
def test_a_wrong_setting_of_a_gate_is_one_sentence(given, sentence) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        resolve(given)
    assert "; " not in str(caught.value)


@pytest.mark.parametrize("gate", sorted(GATES))
def test_a_gate_s_settings_are_its_fields_absent_and_explained(gate: str) -> None:
    own = {each.name for each in fields(GATES[gate])}
    calibrated = {"kappa", "warmup"} if gate == "llf" else set()
    added = gate_group(gate).model_fields.keys() - Gate.model_fields.keys()
    assert added - calibrated == own - Gate.model_fields.keys()
    made = resolve({"gate": gate}).settings.gate
    assert all(getattr(made, name) is None for name in own)
    known = descriptions()
    assert all(known[f"gate.{name}"].split(" (gate ")[0] for name in own)


@pytest.mark.parametrize(
    ("make", "given", "gate"),
    [
        (class_items, {"mode": "pool"}, "coverage"),
        (class_items, {"mode": "stream"}, "coverage"),
        (class_items, {"mode": "pool", "gate": "margin"}, "margin"),
        (class_items, {"mode": "pool", "top_k": 4}, "margin"),
        (class_items, {"mode": "stream", "class_names": False}, "margin"),
        (class_items, {"mode": "stream", "refit": False}, "margin"),
        (class_items, {"gate": "information"}, "information"),
        (pair_items, {"mode": "pool"}, "margin"),
    ],
)
def test_what_selects_is_named(make, given: dict[str, Any], gate: str) -> None:
    """And coverage is refused where it cannot be."""
    items, answers = make(20)
    given = {**given, "budget": "5", "features": "hashing"}
    assert prepare(items, answers, settings=given).spec.settings.gate.name == gate
    if gate == "margin" != given.get("gate"):
        with pytest.raises(SettingsError, match="'coverage' needs items that share fixed classes"):
            prepare(items, answers, settings={**given, "gate": "coverage"})


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_settings_that_move_a_threshold_are_warned_of_in_a_pool(mode: str) -> None:
    items, answers = class_items(20)
    wanted = {"mode": mode, "gate": "information", "gate.reserve": 0.3, "budget": "5"}
    warnings = prepare(items, answers, settings=wanted).warnings
    told = "the statistic of 'information' and has no threshold: gate.reserve has an effect"
    assert any(told in each for each in warnings) == (mode == "pool")
