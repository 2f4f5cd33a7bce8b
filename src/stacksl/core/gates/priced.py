"""Gates under a price that rises when spending is ahead of an even schedule.

`contested` and `information` differ in the statistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.gates.schedules import Usual
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.core.scorers.bounds import Bounds


class Priced(Usual):
    """The rule of the priced gates: ask iff g exceeds the price U r^(1 − a/f).

    U is the largest g so far, from 0, and the state is (U, 0, 0); f is `reserve`, r is `floor` and
    a = 1 − (labels left/B)/(rounds left/T), so that early spending leaves 1 − f of an even
    schedule for the rest of it: q ≤ B(f + (1 − f)t/T) + 1 after every round t.
    """

    __slots__ = ()

    name: ClassVar[str]
    reserve: float
    floor: float

    def check_price(self) -> None:
        """Refuse a price outside its range.

        Raises:
            SettingsError: `reserve` is not in (0, 1], or `floor` not in (0, 1).
        """
        if not 0.0 < self.reserve <= 1.0 or not 0.0 < self.floor < 1.0:
            usual = type(self)()
            raise SettingsError(
                f"the gate '{self.name}' needs a reserve in (0, 1] and a floor in (0, 1), got "
                f"{self.reserve} and {self.floor}: the defaults are {usual.reserve} and"
                f" {usual.floor}"
            )

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The price of a label, in units of g."""
        return rules.price(g, clock, state, self.reserve, self.floor)

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """The running maximum U."""
        return rules.peak(g, state)


@final
@dataclass(frozen=True, slots=True)
class Contested(Priced):
    """Priced pair-LUCB: ask iff the contested score exceeds a price.

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
        self.check_price()

    @classmethod
    def suited(cls, *, dim: int, noise: float, one_hot: bool) -> dict[str, Any]:
        """α = σ√d for d columns of φ and noise σ."""
        return {"width_scale": noise * math.sqrt(dim)}

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The contested score g (score units)."""
        alpha = math.sqrt(view.dim) if self.width_scale is None else self.width_scale
        return rules.bounded_contested_statistic(view.scores, view.pair_widths, view.choice, alpha)


@final
@dataclass(frozen=True, slots=True)
class Information(Priced):
    """The information of a label (aim `regret`): ask where, under a price, most is learnt.

    g = tr(F H⁻¹), at most 1, the mutual information of label and θ to first order (nats), with F
    the Fisher information of the round's label at θ. For scorers that keep no Fisher information
    it is ‖φ(z, x̂)‖² in V⁻¹, the information of a reward of the choice (`Bounds.information`).
    Price and state are as in `Contested`; the defaults were chosen on pilot seeds of the study
    `gates` (`docs/decisions.md`).

    Args:
        reserve: f in (0, 1], how far ahead of an even schedule spending may run.
        floor: r in (0, 1), the price on schedule as a share of the largest statistic so far.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: MacKay (1992), Information-based objective functions; Houlsby et al. (2011), BALD.
    Deviation: linearised, log det(I + F H⁻¹) ≈ tr(F H⁻¹), without the half; and the price.
    """

    reserve: float = 0.9
    floor: float = 0.003
    name: ClassVar[str] = "information"

    def __post_init__(self) -> None:
        self.check_price()

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """tr(F H⁻¹) (nats to first order)."""
        return rules.bounded_information(view.information)


def contested_score(view: Bounds, width_scale: float | None = None) -> float:
    """D8's gate score g = max over x ≠ x̂ of s_x − s_x̂ + α‖φ_x − φ_x̂‖ (score units).

    With α a valid radius it bounds the round's regret at x̂. NaN where the scorer
    keeps no matrix, −inf where only x̂ is presented. `width_scale` is α; None is √d.
    """
    alpha = math.sqrt(view.dim) if width_scale is None else width_scale
    return rules.contested_statistic(view.scores, view.pair_widths, view.choice, alpha)
