"""Effects of a sweep: one number for each seed, above 0 where the claim holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from stacksl.lab.streams.trial import Samples

Effects: TypeAlias = Callable[[Samples], Sequence[float]]
"""From the numbers of all lines to one number a seed."""

SOME, MOST = 0.05, 0.95
CLOSE = 0.05
"""How far the labels asked for may be from B, in shares of B."""


def contrast(metric: str, more: Sequence[str], less: Sequence[str]) -> Effects:
    """By how much the mean of `metric` over the rows `more` is above that over `less`, by seed."""

    def found(samples: Samples) -> Sequence[float]:
        high, low = (np.mean([samples[r][metric] for r in rows], axis=0) for rows in (more, less))
        return [float(x) for x in high - low]

    return found


def shift_of_best(small: Sequence[str], large: Sequence[str]) -> Effects:
    """Steps of the sweep by which the best value is higher in the rows `small` than in `large`.

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


def near_budget(row: str) -> Effects:
    """By how much |labels asked for / B − 1| on the stream itself is within 5 %, by seed.

    What is asked for is counted up to 2 B, so that too many labels are seen as too few are.
    """
    return lambda samples: [CLOSE - abs(x - 1.0) for x in samples[row]["demand_uncut"]]


def negative(effects: Effects) -> Effects:
    """The same with the other sign."""
    return lambda samples: [-x for x in effects(samples)]
