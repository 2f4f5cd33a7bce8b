"""A gate's fields are settings of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from stacksl.api import Run, prepare
from stacksl.core import GATES
from stacksl.core.gates.rules import GateState
from stacksl.errors import SettingsError
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import resolve, settings_type
from stacksl.runs.spec import RunSpec

from .conftest import class_items, pair_items


@dataclass(frozen=True, slots=True)
class Unsure:
    """A gate of somebody else: ask below a level of confidence."""

    level: float = 0.5
    ridge: float = 9.0
    strictly: bool = False
    name: ClassVar[str] = "unsure"
    ranks: ClassVar[bool] = True
    exact_spend: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise SettingsError(f"the gate 'unsure' needs a level in (0, 1), got {self.level}")

    def start(self) -> GateState:
        return (0.0, 0.0, 0.0, 0.0)

    def statistic(self, view: Any, clock: Any, state: GateState) -> float:
        return 1.0 - float(view.probabilities.max())

    def threshold(self, g: float, u: float, clock: Any, state: GateState) -> float:
        return self.level

    def advance(self, g: float, took: bool, clock: Any, state: GateState) -> GateState:
        return state


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(GATES, "unsure", Unsure)
    return "unsure"


def test_a_run_with_a_new_gate_s_setting_is_played_and_read_again(unsure, tmp_path) -> None:
    given = {"gate": unsure, "level": "0.25", "ridge": 0.5, "budget": 4, "features": "hashing"}
    plan = prepare(*class_items(40), settings=given, out=tmp_path / "run")
    learner, _ = build_learner(plan.settings, _block(), list(range(10)), 4)
    assert learner.gate == Unsure(level=0.25, ridge=0.5)
    run = plan.start()
    assert Run.open(run.path).folder.config()["level"] == 0.25
    again = RunSpec.open(run.folder)
    assert again.settings == plan.settings
    assert again.resolved.origin["level"] == "flag"
    assert resolve(config=plan.spec.resolved.explicit()).settings == plan.settings


def _block() -> Any:
    import numpy as np

    from stacksl.core import PairBlock

    rows = np.random.default_rng(0).normal(size=(40, 3)) / 4
    return PairBlock(rows, np.arange(0, 41, 4))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"level": 0.3}, "level belongs to the gates adpo, unsure, but the gate is 'margin'"),
        ({"gate": "unsure", "level": 3}, r"the gate 'unsure' needs a level in \(0, 1\), got 3.0"),
        ({"gate": "unsure", "level": "high"}, "level must be a number, not 'high'"),
        ({"gate": "unsure", "levle": 1}, "unknown setting 'levle': did you mean 'level'?"),
        ({"gate": "llf", "reading": "both"}, "reading must be 'else' or 'literal', not 'both'"),
        ({"gate": "contested", "floor": 2}, r"needs a reserve in \(0, 1\] and a floor in \(0, 1\)"),
        ({"gate": "margin", "kappa": 1}, "kappa belongs to the gate 'llf', but the gate is 'marg"),
    ],
    ids=str,
)
def test_a_wrong_setting_of_a_gate_is_one_sentence(unsure, given, sentence) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        resolve(given)
    assert "; " not in str(caught.value)


@pytest.mark.parametrize("gate", sorted(GATES))
def test_a_gate_s_settings_are_its_fields_and_absent_by_default(gate: str) -> None:
    kind = settings_type(gate)
    added = kind.model_fields.keys() - Settings.model_fields.keys()
    own = {each.name for each in fields(GATES[gate])}
    assert added == own - Settings.model_fields.keys()
    assert all(getattr(resolve({"gate": gate}).settings, name) is None for name in added)


@pytest.mark.parametrize(
    ("make", "given", "gate"),
    [
        (class_items, {"mode": "pool"}, "coverage"),
        (class_items, {"mode": "stream"}, "coverage"),
        (class_items, {"mode": "pool", "gate": "margin"}, "margin"),
        (class_items, {"mode": "pool", "follower": "hard"}, "margin"),
        (class_items, {"mode": "stream", "names": False}, "margin"),
        (class_items, {"mode": "stream", "aim": "regret"}, "information"),
        (pair_items, {"mode": "pool"}, "margin"),
    ],
)
def test_what_selects_is_named(make, given: dict[str, Any], gate: str) -> None:
    items, answers = make(20)
    plan = prepare(items, answers, settings={**given, "budget": "5", "features": "hashing"})
    assert plan.settings.gate == gate


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (pair_items, {"mode": "pool"}),
        (class_items, {"mode": "pool", "follower": "hard"}),
        (class_items, {"mode": "stream", "names": False}),
        (class_items, {"mode": "stream", "refit": False}),
    ],
)
def test_coverage_is_refused_where_it_cannot_be(make, given: dict[str, Any]) -> None:
    items, answers = make(20)
    with pytest.raises(SettingsError, match="'coverage' needs items that share fixed classes"):
        prepare(items, answers, settings={**given, "gate": "coverage", "budget": "5"})


def test_the_old_name_of_coverage_is_told() -> None:
    with pytest.raises(SettingsError, match="it is a query strategy, given by --gate coverage"):
        resolve({"coverage": False})


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_settings_that_move_a_threshold_are_warned_of_in_a_pool(unsure, mode: str) -> None:
    items, answers = class_items(20)
    wanted = {"mode": mode, "gate": "unsure", "level": 0.3, "budget": "5"}
    warnings = prepare(items, answers, settings=wanted).warnings
    told = "a pool is ranked by the statistic of 'unsure' and has no threshold: level has an effect"
    assert any(told in each for each in warnings) == (mode == "pool")
