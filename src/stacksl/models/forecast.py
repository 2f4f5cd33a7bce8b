"""How accurate a model is now and will be after more labels, with 90% intervals.

All functions are pure: arrays in, an `Estimate` out.
Levels are logits of accuracies, and accuracy grows with labels by a power law of its odds: the
logit is linear in log n. What that line is comes from runs on public sets, the `Scenario`s, which
`benchmarks/plan_scenarios.py` measured. Two sources of a level, from weak to strong:

- before a label is bought, the scenarios alone (`Growth.first`): what class names and unlabeled
  items tell was no better for a set that is left out than the mean of the others;
- the labels bought, which are harder than the pool: how often the model was right at which
  probability, carried over to the probabilities of the pool (`carried_over`), and shifted by what
  that missed on the scenarios (`from_training`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array

FEWEST = 20  # labels from which they say something
_USUAL = 4  # sources that a prior of a deviation counts as
_FIRST_SD, _SHIFT_SD, _SLOPE_SD = 1.0, 0.5, 0.2  # these priors, in logits
_Z = 1.6448536269514722  # of the normal distribution: intervals hold 90%


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run on a public set.

    Attributes:
        source: the set; parts of one set have one source.
        options: K, the number of classes.
        points: (labels, accuracy, what `carried_over` gave) at several numbers of labels.
    """

    source: str
    options: int
    points: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Normal:
    """A quantity with its standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """What the scenarios say, in logits.

    Attributes:
        first: the level at 100 labels.
        shift: what is to be added to `carried_over`.
        slope: coefficients of the growth per log label on `_room`, and its standard deviation.
    """

    first: Normal
    shift: Normal
    slope: tuple[Array, float]


def logit(share: float) -> float:
    """log(p / (1 − p)), for p held between 0.001 and 0.999."""
    held = min(max(share, 0.001), 0.999)
    return math.log(held / (1 - held))


def share_of(level: float) -> float:
    """The share with this logit."""
    return 1 / (1 + math.exp(-level))


def carried_over(sure: Array, right: Array, pool: Array) -> float:
    """The accuracy on all items, from that on bought ones at the same probability of the choice.

    A logistic regression of `right` on the logit of `sure`, with a normal prior around "as right as
    it is sure", is averaged over `pool`. It corrects for purchases that were chosen by doubt as far
    as the probability tells what is hard, and no further.

    Args:
        sure: (n,) the model's probability of its choice, before each label was bought.
        right: (n,) 0 or 1, whether the choice was right.
        pool: (m,) its probability of its choice for all items: those without a label as it is now,
            those bought as it was before their label.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    x, center = _logits(sure), np.array([0.0, 1.0])

    def loss(c: Array) -> tuple[float, Array]:
        along, away = c[0] + c[1] * x, c - center
        value = np.sum(np.logaddexp(0.0, along) - right * along) + 0.5 * np.sum(_PRIOR * away**2)
        missed = expit(along) - right
        return float(value), np.array([missed.sum(), missed @ x]) + _PRIOR * away

    fitted = minimize(loss, center, jac=True, method="BFGS").x
    return float(np.mean(expit(fitted[0] + fitted[1] * _logits(pool))))


_PRIOR = np.array([0.25, 4.0])  # inverse variances: 2² of the intercept, 0.5² of the slope


def _logits(shares: Array) -> Array:
    held = np.clip(np.asarray(shares, dtype=np.float64), 0.001, 0.999)
    logits: Array = np.log(held / (1 - held))
    return logits


# --- what the scenarios say -------------------------------------------------------------------


@cache
def scenarios() -> tuple[Scenario, ...]:
    """The scenarios that the package ships."""
    text = files("stacksl.models").joinpath("scenarios.json").read_text(encoding="utf-8")
    return tuple(
        Scenario(**{**row, "points": tuple(map(tuple, row["points"]))}) for row in json.loads(text)
    )


class _Observation(NamedTuple):
    """One equation of a regression: what a source shows of a quantity under some features."""

    source: str
    features: list[float]
    value: float


