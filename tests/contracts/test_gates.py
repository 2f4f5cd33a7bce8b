"""Every gate in the registry keeps the contract, over rounds that Hypothesis looks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.core import GATES, Bounds, Clock, GateState
from stacksl.core.gates.registry import make_gate
from stacksl.testing import check_gate, gates

WITHOUT_WIDTHS = ("always", "first", "random", "uniform", "margin", "entropy")

of_every_gate = pytest.mark.parametrize("kind", GATES.values(), ids=GATES)
RADII = st.just(0.0) | st.floats(1e-3, 10)


@st.composite
def views(draw: st.DrawFn) -> Bounds:
    size = draw(st.integers(2, 6))
    scores = draw(st.lists(st.floats(-100, 100), min_size=size, max_size=size))
    widths = draw(st.lists(st.floats(0, 100), min_size=size, max_size=size))
    return gates.make_view(scores, widths, draw(RADII))


@st.composite
def clocks(draw: st.DrawFn) -> Clock:
    horizon = draw(st.integers(1, 1000))
    budget = draw(st.integers(1, horizon))
    asked, round = draw(st.integers(0, budget - 1)), draw(st.integers(1, horizon))
    return Clock(asked, budget, round, horizon)


@of_every_gate
def test_it_is_a_frozen_dataclass(kind: Any) -> None:
    gates.expect_frozen(kind)
    assert kind.exact_spend is (kind.name != "llf")


@of_every_gate
@given(views(), clocks(), st.floats(0, 1, exclude_max=True), st.booleans())
@settings(max_examples=50, deadline=None)
def test_it_takes_numbers_and_gives_numbers(kind: Any, view, clock, u, took) -> None:
    gates.expect_numbers(kind(), view, clock, u, took)


@of_every_gate
@given(st.lists(views(), min_size=1, max_size=60), st.data())
@settings(max_examples=50, deadline=None)
def test_with_the_two_rules_above_it_the_budget_is_kept_and_used_up(kind: Any, seen, data) -> None:
    count = len(seen)
    rolls = data.draw(st.lists(st.floats(0, 0.999), min_size=count, max_size=count))
    gates.expect_budget(kind(), seen, rolls, data.draw(st.integers(0, count)))


@of_every_gate
@given(views(), clocks(), st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_adding_a_constant_to_all_scores_changes_nothing(kind: Any, view, clock, shift) -> None:
    gap = min(b - a for a, b in pairwise(sorted(view.scores)))
    if kind.name in ("adpo", "dgs") and gap < 1e-6:  # rounding makes or breaks a tie
        return
    gates.expect_shift(kind(), view, clock, shift)


@of_every_gate
def test_without_widths_there_is_no_statistic_made_of_them(kind: Any) -> None:
    gates.expect_no_widths(kind(), finite=kind.name in WITHOUT_WIDTHS)


@of_every_gate
def test_it_is_made_by_its_name_and_an_unknown_parameter_is_named(kind: Any) -> None:
    assert make_gate(kind.name) == kind()
    with pytest.raises(ValueError, match=f"'{kind.name}' has no parameter 'color'"):
        make_gate(kind.name, color=1)


# The check for gates of others ------------------------------------------------------------------


@of_every_gate
def test_the_check_passes_every_gate(kind: Any) -> None:
    check_gate(kind, draws=3)


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
