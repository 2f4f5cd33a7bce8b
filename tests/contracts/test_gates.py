"""What every gate in the registry must do, and what no gate may."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.core import GATES, Bounds, Clock, make_gate
from stacksl.core.gates.rules import forced

WITHOUT_WIDTHS = ("always", "first", "random", "uniform", "margin", "entropy")

pytestmark = pytest.mark.parametrize("kind", GATES.values(), ids=GATES)


def a_view(scores: list[float], widths: list[float], radius: float = 1.0) -> Bounds:
    s, w = np.array(scores), np.array(widths)
    choice = int(np.argmax(s))
    pairs = np.where(np.arange(len(s)) == choice, 0.0, w)
    even = np.full(len(s), 1 / len(s))
    told = float(w[choice]) ** 2
    shown = tuple(range(len(s)))
    return Bounds(shown, s, even, w, pairs, radius, 4, choice, told, volume=0.5)


@st.composite
def views(draw: st.DrawFn) -> Bounds:
    size = draw(st.integers(2, 6))
    scores = draw(st.lists(st.floats(-100, 100), min_size=size, max_size=size))
    widths = draw(st.lists(st.floats(0, 100), min_size=size, max_size=size))
    return a_view(scores, widths, draw(st.floats(0, 10)))


@st.composite
def clocks(draw: st.DrawFn) -> Clock:
    horizon = draw(st.integers(1, 1000))
    budget = draw(st.integers(1, horizon))
    asked, round = draw(st.integers(0, budget - 1)), draw(st.integers(1, horizon))
    return Clock(asked, budget, round, horizon)


def test_it_is_a_frozen_dataclass_with_a_line_in_the_registry(kind: Any) -> None:
    gate = kind()
    assert is_dataclass(gate)
    assert hash(gate) == hash(kind())
    assert gate == kind()
    assert isinstance(gate.ranks, bool)
    assert gate.exact_spend is (gate.name != "llf")
    for field in fields(gate):
        with pytest.raises(FrozenInstanceError):
            setattr(gate, field.name, 1.0)
    assert (type(gate).__doc__ or "").strip()


@given(views(), clocks(), st.floats(0, 1, exclude_max=True), st.booleans())
@settings(max_examples=50, deadline=None)
def test_it_takes_numbers_and_gives_numbers(kind: Any, view, clock, u, took) -> None:
    gate = kind()
    state: Any = gate.start()
    assert len(state) == 4
    for _ in range(3):
        g = gate.statistic(view, clock, state)
        threshold = gate.threshold(g, u, clock, state)
        after = gate.advance(g, took, clock, state)
        assert type(g) is float
        assert type(threshold) is float
        assert math.isfinite(g)
        assert not math.isnan(threshold)
        assert len(after) == 4
        assert all(type(x) is float and not math.isnan(x) for x in after)
        # the same round gives the same numbers: a gate remembers nothing but its state
        assert gate.statistic(view, clock, state) == g
        assert gate.threshold(g, u, clock, state) == threshold
        assert gate.advance(g, took, clock, state) == after
        state = after


@given(st.lists(views(), min_size=1, max_size=60), st.data())
@settings(max_examples=50, deadline=None)
def test_with_the_two_rules_above_it_the_budget_is_kept_and_used_up(kind: Any, seen, data) -> None:
    gate = kind()
    horizon = len(seen)
    budget = data.draw(st.integers(0, horizon))
    rolls = data.draw(st.lists(st.floats(0, 0.999), min_size=horizon, max_size=horizon))
    state, asked = gate.start(), 0
    for t, (view, u) in enumerate(zip(seen, rolls, strict=True), start=1):
        clock = Clock(asked, budget, t, horizon)
        g = gate.statistic(view, clock, state)
        verdict = forced(clock, gate.exact_spend)
        asks = verdict == 1 or (verdict == 0 and g > gate.threshold(g, u, clock, state))
        state = gate.advance(g, asks, clock, state)
        asked += asks
    assert asked <= budget
    assert asked == budget or not gate.exact_spend


@given(views(), clocks(), st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_adding_a_constant_to_all_scores_changes_nothing(kind: Any, view, clock, shift) -> None:
    gate = kind()
    moved = a_view((view.scores + shift).tolist(), view.widths.tolist(), view.radius)
    close = np.diff(np.sort(view.scores)).min() < 1e-6
    if moved.choice != view.choice or (
        gate.name in ("adpo", "dgs") and close
    ):  # rounding made or broke a tie
        return
    ours = gate.statistic(moved, clock, gate.start())
    assert ours == pytest.approx(gate.statistic(view, clock, gate.start()), abs=1e-9, rel=1e-9)


def test_without_widths_there_is_no_statistic_made_of_them(kind: Any) -> None:
    """Without a matrix all widths are NaN: so is the statistic, or it does not depend on them."""
    nothing = np.full(3, math.nan)
    known = a_view([0.5, 1.0, -0.25], [0.7, 0.3, 0.9])
    unknown = Bounds(
        (0, 1, 2), known.scores, known.probabilities, nothing, nothing, 1.0, 4, 1, math.nan
    )
    gate, clock = kind(), Clock(2, 9, 5, 30)
    g = gate.statistic(unknown, clock, gate.start())
    assert math.isnan(g) or g == gate.statistic(known, clock, gate.start())
    if gate.name in WITHOUT_WIDTHS:
        assert not math.isnan(g)


def test_it_is_made_by_its_name_and_an_unknown_parameter_is_named(kind: Any) -> None:
    assert make_gate(kind.name) == kind()
    with pytest.raises(ValueError, match=f"'{kind.name}' has no parameter 'colour'"):
        make_gate(kind.name, colour=1)
