"""A gate's level by bisection on a simulated stream, and what it asks of the stream itself (D16).

The stream is made of warm-up items alone, so that nothing is bought. Of the study `advice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stacksl.core import Gate
from stacksl.core.blocks import Array
from stacksl.core.calibration import warmup_length
from stacksl.core.rng import generator
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.engines import StreamResult, run_stream
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import outcome, play
from stacksl_lab.synthetic.streams import SyntheticStream

LEVELS: Mapping[str, str] = {
    "adpo": "level",
    "width": "scale",
    "lucb": "tolerance",
    "llf": "gate_scale",
}
"""The parameter of each gate family that makes it ask less the larger it is."""

PRECISION = 0.005
CEILING = 2
"""Labels that may be bought, in budgets, where it is counted what a gate asks for."""

_DOUBLINGS = 60  # from a level of 1 up or down before there is said to be no bracket


def bisected(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """The level found on a simulated stream of warm-up items, and its labels on the real one."""
    gate, budget = str(line.settings["bisect"]), line.budget(stream.horizon)
    low, high, jump = _bracket(stream, gate, budget, seed)
    real = play(stream, _gate_at(gate, low), budget, seed=seed)
    return {
        "jump": jump,
        "level": low,
        "level_above": high,
        "demand": voluntary(real) / budget,
        "demand_uncut": demand_uncut(stream, gate, low, budget, seed),
        "demand_uncut_above": demand_uncut(stream, gate, high, budget, seed),
        **outcome(stream, real),
    }


def voluntary(played: StreamResult) -> int:
    """Labels that the gate asked for because its statistic was above its threshold.

    The others are those that the rule above every gate asks when labels left ≥ rounds left.
    """
    return int((played.asked & (played.statistics > played.thresholds)).sum())


def demand_uncut(stream: SyntheticStream, gate: str, level: float, budget: int, seed: int) -> float:
    """Labels that a gate asks for in T rounds, over B, where 2 B may be bought.

    Rounds that repeat the first follow the stream, so that the rule above every gate, which asks
    when as many labels as rounds are left, asks nothing in the T rounds that are counted.
    """
    most = CEILING * budget
    scaled = level * _rescaled(gate, stream.features.shape[2], budget, most)
    played = play(_extended(stream, most), _gate_at(gate, scaled), most, seed=seed)
    return float(played.asked[: stream.horizon].sum()) / budget


def _rescaled(gate: str, dim: int, budget: int, most: int) -> float:
    """What keeps a level where it is when the budget is `most`: `width` counts in what B reaches.

    Its level is scale·√(d log(1 + B/(λd))/B), λ = 1; those of the other gates hold no B.
    """
    if gate != "width":
        return 1.0
    few, many = (math.log(1.0 + count / dim) / count for count in (budget, most))
    return math.sqrt(few / many)


def _extended(stream: SyntheticStream, count: int) -> SyntheticStream:
    """The stream, and its first `count` rounds once more."""
    assert stream.rewards is not None
    return replace(
        stream,
        features=np.concatenate([stream.features, stream.features[:count]]),
        values=np.concatenate([stream.values, stream.values[:count]]),
        rewards=np.concatenate([stream.rewards, stream.rewards[:count]]),
    )


def _gate_at(gate: str, level: float) -> Gate:
    return make_gate(gate, **{LEVELS[gate]: level})


def _bracket(
    stream: SyntheticStream, gate: str, budget: int, seed: int
) -> tuple[float, float, float]:
    """`bracket` of the gate on the simulated stream."""
    warmup = stream.features[: warmup_length(stream.horizon)]
    known: Mapping[str, Any] = {"noise": stream.noise, "norm_bound": stream.norm_bound}
    features, rewards = simulated(warmup, stream.horizon, seed, **known)

    def asked(level: float) -> int:
        played = run_stream(
            "ridge", features, gate=_gate_at(gate, level), budget=budget, rewards=rewards,
            settings=ScorerSettings(**known), seed=seed, certificates=False,
        )  # fmt: skip
        return voluntary(played)

    return bracket(asked, budget)


def bracket(
    asked: Callable[[float], int], budget: int, precision: float = PRECISION
) -> tuple[float, float, float]:
    """The levels around the one at which `asked` falls below `budget`, and by what share it falls.

    The share of the labels is 0 at a root and 1 at an on/off switch. The log of the level is
    bisected until high / low − 1 is at most `precision`.

    Args:
        asked: labels asked for at a level above 0; falling in it, and cut at `budget`.
        budget: B ≥ 1.
        precision: see above.

    Raises:
        SettingsError: no level asks for the whole budget, or every level does.

    >>> low, high, jump = bracket(lambda level: min(50, int(100 / level)), 50)
    >>> round(low, 2), jump
    (2.0, 0.02)
    """
    seen: dict[float, int] = {}

    def enough(level: float) -> bool:
        seen[level] = asked(level)
        return seen[level] >= budget

    low = high = 1.0
    rising = enough(1.0)
    for _ in range(_DOUBLINGS):
        low, high = (high, 2.0 * high) if rising else (0.5 * low, low)
        if enough(high if rising else low) != rising:
            break
    else:
        raise SettingsError(
            f"no level between {min(seen):g} and {max(seen):g} parts spending the budget from not"
            " spending it: choose another budget"
        )
    while high / low - 1.0 > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low, high, (seen[low] - seen[high]) / seen[low]


def simulated(
    warmup: Array, horizon: int, seed: int, *, norm_bound: float, noise: float
) -> tuple[Array, Array]:
    """`horizon` of the warm-up items, drawn again, (T, K, d), and their rewards, (T, K).

    The rewards follow a θ drawn uniformly on the sphere of radius `norm_bound`, with `noise`: what
    the scorer believes before round 1, and no label is bought for it.
    """
    rng = generator(seed, "simulated", horizon, *warmup.shape)
    theta = rng.normal(size=warmup.shape[2])
    theta *= norm_bound / float(np.linalg.norm(theta))
    features = warmup[rng.integers(len(warmup), size=horizon)]
    return features, features @ theta + noise * rng.normal(size=(horizon, 1))
