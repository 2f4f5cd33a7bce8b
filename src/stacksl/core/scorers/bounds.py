"""A scorer's output for one round: scores, policy, widths, and the action played."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.confidence import radius
from stacksl.core.gates.rules import TIE
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.core.scorers.base import LinearScorer
    from stacksl.core.scorers.gradient import GradientScorer

Action = Literal["greedy", "ucb"]


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """One item's scores and confidence bounds, restricted to what was presented.

    UCB(x) = s_x + radius·‖φ(z, x)‖ and LCB(x) with a minus, the norm in V⁻¹ (or H⁻¹).
    All arrays are (m,) and follow the order of `presented`.

    Attributes:
        presented: C_t, indices into the item's full candidates.
        scores: s_x = θᵀφ(z, x), plus the fixed part of the score where features carry one.
        probabilities: π_θ(x | z) within C_t; they add to 1.
        widths: ‖φ(z, x)‖ in V⁻¹, never scaled by the radius; NaN where no matrix is kept.
        pair_widths: ‖φ(z, x) − φ(z, x̂)‖ in V⁻¹, 0 at the choice; NaN where no matrix is kept.
        radius: the confidence radius, in score units.
        dim: d, the columns of φ, or of h for class heads.
        choice: the position (not the candidate's index) of the action played, x̂_t.
        information: tr(F H⁻¹), the information of a label, in nats to first order; for scorers
            that keep no Fisher information the choice's width squared, that of a reward. NaN where
            no matrix is kept.
        volume: log det(V/λI) (nats), 0 before any label; NaN where no matrix is kept.
        prior_width: L/√λ, the largest ‖φ‖ in V⁻¹ before any label.
    """

    presented: tuple[int, ...]
    scores: Array
    probabilities: Array
    widths: Array
    pair_widths: Array
    radius: float
    dim: int
    choice: int
    information: float = float("nan")
    volume: float = float("nan")
    prior_width: float = 1.0

    @property
    def upper(self) -> Array:
        """UCB of each candidate, (m,), in score units."""
        return self.scores + self.radius * self.widths

    @property
    def lower(self) -> Array:
        """LCB of each candidate, (m,), in score units."""
        return self.scores - self.radius * self.widths

    @property
    def spread(self) -> float:
        """The paper's gap Δ_t = max UCB − min LCB, in score units."""
        return float(self.upper.max() - self.lower.min())


def tie_argmax(values: Array, scale: float, indices: tuple[int, ...] | None = None) -> int:
    """The position of the largest of `values`, (m,), ties going to the lowest index.

    Values within 1e-9·`scale` of the maximum tie. `indices` are the candidates'
    indices where `values` does not follow their order; without it positions decide.

    >>> tie_argmax(np.array([1.0, 2.0, 2.0 + 1e-12]), scale=2.0)
    1
    """
    tied = np.flatnonzero(values >= values.max() - TIE * scale)
    if indices is None or len(tied) == 1:
        return int(tied[0])
    return int(min(tied, key=lambda position: indices[position]))


def assemble(
    scorer: LinearScorer | GradientScorer,
    presented: tuple[int, ...],
    scores: Array,
    probabilities: Array,
    widths: Array,
    against: Callable[[int], Array] | float,
    size: int,
    information: float | None = None,
) -> Bounds:
    """The `Bounds` whose choice is the argmax of the scores (`greedy`) or of the UCB (`ucb`).

    The scorer has its `settings`, which name the action and the numbers of the radius, `learned`,
    `rounds`, `dim` and `volume`. `against(i)` gives the (m,) pair widths against position i, or is
    the width of every pair; the radius is that of `size` dimensions; an `information` of None is
    the choice's width squared; the rest is as in `Bounds`.

    Raises:
        SettingsError: scores are not finite.
    """
    if not np.isfinite(scores).all():
        raise SettingsError(
            "scores should be finite numbers, got NaN or infinity: θ has diverged, or features are "
            "not finite; lower the learning rate, or repair the features"
        )
    settings = scorer.settings
    reached = radius(
        settings.noise,
        size,
        scorer.learned if settings.radius_counts == "learned" else scorer.rounds,
        settings.ridge,
        settings.delta,
        settings.norm_bound,
        settings.feature_norm,
    )
    reach = reached * widths
    scale = float(np.nanmax(np.abs(scores) + np.nan_to_num(reach)))
    values = scores + reach if settings.action == "ucb" else scores
    choice = tie_argmax(values, scale, presented)
    others = np.arange(len(scores)) != choice
    return Bounds(
        presented,
        scores,
        probabilities,
        widths,
        against(choice) if callable(against) else np.where(others, against, 0.0),
        reached,
        scorer.dim,
        choice,
        float(widths[choice]) ** 2 if information is None else information,
        scorer.volume,
        settings.feature_norm / math.sqrt(settings.ridge),
    )
