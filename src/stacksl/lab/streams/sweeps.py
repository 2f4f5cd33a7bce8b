"""Sweeps and effects that test a sentence of the paper's parameter section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacksl.lab.statistics.effects import Effects, contrast
from stacksl.lab.study.study import Line

SCALAR: Mapping[str, Any] = {"kind": "iid", "feedback": "scalar", "dim": 20}
SOFTMAX: Mapping[str, Any] = {"kind": "iid", "feedback": "softmax", "dim": 20}
MANY: Mapping[str, Any] = {**SOFTMAX, "candidates": 64}
HEAVY: Mapping[str, Any] = {"kind": "heavy", "share": 0.02, "dim": 20}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of advice, what is swept to test it, and what is measured of the sweep.

    Attributes:
        key: its name, with which its lines begin.
        text: what the paper says.
        source: the stream.
        lines: the sweep.
        metric: what the table shows of each line.
        effect: what is measured of the sweep, and in which unit.
        effects: the same as numbers, one a seed, above 0 where the sentence is right.
        presence: whether the effect is a share of something that is there or not, never below 0.
    """

    key: str
    text: str
    source: Mapping[str, Any]
    lines: tuple[Line, ...]
    metric: str
    effect: str
    effects: Effects
    presence: bool = False


def sweep(
    key: str, name: str, values: Sequence[Any], budget: float = 0.1, **settings: Any
) -> tuple[Line, ...]:
    """A line a value; a callable among the settings is given the value."""
    return tuple(
        Line(
            f"{key}: {name} = {value:g}, β = {budget:g}",
            {
                "advice": key,
                "value": value,
                **{k: v(value) if callable(v) else v for k, v in settings.items()},
            },
            budget,
        )
        for value in values
    )


def names(lines: Sequence[Line]) -> list[str]:
    """The rows of the lines."""
    return [line.row for line in lines]


def sgd(**settings: Any) -> Callable[[Any], Mapping[str, Any]]:
    """Settings of `sgd` by a value, which those take that are None; no KL term, no clipping."""
    return lambda value: {
        "kl_weight": 0.0,
        "clip": "none",
        **{k: value if v is None else v for k, v in settings.items()},
    }


def ends(
    key: str,
    text: str,
    source: Mapping[str, Any],
    lines: tuple[Line, ...],
    metric: str,
    effect: str,
    *,
    rising: bool = False,
) -> Sentence:
    """The first value has more of `metric` than the last; the last more where it is `rising`."""
    first, last = names(lines)[:1], names(lines)[-1:]
    effects = contrast(metric, last, first) if rising else contrast(metric, first, last)
    return Sentence(key, text, source, lines, metric, effect, effects)


def sides(
    key: str,
    text: str,
    source: Mapping[str, Any],
    lines: tuple[Line, ...],
    within: tuple[float, float],
    metric: str = "final_regret",
    called: str = "regret of the last θ",
) -> list[Sentence]:
    """A recommended range, a sentence a side: values outside on it lose more than those inside."""
    low, high = within
    rows = {line.row: float(line.settings["value"]) for line in lines}
    inside = [row for row, value in rows.items() if low <= value <= high]
    outside = {
        "below": [row for row, value in rows.items() if value < low],
        "above": [row for row, value in rows.items() if value > high],
    }
    return [
        Sentence(
            f"{key}, {side}",
            text,
            source,
            lines,
            metric,
            f"{called}, {side} the range less inside",
            contrast(metric, those, inside),
        )
        for side, those in outside.items()
    ]
