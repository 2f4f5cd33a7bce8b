"""The gate `adpo`, which compares the width of the two best candidates with a level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from stacksl.core.gates import rules
from stacksl.core.gates.registry import Gate
from stacksl.core.gates.rules import Clock, GateState
from stacksl.errors import SettingsError
from stacksl_lab.baselines import statistics

if TYPE_CHECKING:
    from stacksl.core.scorers.base import Bounds


@final
@dataclass(frozen=True, slots=True)
class ADPO(Gate):
    """The pair's width: ask iff the two best actions differ in a direction of little data.

    g = ‖φ(z, x̂) − φ(z, x′)‖ in V⁻¹ (or H⁻¹) for the choice x̂ and x′ the best-scored other
    candidate, the widest where several tie for it. Ask iff g > Γ: a constant `level`, or by
    default a level that keeps the pace of the budget,

        Γ ← Γ·exp(pace·((1 if asked else 0) − labels left / rounds left)),

    where the first item is asked and sets Γ. The state is (log Γ, mean and mean absolute deviation
    of log g, their number), and zeros under a constant.

    Args:
        level: Γ > 0, the width of the pair above which a label is asked; None for a level that
            keeps the pace of the budget.
        pace: the largest change of log Γ in a round, where no level is given.

    Raises:
        SettingsError: a parameter is not a positive number.

    Source: Ji, He and Gu (2024), arXiv 2402.09401, the rule of APPO for two responses under a
    constant Γ. Deviation: more than two candidates, a budget, and by default the paced level; a
    constant one too asks whenever labels left ≥ rounds left. The pace is on log Γ because widths
    fall by a factor and not by a sum: under `margin`'s own pace most of a small budget was left
    for the last fifth of an i.i.d. stream.
    """

    level: float | None = None
    pace: float = 0.1
    name: ClassVar[str] = "adpo"

    def __post_init__(self) -> None:
        if self.level is not None and not 0.0 < self.level < math.inf:
            raise SettingsError(
                f"the gate 'adpo' needs a level above 0, got {self.level}: a width is at most "
                "2/√ridge; leave it out for one that keeps the budget's pace"
            )
        if not 0.0 < self.pace < math.inf:
            raise SettingsError(
                f"the gate 'adpo' needs a positive pace, got {self.pace}: 0.1 fits any scorer"
            )

    def start(self) -> GateState:
        """A log Γ of −∞, which the first item sets; nothing under a constant."""
        return (-math.inf if self.level is None else 0.0, 0.0, 0.0, 0.0)

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The width of the pair (x̂, x′)."""
        return statistics.adpo_statistic(view.scores, view.pair_widths, view.choice)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """Γ."""
        return statistics.adpo_threshold(state, math.nan if self.level is None else self.level)

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """Γ after this round's step; unchanged under a constant."""
        if self.level is not None:
            return state
        measure = statistics.adpo_measure(g)
        return rules.margin_advance(measure, took, clock, state, self.pace, False)
