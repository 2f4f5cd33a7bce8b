"""Which decisions of a run float64 would have made otherwise, and how near they were to a tie.

The run's own decisions are replayed to a float64 `Learner` that learns what the run learnt: every
decision is then judged on the same history, those after a first difference too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stacksl.errors import SettingsError
from stacksl.game.engines.arrays import Stream
from stacksl.game.engines.loop import feedback_of, inputs_of, learner_of
from stacksl.game.engines.outcomes import StreamResult
from stacksl.game.engines.terms import Terms
from stacksl.game.inputs import Array, Inputs
from stacksl.game.learner import Learner
from stacksl.game.rules import Clock
from stacksl.items import Decision

__all__ = ["Disagreement", "disagreements"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A decision that float64 makes otherwise.

    Attributes:
        round: t, counted from 1.
        what: the `action`, or the `purchase` of the round's label.
        played: the index of the action that was played; 1 or 0 for a purchase.
        exact: what float64 decides on the same history.
        distance: from a tie, relative: of the two actions' values to the largest absolute value, or
            of the statistic and the threshold to the larger of them.
    """

    round: int
    what: Literal["action", "purchase"]
    played: int
    exact: int
    distance: float


def disagreements(played: StreamResult, stream: Stream, terms: Terms) -> list[Disagreement]:
    """Every decision of `played`, a run of `stream` under `terms`, that float64 makes otherwise.

    Slow: a `Learner` plays all T rounds.

    Raises:
        SettingsError: under a drift guard, whose resets are no decisions of this kind.
    """
    if terms.drift is not None:
        raise SettingsError("decisions under a drift guard are not compared: leave drift out")
    learner = learner_of(stream, terms)
    found: list[Disagreement] = []
    asked = 0
    for start, _, rows in stream.chunks():
        for t, row in enumerate(rows, start):
            inputs = inputs_of(stream, row)
            found += _judged(learner, played, inputs, t, asked)
            forced = _forced(learner, played, inputs, t, asked)
            learner.adopt([forced], [inputs])
            if forced.asked:
                learner.learn(forced, inputs, feedback_of(stream, t, forced))
            asked += forced.asked
    return found


def _decision(
    learner: Learner, played: StreamResult, inputs: Inputs, t: int, asked: int
) -> Decision:
    """What float64 decides where the follower shows what it showed in the run."""
    shown = tuple(range(inputs.size))
    if played.presented is not None:
        shown = tuple(int(x) for x in played.presented[t])
    return learner.decide([str(t)], [inputs], [shown], asked=asked)[0]


def _judged(
    learner: Learner, played: StreamResult, inputs: Inputs, t: int, asked: int
) -> list[Disagreement]:
    exact = _decision(learner, played, inputs, t, asked)
    wants, took = exact.status == "wanted", bool(played.asked[t])
    if wants != took:
        away = 1.0  # one of the two rules above the gate decides, and there is no tie
        if exact.reason == "gate":
            away = _apart(np.array([exact.statistic, exact.threshold]), 0, 1)
        return [Disagreement(t + 1, "purchase", int(took), int(wants), away)]
    choice = int(played.choices[t])
    if choice == exact.choice:
        return []
    view = learner.scorer.bounds(inputs, exact.presented)
    by_bounds = learner.scorer.settings.action == "ucb" or (took and view.asked_choice is not None)
    values = view.upper if by_bounds else view.scores
    places = (exact.presented.index(exact.choice), exact.presented.index(choice))
    away = _apart(values, *places)
    return [Disagreement(t + 1, "action", choice, exact.choice, away)]


def _apart(values: Array, one: int, other: int) -> float:
    """The distance of two of (m,) `values`, relative to the largest absolute one."""
    gap = abs(float(values[one]) - float(values[other]))
    if not math.isfinite(gap):  # a threshold that nothing has set yet
        return 1.0
    return float(gap / np.abs(values).max()) if gap > 0.0 else 0.0


def _forced(learner: Learner, played: StreamResult, inputs: Inputs, t: int, asked: int) -> Decision:
    """Float64's certificate with the run's action and purchase in it, and the state they bring."""
    exact = _decision(learner, played, inputs, t, asked)
    took = bool(played.asked[t])
    clock = Clock(asked, learner.budget, t + 1, learner.horizon)
    state = learner.gate.advance(exact.statistic, took, clock, learner.gate_state)
    return replace(
        exact,
        choice=int(played.choices[t]),
        state=state,
        status="reserved" if took else "skipped",
    )
