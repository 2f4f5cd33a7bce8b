"""Gates to compare with: `uniform`, `lucb`, `dgs`, `width`, `entropy`, and ours.

`contested` and `avoided` are ours. At their defaults none of these, `contested` left out, has
clearly less regret than `information` in any cell of the study `gates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from stacksl.core.gates.registry import LLF, Gate, Priced
from stacksl.core.gates.rules import Clock, GateState
from stacksl.errors import SettingsError, unknown_name
from stacksl_lab.baselines import statistics

if TYPE_CHECKING:
    from stacksl.core.scorers.base import Bounds

WIDEST = 2.0  # ‖φ_x − φ_y‖ in V⁻¹ of rows of norm 1 at λ = 1: more would set the price for good


@final
@dataclass(frozen=True, slots=True)
class Uniform(Gate):
    """Evenly spaced labels: the j-th is asked in round ⌈jT/B⌉, which spends exactly B."""

    name: ClassVar[str] = "uniform"
    ranks: ClassVar[bool] = False

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """⌊tB/T⌋ − q, the labels owed."""
        return statistics.uniform_statistic(clock)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """0: one label owed is enough."""
        return 0.0


@final
@dataclass(frozen=True, slots=True)
class StudyLLF(LLF):
    """`llf` in either reading of the paper (D1).

    Args:
        reading: 'else' as in the paper's text: a wide spread asks. 'literal' as in Algorithm 2 (its
            ELSE is commented out): a spread ≤ ε asks, and statistic and threshold change sign.

    Raises:
        SettingsError: c is negative or not finite, or the reading is unknown.
    """

    reading: Literal["else", "literal"] = "else"

    def __post_init__(self) -> None:
        LLF.__post_init__(self)
        if self.reading not in ("else", "literal"):
            raise unknown_name("reading", self.reading, ["else", "literal"])

    @property
    def literal(self) -> bool:
        """Whether Algorithm 2 is followed as printed."""
        return self.reading == "literal"

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The spread Δ (score units); its negative in the literal reading."""
        spread = LLF.statistic(self, view, clock, state)
        return -spread if self.literal else spread

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """ε = c/√(1 + q); in the literal reading just below −ε, so that a spread of ε asks."""
        level = LLF.threshold(self, g, u, clock, state)
        return math.nextafter(-level, -math.inf) if self.literal else level


@final
@dataclass(frozen=True, slots=True)
class Contested(Priced):
    """Priced pair-LUCB: ask if the contested score exceeds a price.

    g = max over x ≠ x̂ of s_x − s_x̂ + α·min(‖φ_x − φ_x̂‖, 2) in V⁻¹, under the price of `Priced`.

    Args:
        width_scale: α > 0 (score units); None is √d, which is σ√d with noise σ = 1.
        reserve: f in (0, 1], how far ahead of an even schedule spending may run.
        floor: r in (0, 1), the price on schedule as a share of the largest statistic so far.

    Raises:
        SettingsError: a parameter is outside its range; α = 0 would never ask, since then g ≤ 0.

    Source: ours (D8); the pair bound is that of Theorem A, `docs/theory.md`.
    """

    width_scale: float | None = None
    reserve: float = 0.7
    floor: float = 0.01
    name: ClassVar[str] = "contested"

    def __post_init__(self) -> None:
        if self.width_scale is not None and not 0.0 < self.width_scale < math.inf:
            raise SettingsError(
                f"the gate 'contested' needs a width_scale above 0, got {self.width_scale}: with 0 "
                "its statistic is never positive and it would not ask; leave it out for σ√d"
            )
        Priced.__post_init__(self)

    @classmethod
    def suited(cls, *, dim: int, noise: float, one_hot: bool) -> dict[str, Any]:
        """α = σ√d for d columns of φ and noise σ."""
        return {"width_scale": noise * math.sqrt(dim)}

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The contested score g (score units)."""
        alpha = math.sqrt(view.dim) if self.width_scale is None else self.width_scale
        return statistics.contested_statistic(
            view.scores, view.pair_widths, view.choice, alpha, WIDEST
        )


@final
@dataclass(frozen=True, slots=True)
class Entropy(Priced):
    """The policy's entropy under a price: ask where the scorer is undecided.

    g = −Σ π_x log π_x over the presented candidates (nats); price, state, `reserve` and `floor` as
    in `Contested`, with its defaults, which were not tuned for this gate.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: uncertainty sampling by entropy (Settles 2009, Active Learning Literature Survey, §3.1).
    Deviation: a stream, and the price. It ignores what labels could still change.
    """

    reserve: float = 0.7
    floor: float = 0.01
    name: ClassVar[str] = "entropy"

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The entropy of π (nats); −inf where only x̂ is presented."""
        return float(statistics.entropy_statistic(view.probabilities))


