"""A scorer's output for one round: scores, policy, widths, and the action played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stacksl.core.blocks import Array

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
        prior_width: 1/√λ, the largest ‖φ‖ in V⁻¹ before any label.
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
