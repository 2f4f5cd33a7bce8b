"""Shares of runs in which something held, with exact intervals."""

from __future__ import annotations

from stacksl.lab.study.rows import Row


def clopper_pearson(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a share, `hits` of `runs` ≥ 1 independent runs.

    Its ends p are those at which that many hits, or more (fewer), have a probability of
    (1 − level)/2; 0 and 1 where there is no hit and no miss. A one-sided bound of 95 % is an end of
    the interval at `level` 0.9.

    Source: Clopper and Pearson (1934), Biometrika 26.

    >>> [round(end, 4) for end in clopper_pearson(100, 100)]
    [0.9638, 1.0]
    """
    from scipy.stats import beta

    tail = (1.0 - level) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.ppf(1.0 - tail, hits + 1, runs - hits))
    return low, high


def interval_of(row: Row) -> tuple[float, float]:
    """The exact interval of a row whose value is the share of its seeds."""
    return clopper_pearson(round((row.value or 0.0) * row.seeds), row.seeds)


def held(row: Row, promised: float) -> str:
    """What a share says of a promised probability, by its exact 95 % interval.

    `holds` where all of it is at least `promised`, `fails` where all of it is below, else `open`.
    """
    low, high = interval_of(row)
    if low >= promised:
        return "holds"
    return "fails" if high < promised else "open"
