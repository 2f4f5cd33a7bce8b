"""Bisection of a gate's level on a simulated stream, and what the level asks of the stream itself.

Of the study `advice`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stacksl.core import Gate, ScorerSettings, make_gate, warmup_length
from stacksl.lab.bisection import LEVELS, BudgetLevel, bracket_level, simulated_stream, voluntary
from stacksl.lab.engines import run_stream
from stacksl.lab.study.store import Numbers
from stacksl.lab.study.study import Line
from stacksl.lab.synthetic.playing import outcome, play
from stacksl.lab.synthetic.streams import SyntheticStream

PRECISION = 0.005
CEILING = 2
"""Labels that may be bought, in budgets, where it is counted what a gate asks for."""


def bisected(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """The level found on a simulated stream of warm-up items, and its labels on the real one."""
    gate, budget = str(line.settings["bisect"]), line.budget(stream.horizon)
    found = _bracket(stream, gate, budget, seed)
    real = play(stream, _made(gate, found.low), budget, seed=seed)
    return {
        "jump": found.jump,
        "level": found.low,
        "level_above": found.high,
        "demand": voluntary(real) / budget,
        "demand_uncut": demand_uncut(stream, gate, found.low, budget, seed),
        "demand_uncut_above": demand_uncut(stream, gate, found.high, budget, seed),
        **outcome(stream, real),
    }


def demand_uncut(stream: SyntheticStream, gate: str, level: float, budget: int, seed: int) -> float:
    """Labels that a gate asks for in T rounds, over B, where 2 B may be bought.

    Rounds that repeat the first follow the stream, so that the rule above every gate, which asks
    when as many labels as rounds are left, asks nothing in the T rounds that are counted.
    """
    most = CEILING * budget
    kept = level * _rescaled(gate, stream.features.shape[2], budget, most)
    played = play(_followed(stream, most), _made(gate, kept), most, seed=seed)
    return float(played.asked[: stream.horizon].sum()) / budget


def _rescaled(gate: str, dim: int, budget: int, most: int) -> float:
    """What keeps a level where it is when the budget is `most`: `width` counts in what B reaches.

    Its level is scale·√(d log(1 + B/(λd))/B), λ = 1; those of the other gates hold no B.
    """
    if gate != "width":
        return 1.0
    few, many = (math.log(1.0 + count / dim) / count for count in (budget, most))
    return math.sqrt(few / many)


def _followed(stream: SyntheticStream, count: int) -> SyntheticStream:
    """The stream, and its first `count` rounds once more."""
    assert stream.rewards is not None
    return replace(
        stream,
        features=np.concatenate([stream.features, stream.features[:count]]),
        values=np.concatenate([stream.values, stream.values[:count]]),
        rewards=np.concatenate([stream.rewards, stream.rewards[:count]]),
    )


def _made(gate: str, level: float) -> Gate:
    return make_gate(gate, **{LEVELS[gate]: level})


def _bracket(stream: SyntheticStream, gate: str, budget: int, seed: int) -> BudgetLevel:
    """The two levels between which the gate ceases to spend B on the simulated stream."""
    warmup = stream.features[: warmup_length(stream.horizon)]
    known: Mapping[str, Any] = {"noise": stream.noise, "norm_bound": stream.norm_bound}
    features, rewards = simulated_stream(warmup, stream.horizon, seed=seed, **known)

    def asked(level: float) -> int:
        played = run_stream(
            "ridge", features, gate=_made(gate, level), budget=budget, rewards=rewards,
            settings=ScorerSettings(**known), seed=seed, certificates=False,
        )  # fmt: skip
        return voluntary(played)

    return bracket_level(asked, budget, precision=PRECISION)
