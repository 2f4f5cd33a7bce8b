"""Gates that compare a lead in scores with its confidence bound: `lucb`, `dgs`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from stacksl.core.gates import rules, statistics
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.gates.schedules import Usual
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.core.scorers.bounds import Bounds


@final
@dataclass(frozen=True, slots=True)
class LUCB(Usual):
    """The overlap of bounds: ask iff some other candidate's UCB is above the choice's LCB.

    g = max over x ≠ x̂ of UCB(x) − LCB(x̂) = s_x − s_x̂ + w(‖φ_x‖ + ‖φ_x̂‖) in V⁻¹; ask iff g exceeds
    the tolerance. Two norms are at least the norm of the difference, so at the same scale it
    asks wherever `contested` without a price would, and elsewhere too.

    Args:
        width_scale: w > 0 (score units); None is the scorer's radius, the gate of the literature.
        tolerance: ε ≥ 0, a regret in the round that is accepted (score units).

    Raises:
        SettingsError: a parameter is outside its range.

    Source: Kalyanakrishnan, Tewari, Auer and Stone (2012), LUCB, whose stopping rule it is.
    Deviation: a stream, linear bounds, a budget.
    """

    width_scale: float | None = None
    tolerance: float = 0.0
    name: ClassVar[str] = "lucb"
    code: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if self.width_scale is not None and not 0.0 < self.width_scale < math.inf:
            raise SettingsError(
                f"the gate 'lucb' needs a width_scale above 0, got {self.width_scale}: with 0 its "
                "bounds never overlap; leave it out for the scorer's radius"
            )
        if not 0.0 <= self.tolerance < math.inf:
            raise SettingsError(
                f"the gate 'lucb' needs a tolerance of at least 0, got {self.tolerance}: "
                "0 asks wherever bounds overlap"
            )

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The overlap g (score units); −inf where only x̂ is presented."""
        scale = view.radius if self.width_scale is None else self.width_scale
        return statistics.lucb_statistic(view.scores, view.widths, view.choice, scale)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The tolerance."""
        return float(self.tolerance)


@final
@dataclass(frozen=True, slots=True)
class DGS(Usual):
    """The margin against its deviation bound: ask iff the lead could be an error.

    Ask iff margin² < scale·r_t (1 + 4 Σ r_i + 36 log(t/δ)), where r_t = ‖φ_x̂ − φ_x′‖² in V⁻¹, x′
    the best-scored other candidate (the widest where several tie for it), and the margin
    s_x̂ − s_x′, 0 if negative. Σ r_i is taken as 2 d log(1 + q/(λd)), d the columns of φ.

    Args:
        scale: a factor > 0 on the bound; 1 is the rule of the theorem.
        ridge: λ > 0 of V, which should be the scorer's.
        delta: δ in (0, 1).

    Raises:
        SettingsError: a parameter is outside its range.

    Source: Dekel, Gentile and Sridharan (2012), selective sampling from a single teacher; Orabona
    and Cesa-Bianchi (2011) tune a factor such as `scale`. Deviation: more than two candidates, a
    budget, strict inequality, V without the row of the round; and a gate's statistic cannot add
    up what was asked, so that the sum over asked rounds is replaced by a bound of the elliptical
    potential lemma: that of q rows of norm at most 1 that enter V themselves, for λ ≥ 1. It is
    larger than their sum. A pair's difference may be twice as long and is not what enters V, so
    for pairs it is a scale and no bound.
    """

    scale: float = 1.0
    ridge: float = 1.0
    delta: float = 0.05
    name: ClassVar[str] = "dgs"
    code: ClassVar[int] = 12

    def __post_init__(self) -> None:
        if not (0.0 < self.scale < math.inf and 0.0 < self.ridge < math.inf):
            raise SettingsError(
                f"the gate 'dgs' needs a scale and a ridge above 0, got {self.scale} and "
                f"{self.ridge}: scale 1 is the theorem's, and the ridge is the scorer's"
            )
        if not 0.0 < self.delta < 1.0:
            raise SettingsError(
                f"the gate 'dgs' needs a delta in (0, 1), got {self.delta}: 0.05 is usual"
            )

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The bound less margin² (score units, squared); −inf where only x̂ is presented."""
        width = rules.adpo_statistic(view.scores, view.pair_widths, view.choice)
        return statistics.dgs_statistic(
            view.scores, width, view.choice, clock, view.dim, self.ridge, self.delta, self.scale
        )

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """0: the margin is within its deviation."""
        return 0.0