@final
@dataclass(frozen=True, slots=True)
class Avoided(Priced):
    """Expected regret avoided, under a price: ask where another action may well be better.

    g = max over x ≠ x̂ of τ_x h(gap_x/τ_x) with gap_x = s_x̂ − s_x, τ_x = w‖φ_x − φ_x̂‖ in V⁻¹ and
    h(u) = pdf(u) − u (1 − cdf(u)) of the standard normal: the gain of knowing the pair's difference
    in this round, were that normal with mean −gap and deviation τ. Price and state as in
    `Contested`.

    Args:
        width_scale: w > 0 (score units); 1 is the posterior deviation with noise σ = 1.
        reserve: f in (0, 1].
        floor: r in (0, 1).

    Raises:
        SettingsError: a parameter is outside its range.

    Source: the knowledge-gradient idea (Frazier, Powell and Dayanik 2008) on pairs; the price is
    ours. f and r were chosen on pilot seeds of the study `gates`.
    """

    width_scale: float = 1.0
    reserve: float = 0.7
    floor: float = 0.001
    name: ClassVar[str] = "avoided"

    def __post_init__(self) -> None:
        if not 0.0 < self.width_scale < math.inf:
            raise SettingsError(
                f"the gate 'avoided' needs a width_scale above 0, got {self.width_scale}: "
                "1 is the posterior deviation with noise 1"
            )
        Priced.__post_init__(self)

    @classmethod
    def suited(cls, *, dim: int, noise: float, one_hot: bool) -> dict[str, Any]:
        """The posterior's own deviation: w = σ for noise σ."""
        return {"width_scale": noise}

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The expected regret avoided (score units); −inf where only x̂ is presented."""
        scale = self.width_scale
        return statistics.avoided_statistic(view.scores, view.pair_widths, view.choice, scale)


@final
@dataclass(frozen=True, slots=True)
class Width(Gate):
    """The widest pair, which no label enters: ask iff it is above what the budget can reach.

    With w the largest ‖φ_x − φ_y‖ in V⁻¹ over all presented x and y, the budget form (BBQ-B, the
    default) asks iff

        w > scale·√(d log(1 + B/(λd))/B),

    to a factor √2 what B labels of the widest rows bring the widths of all rows of norm 1 down to,
    by the elliptical potential lemma; d is the columns of φ. With an `exponent` κ the rule is
    BBQ's, ask iff w² > t^−κ. Of a `StudyLearner` with `asks_ucb` an asked round plays the end of
    that pair with the larger width. So neither asking nor what is asked about depends on answers,
    and at scale √8 under rewards regret has √(d log K) in place of d (`docs/theory.md`, section
    3.2).

    Args:
        scale: a factor > 0 on the budget form; not read with an exponent.
        exponent: κ in (0, 1), or None for the budget form.
        ridge: λ > 0 of V, which should be the scorer's; not read with an exponent.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: Cesa-Bianchi, Gentile and Orabona (2009), BBQ; the budget form and the theorem are ours.
    Deviation: the difference of two rows is BBQ's instance, and V has rows; V is that of the labels
    learned, without the row of the round itself; and there is a budget.
    """

    scale: float = 1.0
    exponent: float | None = None
    ridge: float = 1.0
    name: ClassVar[str] = "width"

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
        """`over` of the widest pair that has the choice; −inf where only x̂ is presented.

        In class heads that share a matrix all pairs are as wide. Elsewhere a `StudyLearner` gives
        the widest of all pairs in its place.
        """
        others = np.delete(view.pair_widths, view.choice)
        return self.over(float(np.max(others, initial=-math.inf)), clock, view.dim)

    def over(self, widest: float, clock: Clock, dim: int) -> float:
        """W = `widest` over the budget's level (less its scale), or w²; `dim` is d."""
        return statistics.width_statistic(widest, clock, dim, self.ridge, self.power)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The scale, or t^−κ."""
        return statistics.width_threshold(clock, float(self.scale), self.power)


@final
@dataclass(frozen=True, slots=True)
class LUCB(Gate):
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
class DGS(Gate):
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
        width = statistics.adpo_statistic(view.scores, view.pair_widths, view.choice)
        return statistics.dgs_statistic(
            view.scores, width, view.choice, clock, view.dim, self.ridge, self.delta, self.scale
        )

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """0: the margin is within its deviation."""
        return 0.0
