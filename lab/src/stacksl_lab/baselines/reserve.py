"""The gate `reserve`, which keeps labels for costly rounds in place of a price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from stacksl.core.gates.registry import Gate
from stacksl.core.gates.rules import Clock, GateState
from stacksl.errors import SettingsError
from stacksl_lab.baselines import statistics

if TYPE_CHECKING:
    from stacksl.core.scorers.base import Bounds


@final
@dataclass(frozen=True, slots=True)
class Reserve(Gate):
    """A log-determinant reserve: no skip may cost more than a level.

    With B labels, C = `capacity` or dℓ, ℓ = log(1 + B L²/(λd)), and κ = `share`, v =
    exp(C/(κB)) − 1 and the level is 2√v. A round whose contested score G = max over x ≠ x̂ of
    s_x − s_x̂ + β‖φ_x − φ_x̂‖, β the scorer's radius, is above β·level is always asked; each such
    label adds more than C/(κB) to log det V. So κB(1 − log det(V/λI)/C) labels are enough for all
    such rounds to come, and so many are kept for them. No G exceeds β times the widest pair before
    any label, `reach`·L/√λ: where the level is as large, nothing is kept, and v is that width's
    square/4. A β that is above 0 but below some 1e-6 of the largest score would let the rounding of
    the scores decide. The other rounds buy information, tr(F H⁻¹) as in `information`, at the price
    v r^(1 − a/f) with a = 1 − (l/B)/(rounds left/T), l the smaller of labels left and of
    free/(1 − κ).

    Args:
        share: κ in (0, 1), the share of the budget that is kept for costly rounds: a small one has
            a high level and more to spend freely.
        ahead: f in (0, 1], how far ahead of an even schedule free spending may run.
        floor: r in (0, 1), the price of information on schedule as a share of v.
        pending: n ≥ 0, the labels that may be open when another is bought; the exponent is then
            (n + 1)C/(κB). A run sets it from its batch: one less than the questions that are open
            at a time, and 0 where each answer is learned before the next round.
        capacity: C > 0 (nats), a bound on log det(V/λI) for the items that there are, such as
            `capacity.corpus_capacity`; None is dℓ, which holds for items that nobody has seen.
        counted: the labels that `capacity` is of, at least 1; a larger B has so many times it, as
            the best log det is concave in B. Needed with a capacity alone.
        reach: the largest ‖φ_x − φ_y‖ of a round, over L: 2 for pairs, √2 for classes.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: ours; the theorem, and the scorers for which it is one, are in `docs/theory.md`. Known
    before: counts of rounds by log det (Abbasi-Yadkori et al. 2011), each round above a level asked
    (Cesa-Bianchi, Gentile and Orabona 2009). The settings were chosen on pilot seeds of the study
    `gates`.
    """

    share: float = 0.6
    ahead: float = 0.8
    floor: float = 0.1
    pending: int = 0
    capacity: float | None = None
    counted: int | None = None
    reach: float = 2.0
    name: ClassVar[str] = "reserve"

    def __post_init__(self) -> None:
        within = 0.0 < self.share < 1.0 and 0.0 < self.ahead <= 1.0 and 0.0 < self.floor < 1.0
        if not within or not 0 <= self.pending < math.inf:
            raise SettingsError(
                "the gate 'reserve' needs a share in (0, 1), an ahead in (0, 1], a floor in (0, 1) "
                f"and a pending of at least 0, got {self.share}, {self.ahead}, {self.floor} and "
                f"{self.pending}: leave them out for the defaults"
            )

        if (self.capacity is None) != (self.counted is None) or not (
            0.0 < (1.0 if self.capacity is None else self.capacity) < math.inf
            and (1 if self.counted is None else self.counted) >= 1
            and 0.0 < self.reach < math.inf
        ):
            raise SettingsError(
                "the gate 'reserve' needs a capacity above 0 with the labels counted for it, or "
                f"neither, and a reach above 0, got {self.capacity}, {self.counted} and "
                f"{self.reach}: leave them out where the items are not known"
            )

    @classmethod
    def suited(cls, *, dim: int, noise: float, one_hot: bool) -> dict[str, Any]:
        """Classes are √2 apart."""
        return {"reach": math.sqrt(2.0)} if one_hot else {}

    def most(self, budget: int, dim: int, prior_width: float) -> float:
        """C, the most that `budget` labels can add to log det V (nats)."""
        if self.capacity is None or self.counted is None:
            return statistics.capacity(budget, dim, prior_width)
        return float(self.capacity) * max(1.0, budget / self.counted)

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """G over its level or, where labels are free, information over its price if larger."""
        gap = statistics.contested_statistic(
            view.scores, view.pair_widths, view.choice, view.radius
        )
        most = self.most(clock.budget, view.dim, view.prior_width)
        widest = self.reach * view.prior_width
        square = statistics.reserve_square(most, clock.budget, self.share, self.pending)
        return statistics.reserve_statistic(
            gap,
            view.information,
            view.radius,
            square,
            statistics.reserve_held(view.volume, most, clock.budget, self.share, square, widest),
            clock,
            self.share,
            self.ahead,
            self.floor,
            widest,
        )

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """1: above the level, or worth the price."""
        return 1.0
