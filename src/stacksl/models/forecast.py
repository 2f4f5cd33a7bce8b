"""How accurate a model is now and will be after more labels, with 90% intervals.

All functions are pure: arrays in, an `Estimate` out.
Levels are logits of accuracies, and accuracy grows with labels by a power law of its odds: the
logit is linear in log n. What that line is comes from runs on public sets, the scenarios, which
`benchmarks/plan_scenarios.py` measures and fits (`GROWTH`). Two sources of a level, from weak to
strong:

- before a label is bought, the scenarios alone (`Growth.first`): what class names and unlabeled
  items tell was no better for a set that is left out than the mean of the others;
- the labels bought, which are harder than the pool: how often the model was right at which
  probability, carried over to the probabilities of the pool (`carried_over`), and corrected by
  what that missed on the scenarios (`level_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stacksl.core.blocks import Array

FEWEST = 20  # labels from which they say something
Z = 1.6448536269514722  # of the normal distribution: intervals hold 90%


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Normal:
    """A quantity with its standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Growth:
    """What the scenarios say, in logits; coefficients are on `explaining`.

    Attributes:
        sources: the public sets that they are of.
        first: the level at 100 labels.
        missed: coefficients of what is to be added to `carried_over`, and its standard deviation.
        slope: coefficients of the growth per log label, and its standard deviation.
    """

    sources: int
    first: Normal
    missed: tuple[tuple[float, ...], float]
    slope: tuple[tuple[float, ...], float]


GROWTH = Growth(
    7,
    Normal(1.9072561605989287, 1.936814787077896),
    ((0.19098245881887185, 0.34035991768721924, -0.17843181036912403), 0.924332893015619),
    ((0.2611861552807431, -0.044776782326426345, -0.06578662128862355), 0.21587829570184372),
)
"""What `python benchmarks/plan_scenarios.py --from benchmarks/results/plan.json` prints."""


def logit(share: float) -> float:
    """log(p / (1 − p)), for p held between 0.001 and 0.999."""
    clipped = min(max(share, 0.001), 0.999)
    return math.log(clipped / (1 - clipped))


def share_of(level: float) -> float:
    """The share with this logit."""
    return 1 / (1 + math.exp(-level))


def carried_over(confidence: Array, right: Array, pool: Array) -> float:
    """The accuracy on all items, from that on bought ones at the same probability of the choice.

    A logistic regression of `right` on the logit of `confidence`, with a normal prior around "as
    right as it is sure", is averaged over `pool`. It corrects for purchases that were chosen by
    doubt as far as the probability tells what is hard, and no further.

    Args:
        confidence: (n,) the model's probability of its choice, before each label was bought.
        right: (n,) 0 or 1, whether the choice was right.
        pool: (m,) its probability of its choice for all items: those without a label as it is now,
            those bought as it was before their label.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    x, center = _logits(confidence), np.array([0.0, 1.0])

    def loss(coefficients: Array) -> tuple[float, Array]:
        logits, away = coefficients[0] + coefficients[1] * x, coefficients - center
        value = np.sum(np.logaddexp(0.0, logits) - right * logits) + 0.5 * np.sum(_PRIOR * away**2)
        missed = expit(logits) - right
        return float(value), np.array([missed.sum(), missed @ x]) + _PRIOR * away

    fitted = minimize(loss, center, jac=True, method="BFGS").x
    return float(np.mean(expit(fitted[0] + fitted[1] * _logits(pool))))


_PRIOR = np.array([0.25, 4.0])  # inverse variances: 2² of the intercept, 0.5² of the slope


def _logits(shares: Array) -> Array:
    clipped = np.clip(np.asarray(shares, dtype=np.float64), 0.001, 0.999)
    logits: Array = np.log(clipped / (1 - clipped))
    return logits


def explaining(level: float, labels: float, options: int) -> list[float]:
    """What explains errors of a level, and its growth: 1, the level, and labels for each option."""
    return [1.0, level, math.log(labels / options / 10)]


# --- forecasts ----------------------------------------------------------------------------------


def level_of(growth: Growth, carried: float, labels: int, options: int) -> Normal:
    """The level at `labels`, from the accuracy that `carried_over` gives.

    Purchases are harder than the pool, and more so the better a model is.
    """
    level, (coefficients, sd) = logit(carried), growth.missed
    return Normal(level + float(np.dot(explaining(level, labels, options), coefficients)), sd)


def accuracy_at(growth: Growth, level: Normal, labels: int, target: int, options: int) -> Estimate:
    """The accuracy at `target` labels, from the level at `labels` of them."""
    rise, rise_sd = _rise(growth, level.mean, labels, target, options)
    mean, sd = level.mean + rise, math.hypot(level.sd, rise_sd)
    return Estimate(share_of(mean), share_of(mean - Z * sd), share_of(mean + Z * sd))


def gain(growth: Growth, level: Normal, labels: int, extra: int, options: int) -> Estimate:
    """What `extra` labels are expected to add to the accuracy at `labels` of them, as a share.

    Labels never take accuracy away here, so the expectation over the uncertainty of level and
    growth is above the gain at their means. The interval is the 90% range over both.
    """

    def gains(grid: Array) -> Array:
        levels = level.mean + level.sd * grid
        rises = [_rise(growth, start, labels, labels + extra, options) for start in levels]
        grown = [
            start + np.maximum(0.0, rise + sd * grid)
            for start, (rise, sd) in zip(levels, rises, strict=True)
        ]
        return np.asarray(1 / (1 + np.exp(-np.array(grown))) - 1 / (1 + np.exp(-levels[:, None])))

    points, weights = np.polynomial.hermite_e.hermegauss(9)
    weights /= weights.sum()
    ends = gains(np.linspace(-Z, Z, 9))
    return Estimate(float(weights @ gains(points) @ weights), float(ends.min()), float(ends.max()))


def _rise(
    growth: Growth, level: float, labels: int, target: int, options: int
) -> tuple[float, float]:
    """The rise of a level between two numbers of labels, and its standard deviation."""
    coefficients, sd = growth.slope
    log_ratio = math.log(max(target, 1) / max(labels, 1))
    middle_labels = math.sqrt(max(target, 1) * max(labels, 1))
    slope = float(np.dot(explaining(level, middle_labels, options), coefficients))
    return max(0.0, slope) * log_ratio, sd * abs(log_ratio)
