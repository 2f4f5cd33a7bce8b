"""One score for each gate: ratios to the best of a cell, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl_lab.streams.gates.entries import DEFAULTS, RESET, Place, place_of
from stacksl_lab.streams.trial import Samples
from stacksl_lab.study.rows import Row

METRICS: Mapping[str, str] = {"regret_per_round": "", "final_regret": "final_"}
"""The two metrics, and what the names of those derived from them begin with."""

FEEDBACKS = ("both", "scalar", "softmax")
DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Score:
    """A gate over cells, by its ratios to the best mean of each.

    Attributes:
        entry: the entry's name.
        geometric_mean, worst: of its ratios.
        errors: the bootstrap's standard deviations of the two.
        intervals: their 95% intervals by the basic bootstrap of their logarithms, from 1 up.
        cell: where it is worst.
        cells, seeds: how many of each.
    """

    entry: str
    geometric_mean: float
    worst: float
    errors: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    cell: str
    cells: int
    seeds: int


def ratios(means: Array) -> Array:
    """Means over the smallest of their cell, both (..., entries, cells)."""
    over: Array = means / means.min(axis=-2, keepdims=True)
    return over


def scores(
    samples: Samples, metric: str, *, reset: bool, feedback: str = "both", draws: int = DRAWS
) -> list[Score]:
    """Every entry with (or without) the drift reset over the cells of a feedback.

    A cell is a stream, its feedback and a budget; the best mean is that of the entries with the
    same reset. The bootstrap draws seeds, the same for all entries and budgets of a stream, since
    they share it.
    """
    named = {place_of(row): numbers[metric] for row, numbers in samples.items() if " · " in row}
    mine = {p: v for p, v in named.items() if p.reset == reset and feedback in ("both", p.feedback)}
    if not mine:
        return []
    names = list(dict.fromkeys(place.entry for place in mine))
    cells = list(dict.fromkeys((p.kind, p.feedback, p.budget) for p in mine))
    values = np.array([[mine[Place(name, *cell)] for cell in cells] for name in names])
    drawn = _drawn(values, [cell[:2] for cell in cells], draws)
    return _scores(names, cells, values, drawn)


def _drawn(values: Array, streams: Sequence[tuple[str, str]], draws: int) -> Array:
    """Bootstrap means, (draws, entries, cells), of (entries, cells, seeds) `values`."""
    rng = generator(0, "battery/bootstrap", draws)
    count = values.shape[2]
    weights = {
        stream: rng.multinomial(count, np.full(count, 1.0 / count), size=draws) / count
        for stream in dict.fromkeys(streams)
    }
    return np.stack([weights[s] @ values[:, i].T for i, s in enumerate(streams)], axis=2)


def _scores(
    names: Sequence[str], cells: Sequence[tuple[str, str, float]], values: Array, drawn: Array
) -> list[Score]:
    over, again = ratios(values.mean(axis=2)), ratios(drawn)
    value = np.stack([np.exp(np.log(over).mean(axis=1)), over.max(axis=1)])
    both = np.stack([np.exp(np.log(again).mean(axis=2)), again.max(axis=2)])
    ends, errors = basic(value, both), both.std(axis=1)
    scored = []
    for i, name in enumerate(names):
        kind, feedback, budget = cells[int(over[i].argmax())]
        mean, worst = (_pair(ends[k, i]) for k in (0, 1))
        cell = f"{kind} · {feedback} · {budget:g}"
        numbers = (*_pair(value[:, i]), _pair(errors[:, i]), (mean, worst))
        scored.append(Score(name, *numbers, cell, len(cells), values.shape[2]))
    return scored


def basic(value: Array, drawn: Array) -> Array:
    """95% intervals of ratios by the basic bootstrap of their logarithms, (..., n, 2), from 1 up.

    An estimate that resampling raises is itself too high by about as much: the basic interval is
    value/(quantile/value), where that of percentiles would be moved the wrong way. Of the same
    draws both leave out the same estimates.

    Args:
        value: (..., n) the ratios, at least 1.
        drawn: (..., draws, n) those of bootstrap samples.
    """
    high, low = np.percentile(drawn, [2.5, 97.5], axis=-2)
    ends: Array = np.maximum(1.0, np.stack([value**2 / low, value**2 / high], axis=-1))
    return ends


def _pair(two: Array) -> tuple[float, float]:
    return float(two[0]), float(two[1])


def derive(samples: Samples) -> list[Row]:
    """A row for each entry, feedback, metric and both of its numbers."""
    return list(_rows(samples))


def _rows(samples: Samples) -> Iterator[Row]:
    for metric, start in METRICS.items():
        for feedback in FEEDBACKS:
            for reset in (False, True):
                for score in scores(samples, metric, reset=reset, feedback=feedback):
                    yield _row(score, f"{start}geometric_mean", feedback, 0)
                    yield _row(score, f"{start}worst", feedback, 1)


def _row(score: Score, metric: str, feedback: str, which: int) -> Row:
    settings: dict[str, Any] = {
        "feedback": feedback,
        "cells": score.cells,
        "interval": [round(end, 4) for end in score.intervals[which]],
        "marks": [],
    }
    if which:
        settings["cell"] = score.cell
    return Row(
        "gates",
        score.entry if feedback == "both" else f"{score.entry}, {feedback}",
        metric,
        round(score.worst if which else score.geometric_mean, 6),
        se=round(score.errors[which], 6),
        seeds=score.seeds,
        settings=settings,
    )


def summary(samples: Samples) -> list[dict[str, Any]]:
    """A line an entry, those without reset first, each group from its best geometric mean down.

    `geometric_mean` and `worst` are of the regret on the way, those under `final` of the final
    model's; `aim` is the aim whose default it is, `default` whether that is `regret`.
    """
    lines = []
    for reset in (False, True):
        final = {score.entry: score for score in scores(samples, "final_regret", reset=reset)}
        ranked = scores(samples, "regret_per_round", reset=reset)
        for score in sorted(ranked, key=lambda score: score.geometric_mean):
            aim = DEFAULTS.get(score.entry)
            lines.append(
                {
                    "gate": score.entry,
                    **_score_summary(score),
                    "default": aim == "regret",
                    "aim": aim,
                    "reset": score.entry.endswith(RESET),
                    "final": _score_summary(final[score.entry]),
                }
            )
    return lines


def _score_summary(score: Score) -> dict[str, Any]:
    means, worsts = score.intervals
    return {
        "geometric_mean": round(score.geometric_mean, 4),
        "worst": round(score.worst, 4),
        "geometric_mean_interval": [round(end, 4) for end in means],
        "worst_interval": [round(end, 4) for end in worsts],
        "worst_cell": score.cell,
    }
