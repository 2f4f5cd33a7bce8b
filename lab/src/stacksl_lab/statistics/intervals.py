"""Intervals: of ratios, slopes and maxima of means by a bootstrap, of shares of runs exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl_lab.study.rows import Row

DRAWS = 2000


def bootstrapped(
    statistic: Callable[[Array], Array], samples: Sequence[Sequence[float]] | Array
) -> tuple[float, float | None]:
    """A statistic of k means and its standard error, by a bootstrap over the seeds.

    Seeds are drawn with replacement, the same for all k, so that rows on the same streams stay
    paired. The standard deviation over draws is taken times √(n / (n − 1)), which for a single
    mean gives its usual standard error.

    Args:
        statistic: what gives a number for k means, (..., k) to (...).
        samples: (k, n), a number for each of n seeds.

    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 6.

    >>> value, error = bootstrapped(ratio, [[2.0, 4.0], [1.0, 2.0]])
    >>> value, error < 1e-12
    (2.0, True)
    """
    table = np.asarray(samples, dtype=np.float64)
    value = float(statistic(table.mean(axis=1)))
    n = table.shape[1]
    if n < 2:
        return value, None
    counts = generator(0, "bootstrap", n).multinomial(n, np.full(n, 1.0 / n), size=DRAWS)
    drawn = statistic(counts @ table.T / n)
    return value, float(drawn.std(ddof=1) * math.sqrt(n / (n - 1)))


def ratio(means: Array) -> Array:
    """The first mean over the second, (..., 2) to (...)."""
    ratios: Array = means[..., 0] / means[..., 1]
    return ratios


def slope_over(places: Sequence[float]) -> Callable[[Array], Array]:
    """The least-squares slope of log mean on log place, (..., k) to (...); places are (k,).

    >>> round(float(slope_over([1.0, 2.0, 4.0])(np.array([3.0, 12.0, 48.0]))), 9)
    2.0
    """
    centered = np.log(np.asarray(places, dtype=np.float64))
    centered = centered - centered.mean()

    def slope(means: Array) -> Array:
        slopes: Array = np.log(means) @ centered / (centered @ centered)
        return slopes

    return slope


def clopper_pearson(hits: int, runs: int) -> tuple[float, float]:
    """The 95% Clopper-Pearson interval of a share, `hits` of `runs` ≥ 1 independent runs.

    Its ends p are those at which that many hits, or more (fewer), have a probability of 2.5%; 0 and
    1 where there is no hit and no miss.

    Source: Clopper and Pearson (1934), Biometrika 26.

    >>> [round(end, 4) for end in clopper_pearson(100, 100)]
    [0.9638, 1.0]
    """
    from scipy.stats import beta

    tail = (1.0 - 0.95) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.ppf(1.0 - tail, hits + 1, runs - hits))
    return low, high


def interval_of(row: Row) -> tuple[float, float]:
    """The exact interval of a row whose value is the share of its seeds."""
    return clopper_pearson(round((row.value or 0.0) * row.seeds), row.seeds)


def promise_verdict(row: Row, promised: float) -> str:
    """What a share says of a promised probability, by its exact 95% interval.

    `holds` where all of it is at least `promised`, `fails` where all of it is below, else `open`.
    """
    low, high = interval_of(row)
    if low >= promised:
        return "holds"
    return "fails" if high < promised else "open"
