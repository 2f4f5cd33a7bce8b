"""Every gate of runs and of the laboratory keeps the contract, over drawn rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from stacksl.core import GATES, Bounds, Clock, GateState
from stacksl.core.gates.registry import LLF, make_gate
from stacksl.testing import check_gate, gates
from stacksl_lab.baselines import registry as laboratory
from stacksl_lab.baselines.registry import BASELINES, CODES

WITHOUT_WIDTHS = ("always", "first", "random", "uniform", "margin", "entropy")

of_every_gate = pytest.mark.parametrize(
    "kind", [*GATES.values(), *BASELINES.values()], ids=[*GATES, *BASELINES]
)


@of_every_gate
def test_it_keeps_the_contract(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check passes a gate, whose statistic needs widths where it should."""
    monkeypatch.setitem(GATES, kind.name, kind)
    check_gate(kind, draws=40)
    gates.expect_no_widths(kind(), finite=kind.name in WITHOUT_WIDTHS)
    assert kind.exact_spend is (kind.name != "llf")


@of_every_gate
def test_it_is_made_by_its_name_and_an_unknown_parameter_is_named(kind: Any) -> None:
    make = laboratory.make_gate if kind.name in BASELINES else make_gate
    assert make(kind.name) == kind()
    with pytest.raises(ValueError, match=f"'{kind.name}' has no parameter 'color'"):
        make(kind.name, color=1)


@pytest.mark.parametrize("kind", BASELINES.values(), ids=BASELINES)
def test_a_gate_of_the_laboratory_is_in_no_run_and_has_a_number_of_its_own(kind: Any) -> None:
    assert kind.name not in GATES
    every = laboratory.GATES.values()
    assert set(CODES) == {*every, LLF}
    assert [other for other in every if CODES[other] == CODES[kind]] == [kind]


# The check for gates of others ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Coin:
    """Ask with a chance of a half, and leave labels over."""

    name: ClassVar[str] = "coin"
    ranks: ClassVar[bool] = False
    exact_spend: ClassVar[bool] = False

    def start(self) -> GateState:
        return (0.0, 0.0, 0.0, 0.0)

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        return 0.5

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        return u

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        return state


class Shifted(Coin):
    """Its statistic follows a constant in the scores."""

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        return float(view.scores.max())


class Forgetful(Coin):
    """Its state is not four floats."""

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> Any:
        return (0.0,)


class Wordy(Coin):
    """It has a text as its statistic."""

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> Any:
        return "ask"


class Stateless(Coin):
    """It has no state."""

    def start(self) -> Any:
        return None

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> Any:
        return None


class Broken(Coin):
    """It raises an error."""

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        return float(math.log(g - g))


class Exact(Coin):
    """It has a statistic that is not a Python float."""

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> Any:
        return view.scores.max() * 0.0


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Coin, None),
        (Shifted, "added to all scores should change nothing"),
        (Forgetful, "the state should be four floats"),
        (Exact, "the statistic should be a float, got a float64"),
        (Wordy, "the statistic should be a float, got a str"),
        (Stateless, "the state should be four floats, got None"),
        (Broken, r"got ValueError in test_gates\.py, line \d+: math domain error"),
    ],
)
def test_a_gate_of_others_is_checked(kind: Any, words: str | None, monkeypatch) -> None:
    with pytest.raises(AssertionError, match="'coin' should be in GATES"):
        check_gate(kind)
    monkeypatch.setitem(GATES, "coin", kind)
    if words is None:
        check_gate(kind)
    else:
        with pytest.raises(AssertionError, match=words):
            check_gate(kind)
