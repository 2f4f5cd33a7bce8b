"""A gate's level by bisection, so that the labels it asks for come to the budget (DESIGN D16).

The gate is run on a simulated stream at levels that converge to the one where its own rule asks for
exactly the budget. Nothing is bought.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.core.rng import generator
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stacksl.core.blocks import Array
    from stacksl.lab.engines import StreamResult

LEVELS: Mapping[str, str] = {
    "adpo": "level",
    "width": "scale",
    "lucb": "tolerance",
    "llf": "gate_scale",
}
"""The parameter of each gate family that makes it ask less the larger it is."""

_DOUBLINGS = 60  # from a level of 1 up or down before there is said to be no bracket


@dataclass(frozen=True, slots=True)
class BudgetLevel:
    """Two neighbouring levels between which a gate ceases to spend a budget.

    Attributes:
        low: the largest level found at which all of the budget is asked for.
        high: the smallest level found at which less is asked for.
        asked_low, asked_high: labels asked for of its own accord at each; the first is the budget.
    """

    low: float
    high: float
    asked_low: int
    asked_high: int

    @property
    def jump(self) -> float:
        """(asked at `low` − asked at `high`) / asked at `low`: 0 at a root, 1 at an on/off switch.

        >>> BudgetLevel(1.0, 1.01, 200, 150).jump
        0.25
        """
        return (self.asked_low - self.asked_high) / self.asked_low


def bracket_level(
    asked: Callable[[float], int], budget: int, *, precision: float = 1e-3
) -> BudgetLevel:
    """The levels around the one at which `asked` falls below `budget`, by bisection of its log.

    Args:
        asked: labels asked for at a level above 0; falling in it, and cut at `budget`.
        budget: B ≥ 1.
        precision: high / low − 1 at the end.

    Raises:
        SettingsError: a budget or a precision out of range; or no level asks for the whole
            budget, or every level does.

    >>> found = bracket_level(lambda level: min(50, int(100 / level)), 50)
    >>> round(found.low, 2), found.asked_low, found.asked_high
    (2.0, 50, 49)
    """
    if budget < 1 or not 0.0 < precision < 1.0:
        raise SettingsError(
            f"bisecting a level needs a budget of at least 1 label and a precision in (0, 1), got "
            f"{budget} and {precision}"
        )
    seen: dict[float, int] = {}

    def enough(level: float) -> bool:
        seen[level] = asked(level)
        return seen[level] >= budget

    low, high = _bracket(enough, seen)
    while high / low - 1.0 > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return BudgetLevel(low, high, seen[low], seen[high])


def _bracket(enough: Callable[[float], bool], seen: Mapping[float, int]) -> tuple[float, float]:
    """Neighbouring powers of 2, the larger of which is too much."""
    level = 1.0
    rising = enough(level)
    for _ in range(_DOUBLINGS):
        following = level * (2.0 if rising else 0.5)
        if enough(following) != rising:
            return (level, following) if rising else (following, level)
        level = following
    raise SettingsError(
        f"no level between {min(seen):g} and {max(seen):g} parts spending the budget from not "
        f"spending it: {seen[level]} labels are asked for at {level:g}; choose another budget"
    )


def voluntary(played: StreamResult) -> int:
    """Labels that the gate asked for because its statistic was above its threshold.

    The others are those that the rule above every gate asks when labels left ≥ rounds left.
    """
    return int((played.asked & (played.statistics > played.thresholds)).sum())


def simulated_stream(
    warmup: Array,
    horizon: int,
    *,
    norm_bound: float = 1.0,
    noise: float = 1.0,
    labels: bool = False,
    seed: int = 0,
) -> tuple[Array, NDArray[Any]]:
    """A stream made of warm-up items alone: `horizon` of them, drawn again, with simulated answers.

    The answers follow a θ drawn uniformly on the sphere of radius `norm_bound`: what the scorer
    believes before round 1, and no label is bought for it.

    Args:
        warmup: features of the warm-up items, (T0, K, d).
        horizon: T.
        norm_bound: S.
        noise: σ of the rewards.
        labels: whether the answers are labels, drawn from the softmax of the scores.
        seed: of the draws.

    Returns:
        Features, (T, K, d), and the rewards of all candidates, (T, K), or the labels, (T,).

    Raises:
        SettingsError: no item, or a horizon below 1.

    >>> features, rewards = simulated_stream(np.eye(3)[None], 5)
    >>> features.shape, rewards.shape
    ((5, 3, 3), (5, 3))
    """
    if not len(warmup) or horizon < 1:
        raise SettingsError(
            f"a simulated stream needs at least one warm-up item and one round, got {len(warmup)} "
            f"and {horizon}"
        )
    rng = generator(seed, "simulated", horizon, *warmup.shape)
    theta = rng.normal(size=warmup.shape[2])
    theta *= norm_bound / float(np.linalg.norm(theta))
    features = warmup[rng.integers(len(warmup), size=horizon)]
    values = features @ theta
    if labels:
        return features, (values + rng.gumbel(size=values.shape)).argmax(axis=1)
    return features, values + noise * rng.normal(size=(horizon, 1))
