"""Gates of widths: of a pair (`adpo`, `width`), or against a lead in scores (`lucb`, `dgs`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from stacksl.core.gates import rules, statistics
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.gates.schedules import Usual
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.core.scorers.bounds import Bounds


@final
@dataclass(frozen=True, slots=True)
class ADPO(Usual):
    """The pair's width: ask iff the two best actions differ in a direction of little data.

    g = ‖φ(z, x̂) − φ(z, x′)‖ in V⁻¹ (or H⁻¹) for the choice x̂ and x′ the best-scored other
    candidate, the widest where several tie for it. Ask iff g > Γ: a constant `level`, or by
    default a level that keeps the pace of the budget,

        Γ ← Γ·exp(pace·((1 if asked else 0) − labels left / rounds left)),

    where the first item is asked and sets Γ. The state is (log Γ, mean and mean absolute deviation
    of log g, their number), and zeros under a constant.

    Args:
        level: Γ > 0, in units of g; None for the level that keeps the pace.
        pace: the largest change of log Γ in a round.

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
    code: ClassVar[int] = 6

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
        return rules.adpo_statistic(view.scores, view.pair_widths, view.choice)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """Γ."""
        return rules.adpo_threshold(state, math.nan if self.level is None else self.level)

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """Γ after this round's step; unchanged under a constant."""
        if self.level is not None:
            return state
        measure = rules.adpo_measure(g)
        return rules.margin_advance(measure, took, clock, state, self.pace, False)


@final
@dataclass(frozen=True, slots=True)
class Width(Usual):
    """The widest pair, which no label enters: ask iff it is above what the budget can reach.

    With w the largest ‖φ_x − φ_y‖ in V⁻¹ over all presented x and y, the budget form (BBQ-B, the
    default) asks iff

        w > scale·√(d log(1 + B/(λd))/B),

    to a factor √2 what B labels of the widest rows bring the widths of all rows of norm 1 down to,
    by the elliptical potential lemma; d is the columns of φ. With an `exponent` κ the rule is
    BBQ's, ask iff w² > t^−κ. Under the action `asked` an asked round plays the end of that pair
    with the larger width. So neither asking nor what is asked about depends on answers, and at
    scale √8 under rewards regret has √(d log K) in place of d (`docs/theory.md`, section 3.2).

    Args:
        scale: a factor > 0 on the budget form; not read with an exponent.
        exponent: κ in (0, 1), or None for the budget form.
        ridge: λ > 0 of V, which should be the scorer's; not read with an exponent.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: Cesa-Bianchi, Gentile and Orabona (2009), BBQ; the budget form and the theorem are ours.
    Deviation: the difference of two rows is BBQ's instance, and V has rows; V is that of the labels
    learnt, without the row of the round itself; and there is a budget.
    """

    scale: float = 1.0
    exponent: float | None = None
    ridge: float = 1.0
    name: ClassVar[str] = "width"
    code: ClassVar[int] = 8

    def __post_init__(self) -> None:
        if not (0.0 < self.scale < math.inf and 0.0 < self.ridge < math.inf):
            raise SettingsError(
                f"the gate 'width' needs a scale and a ridge above 0, got {self.scale} and "
                f"{self.ridge}: scale 1 is what B labels reach, and the ridge the scorer's"
            )
        if self.exponent is not None and not 0.0 < self.exponent < 1.0:
            raise SettingsError(
                f"the gate 'width' needs an exponent in (0, 1), got {self.exponent}: "
                "leave it out for the level of the budget"
            )

    @property
    def power(self) -> float:
        """κ, or NaN for the budget form."""
        return math.nan if self.exponent is None else float(self.exponent)

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """W over the budget's level (less its scale), or w²; −inf where only x̂ is presented."""
        if view.against is None:
            widest = float(np.max(np.delete(view.pair_widths, view.choice), initial=-math.inf))
        else:
            widest = _widest(view)[0]
        return statistics.width_statistic(widest, clock, view.dim, self.ridge, self.power)

    def asks_about(self, view: Bounds) -> int | None:
        """The position of the widest pair's wider end; None where all are equally wide."""
        return None if view.against is None else _widest(view)[1]

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The scale, or t^−κ."""
        return statistics.width_threshold(clock, float(self.scale), self.power)


def _widest(view: Bounds) -> tuple[float, int]:
    assert view.against is not None
    pairs = np.array([view.against(x) for x in range(len(view.widths))])
    return statistics.widest_pair(pairs, view.widths)


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
