"""What is measured of a sweep: one number a seed, above 0 where what is claimed is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from stacksl.studies.lab.trial import Samples

__all__ = ["Effects", "between", "contrast", "negative", "rooted", "shift_of_best"]

Effects: TypeAlias = Callable[[Samples], Sequence[float]]
"""From the numbers of all lines to one number a seed."""

SOME, MOST = 0.05, 0.95
ROOT = 0.05


def contrast(metric: str, more: Sequence[str], less: Sequence[str]) -> Effects:
    """By how much the mean of `metric` over the rows `more` is above that over `less`, by seed."""

    def found(samples: Samples) -> Sequence[float]:
        high, low = (np.mean([samples[r][metric] for r in rows], axis=0) for rows in (more, less))
        return [float(x) for x in high - low]

    return found


def shift_of_best(small: Sequence[str], large: Sequence[str]) -> Effects:
    """Steps of the sweep by which the best value lies higher in the rows `small` than in `large`.

    The best has the least regret of the last θ under its seed; of equals the smallest.
    """

    def found(samples: Samples) -> Sequence[float]:
        few, many = (
            np.argmin([samples[row]["final_regret"] for row in rows], axis=0)
            for rows in (small, large)
        )
        return [float(x) for x in few - many]

    return found


def between(rows: Sequence[str]) -> Effects:
    """The share of the rows in which between 5 and 95 % of the budget are asked for, by seed."""

    def found(samples: Samples) -> Sequence[float]:
        asked = np.array([samples[row]["demand"] for row in rows])
        return [float(x) for x in ((asked > SOME) & (asked < MOST)).mean(axis=0)]

    return found


def rooted(row: str) -> Effects:
    """1 where the labels asked for fall by at most 5 % of B at the level found, else 0."""
    return lambda samples: [float(jump <= ROOT) for jump in samples[row]["jump"]]


def negative(effects: Effects) -> Effects:
    """The same with the other sign."""
    return lambda samples: [-x for x in effects(samples)]