@cache
def fitted_growth(known: tuple[Scenario, ...]) -> Growth | None:
    """The growth that the scenarios show; None with fewer than two sources.

    Each source counts the same. The standard deviations are those of the sources left out one
    after the other; see `_left_out`.
    """
    firsts: list[_Observation] = []
    shifts: list[_Observation] = []
    slopes: list[_Observation] = []
    for scenario in known:
        source = scenario.source
        levels = np.array([logit(accuracy) for _, accuracy, _ in scenario.points])
        counts = np.array([labels for labels, _, _ in scenario.points])
        at_100 = float(np.interp(0.0, np.log(counts / 100), levels))
        firsts.append(_Observation(source, [1.0], at_100))
        for at, (labels, _, carried) in enumerate(scenario.points):
            if labels >= FEWEST:
                shifts.append(_Observation(source, [1.0], levels[at] - logit(carried)))
            for later in range(at + 1, len(counts)):
                slope = (levels[later] - levels[at]) / math.log(counts[later] / labels)
                slopes.append(_Observation(source, _room(labels, scenario.options), slope))
    if len({scenario.source for scenario in known}) < 2:
        return None
    first, shift = _left_out(firsts, _FIRST_SD), _left_out(shifts, _SHIFT_SD)
    return Growth(
        Normal(float(first[0][0]), first[1]),
        Normal(float(shift[0][0]), shift[1]),
        _left_out(slopes, _SLOPE_SD),
    )


def _room(labels: float, options: int) -> list[float]:
    """What the growth depends on: labels for each option."""
    return [1.0, math.log(labels / options / 10)]


def _left_out(rows: Sequence[_Observation], usual: float) -> tuple[Array, float]:
    """Coefficients by ridge regression, and the standard deviation on sources left out.

    Few sources say little of how far the next one may be: `usual` is a prior of that deviation, in
    logits, which counts as four sources, and the result is widened by Student's t.
    """
    from scipy.special import stdtrit  # scipy.stats takes long to import

    source = np.array([row.source for row in rows])
    x, y = np.array([row.features for row in rows]), np.array([row.value for row in rows])
    names = sorted(set(source.tolist()))

    def solved(kept: NDArray[np.bool_]) -> Array:
        weight = np.array([1 / np.sum(source[kept] == name) for name in source[kept]])
        ridge = np.diag([1e-9, *([0.5] * (x.shape[1] - 1))])
        coefficients: Array = np.linalg.solve(
            (x[kept] * weight[:, None]).T @ x[kept] + ridge, (x[kept] * weight[:, None]).T @ y[kept]
        )
        return coefficients

    square = []
    for name in names:
        out = source == name
        square.append(float(np.mean((y[out] - x[out] @ solved(~out)) ** 2)))
    count = _USUAL + len(names)
    sd = math.sqrt((_USUAL * usual**2 + sum(square)) / count)
    return solved(np.ones(len(y), dtype=np.bool_)), sd * float(stdtrit(count - 1, 0.95)) / _Z


# --- forecasts ----------------------------------------------------------------------------------


def from_training(known: Growth, sure: Array, right: Array, pool: Array) -> Normal:
    """The level now, from the labels bought; see `carried_over`."""
    level = logit(carried_over(sure, right, pool)) + known.shift.mean
    return replace(known.shift, mean=level)


def ahead(known: Growth, level: Normal, labels: int, wanted: int, options: int) -> Estimate:
    """The accuracy at `wanted` labels, from the level at `labels` of them."""
    rise, spread_out = _rise(known, labels, wanted, options)
    middle, sd = level.mean + rise, math.hypot(level.sd, spread_out)
    return Estimate(share_of(middle), share_of(middle - _Z * sd), share_of(middle + _Z * sd))


def gain(known: Growth, level: Normal, labels: int, more: int, options: int) -> Estimate:
    """What `more` labels add to the accuracy at `labels` of them, as a share.

    The interval is the 90% range over the uncertainty of level and growth.
    """
    rise, sd = _rise(known, labels, labels + more, options)
    grid = np.linspace(-_Z, _Z, 9)
    levels = level.mean + level.sd * grid[:, None]
    rises = np.maximum(rise + sd * grid[None, :], min(rise, 0.0))
    gains = 1 / (1 + np.exp(-levels - rises)) - 1 / (1 + np.exp(-levels))
    middle = share_of(level.mean + rise) - share_of(level.mean)
    return Estimate(middle, float(gains.min()), float(gains.max()))


def _rise(known: Growth, labels: int, wanted: int, options: int) -> tuple[float, float]:
    """The rise of the level between two numbers of labels, and its standard deviation."""
    coefficients, sd = known.slope
    along = math.log(max(wanted, 1) / max(labels, 1))
    middle = math.sqrt(max(wanted, 1) * max(labels, 1))
    slope = float(np.dot(_room(middle, options), coefficients))
    return max(0.0, slope) * along, sd * abs(along)
