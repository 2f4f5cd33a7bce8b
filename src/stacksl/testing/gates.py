"""The contract of gates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from stacksl.core.gates.registry import GATES, Gate
from stacksl.core.gates.rules import Clock, forced
from stacksl.core.scorers.base import Bounds
from stacksl.errors import kind_and_place


@contextmanager
def asserting() -> Iterator[None]:
    """Turn any error of a part that is checked into an `AssertionError`."""
    try:
        yield
    except Exception as fault:
        if isinstance(fault, AssertionError):
            raise
        location = kind_and_place(fault)
        raise AssertionError(
            f"the check should end without an error, got {location}: {fault}"
        ) from fault


@asserting()
def check_gate(kind: type[Any], draws: int = 100, seed: int = 0) -> None:
    """Check a class of gates, with its default parameters, over so many drawn rounds.

    The class must be in `GATES` under its name.

    Raises:
        AssertionError: it breaks the contract; the message says how.
    """
    assert GATES.get(kind.name) is kind, f"'{kind.name}' should be in GATES: GATES[name] = class"
    expect_frozen(kind)
    expect_no_widths(kind())
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        gate, took = kind(), bool(rng.integers(2))
        view, clock = drawn_view(rng), drawn_clock(rng)
        expect_numbers(gate, view, clock, float(rng.random()), took)
        expect_shift(gate, view, clock, float(rng.uniform(-50, 50)))
        views = [drawn_view(rng) for _ in range(int(rng.integers(1, 60)))]
        expect_budget(
            gate, views, rng.random(len(views)).tolist(), int(rng.integers(len(views) + 1))
        )


def make_view(scores: Sequence[float], widths: Sequence[float], radius: float = 1.0) -> Bounds:
    """What a scorer says of an item whose candidates have these scores and widths."""
    s, w = np.array(scores), np.array(widths)
    choice = int(np.argmax(s))
    pairs = np.where(np.arange(len(s)) == choice, 0.0, w)
    even = np.full(len(s), 1 / len(s))
    information = float(w[choice]) ** 2
    presented = tuple(range(len(s)))
    return Bounds(presented, s, even, w, pairs, radius, 4, choice, information, volume=0.5)


def drawn_view(rng: np.random.Generator) -> Bounds:
    """A view of two to six candidates; some have equal scores, some no width."""
    size = int(rng.integers(2, 7))
    scores, widths = rng.uniform(-100, 100, size), rng.uniform(0, 100, size)
    scores[rng.random(size) < 0.2], widths[rng.random(size) < 0.2] = 0.0, 0.0
    return make_view(scores.tolist(), widths.tolist(), float(rng.choice([0.0, 1.0, 10.0])))


def drawn_clock(rng: np.random.Generator) -> Clock:
    """A round of a run of at most 1,000 in which a label is left."""
    horizon = int(rng.integers(1, 1001))
    budget = int(rng.integers(1, horizon + 1))
    return Clock(int(rng.integers(budget)), budget, int(rng.integers(1, horizon + 1)), horizon)


def expect_frozen(kind: type[Any]) -> None:
    """It is a frozen dataclass with a docstring, whose values are equal for equal parameters."""
    gate = kind()
    assert is_dataclass(gate), f"{kind.__name__} should be a dataclass"
    assert gate == kind(), "two gates with equal parameters should be equal"
    assert hash(gate) == hash(kind()), "two gates with equal parameters should have one hash"
    for name in ("ranks", "exact_spend"):
        assert isinstance(getattr(gate, name), bool), f"{name} should be True or False"
    assert kind.__dataclass_params__.frozen, f"{kind.__name__} should be frozen"
    assert (kind.__doc__ or "").strip(), "its docstring is what `stacksl ls gates` prints"


def expect_numbers(gate: Gate, view: Bounds, clock: Clock, u: float, took: bool) -> None:
    """It gives Python floats, and the same ones again: it remembers nothing but its state."""
    state: Any = gate.start()
    assert len(state or ()) == 4, f"the state should be four floats, got {state}"
    for _ in range(3):
        g = gate.statistic(view, clock, state)
        threshold = gate.threshold(g, u, clock, state)
        next_state: Any = gate.advance(g, took, clock, state)
        assert type(g) is float, f"the statistic should be a float, got a {type(g).__name__}"
        assert math.isfinite(g), f"the statistic of finite numbers should be finite, got {g}"
        assert type(threshold) is float, f"the threshold should be a float, got {threshold!r}"
        assert not math.isnan(threshold), "the threshold should be a number, got NaN"
        numbers = [x for x in next_state or () if type(x) is float and not math.isnan(x)]
        assert len(numbers) == 4, f"the state should be four floats, got {next_state}"
        repeated = (
            gate.statistic(view, clock, state),
            gate.threshold(g, u, clock, state),
            gate.advance(g, took, clock, state),
        )
        assert repeated == (g, threshold, next_state), "the same round should give the same numbers"
        state = next_state


def expect_budget(gate: Gate, views: Sequence[Bounds], us: Sequence[float], budget: int) -> None:
    """Under the two rules above every gate it keeps the budget; with `exact_spend` it spends it."""
    state, spent, horizon = gate.start(), 0, len(views)
    for t, (view, u) in enumerate(zip(views, us, strict=True), start=1):
        clock = Clock(spent, budget, t, horizon)
        g = gate.statistic(view, clock, state)
        verdict = forced(clock, gate.exact_spend)
        asks = verdict == 1 or (verdict == 0 and g > gate.threshold(g, float(u), clock, state))
        state = gate.advance(g, asks, clock, state)
        spent += asks
    assert spent <= budget, f"{spent} labels were asked of {budget}"
    assert spent == budget or not gate.exact_spend, f"only {spent} labels were asked of {budget}"


def expect_shift(gate: Gate, view: Bounds, clock: Clock, shift: float) -> None:
    """A constant added to all scores changes nothing, as it changes no policy.

    This is about scores and radii that a constant of some ten does not round away: a radius is 0 or
    at least 0.001, since a gate may divide by it. Where rounding makes or breaks a tie of the best
    scores the choice is another, and nothing is compared.
    """
    shifted_view = make_view((view.scores + shift).tolist(), view.widths.tolist(), view.radius)
    if shifted_view.choice != view.choice:
        return
    g, shifted_g = (gate.statistic(case, clock, gate.start()) for case in (view, shifted_view))
    assert math.isclose(g, shifted_g, rel_tol=1e-9, abs_tol=1e-9), (
        f"{shift} added to all scores should change nothing, but the statistic {g} is {shifted_g}"
    )


def expect_no_widths(gate: Gate, *, finite: bool = False) -> None:
    """Where the scorer keeps no matrix the statistic is NaN, unless it is not made of widths.

    Such a statistic is the same without them, and `finite`.
    """
    nans = np.full(3, math.nan)
    with_widths = make_view([0.5, 1.0, -0.25], [0.7, 0.3, 0.9])
    without_widths = Bounds(
        (0, 1, 2), with_widths.scores, with_widths.probabilities, nans, nans, 1.0, 4, 1, math.nan
    )
    clock = Clock(2, 9, 5, 30)
    g = gate.statistic(without_widths, clock, gate.start())
    assert g != g or g == gate.statistic(with_widths, clock, gate.start()), (
        f"without widths the statistic should be NaN or what it is with them, got {g}"
    )
    assert not (finite and g != g), f"the gate '{gate.name}' needs no widths, got NaN"
