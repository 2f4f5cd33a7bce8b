"""The protocol and the registry of gates, which decide when to buy a label.

A gate asks where its statistic exceeds its threshold, else not. Two rules override every gate and
are in the learner (`rules.forced`): no gate asks when no label is left, and every gate but `llf`
asks when labels left ≥ rounds left. The arithmetic is in `rules`, which numba compiles unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import numpy as np

from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock, GateState
from stacksl.errors import SettingsError, unknown_name

if TYPE_CHECKING:
    from stacksl.core.blocks import Array
    from stacksl.core.scorers.base import Bounds

ONE_HOT_PACE = {"pace": 0.005, "adaptive": False}
"""`margin`'s parameters on one-hot ridge scores, measured on Banking77 (`docs/paper.md`, D8)."""


class Gate(Protocol):
    """A frozen dataclass of parameters that decides, round by round, whether to buy a label.

    One that extends it ranks, spends exactly and keeps no state, unless it says otherwise.

    Attributes:
        name: its key in `GATES`.
        ranks: whether a pool can order items by its statistic.
        exact_spend: whether it asks whenever labels left ≥ rounds left (all but `llf`).
    """

    __slots__ = ()

    name: ClassVar[str]
    ranks: ClassVar[bool] = True
    exact_spend: ClassVar[bool] = True

    def start(self) -> GateState:
        """The state before round 1."""
        return (0.0, 0.0, 0.0, 0.0)

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """g, what is compared with the threshold; `asked` is as before this round.

        NaN where it is made of widths and the scorer keeps none.
        """

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The number that g must exceed for a label to be asked; u is the round's uniform."""

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """The state after this round, in which a label was asked (`took`) or not."""
        return state


@dataclass(frozen=True, slots=True)
class Always(Gate):
    """The gate of StackSL (Algorithm 1): ask while labels are left.

    `first` is the same rule. The names differ because the claims do: `always` is the
    full-feedback algorithm, meant with B = T; `first` is the baseline that spends B < T labels on
    the first B rounds, which any selective gate must beat.

    Source: paper, Algorithm 1.
    """

    name: ClassVar[str] = "always"
    ranks: ClassVar[bool] = False

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """Labels left."""
        return float(clock.budget - clock.asked)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """0: one label left is enough."""
        return 0.0


@final
@dataclass(frozen=True, slots=True)
class First(Always):
    """The baseline that buys the first B labels: ask while labels are left (see `Always`).

    On an i.i.d. stream its purchases have the distribution of those of `random`, but are earlier;
    `llf` below its cap is the same rule.
    """

    name: ClassVar[str] = "first"


@final
@dataclass(frozen=True, slots=True)
class Random(Gate):
    """Selection sampling: ask if u < labels left / rounds left, which spends exactly B.

    Every set of B rounds is equally likely. A pool takes a seeded order.

    Source: Fan, Muller and Rezucha 1962; Knuth, TAOCP 2, Algorithm 3.4.2S.
    """

    name: ClassVar[str] = "random"

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """Labels left / rounds left, the probability of this round."""
        return rules.random_statistic(clock)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The round's uniform u in [0, 1), drawn in advance."""
        return u


@dataclass(frozen=True, slots=True)
class LLF(Gate):
    """The paper's gate: ask if the spread max UCB − min LCB exceeds ε = c/√(1 + q).

    At a ridge of at least ‖φ‖² it is `first` for c below the first spread, and otherwise never
    asks. At a smaller ridge it skips items that are known (docs/theory.md, section 7).
    `calibration.calibrate_gate_scale` keeps c below the first spread. Compare it with `first` and
    `random`.

    Args:
        gate_scale: c ≥ 0: the gate asks if the spread exceeds c/√(1 + labels asked), in score
            units; calibrated if absent.

    Raises:
        SettingsError: c is negative or not finite.

    Source: paper, Algorithm 2 and eq. for Δ_t. Deviation: the reading is the text's (D1).
    """

    gate_scale: float = 1.0
    name: ClassVar[str] = "llf"
    ranks: ClassVar[bool] = False
    exact_spend: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.gate_scale < math.inf:
            raise SettingsError(
                f"the gate 'llf' needs a gate_scale c of at least 0, got {self.gate_scale}: "
                "set it in score units, or leave it out to have it calibrated"
            )

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The spread Δ (score units)."""
        return rules.llf_statistic(view.scores, view.widths, view.radius)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """ε = c/√(1 + q)."""
        return rules.llf_threshold(clock, self.gate_scale)


@final
@dataclass(frozen=True, slots=True)
class Margin(Gate):
    """The paced margin: ask if −margin exceeds a threshold that keeps the pace.

    threshold += step × ((1 if asked else 0) − labels left / rounds left). The first item is asked
    and sets the threshold, unless it was `primed`. The state is (threshold, mean of g, mean of
    |g − mean|, n), over the n statistics that were finite.

    Args:
        pace: How far the threshold moves in a round, in score units if `adaptive` is False
            (`ONE_HOT_PACE`), else in units of the running mean absolute deviation of the statistic.
        adaptive: Whether the pace follows the statistic's own scale.

    Raises:
        SettingsError: the pace is not a positive number.

    Source: ours (D8).
    """

    pace: float = 0.03
    adaptive: bool = True
    name: ClassVar[str] = "margin"

    def __post_init__(self) -> None:
        if not 0.0 < self.pace < math.inf:
            raise SettingsError(
                f"the gate 'margin' needs a positive pace, got {self.pace}: "
                "0.03 with adaptive=True fits any scorer"
            )

    def start(self) -> GateState:
        """A threshold of −∞, which the first item sets."""
        return (-math.inf, 0.0, 0.0, 0.0)

    @classmethod
    def suited(cls, *, dim: int, noise: float, one_hot: bool) -> dict[str, Any]:
        """The parameters of a run on one-hot ridge scores; elsewhere the defaults."""
        return dict(ONE_HOT_PACE) if one_hot else {}

    def primed(self, statistics: Array, share: float) -> GateState:
        """The state for rounds whose statistics are known in advance, as a language model's are.

        The threshold is their quantile at 1 − `share`, so that the share that can be bought is
        above it; the running moments start from theirs. `start` where no statistic is finite.

        Args:
            statistics: (n,) of the rounds to come, before any of them is played.
            share: labels left / rounds left.
        """
        finite = statistics[np.isfinite(statistics)]
        if not len(finite):
            return self.start()
        level = float(np.quantile(finite, min(max(1.0 - share, 0.0), 1.0)))
        mean = float(finite.mean())
        return (level, mean, float(np.abs(finite - mean).mean()), float(len(finite)))

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """Minus the difference of the two best scores."""
        return rules.margin_statistic(view.scores)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The paced threshold."""
        return state[0]

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """The threshold after this round's step, and the statistic's running moments."""
        return rules.margin_advance(g, took, clock, state, self.pace, self.adaptive)


class Priced(Gate):
    """The rule of the priced gates: ask if g exceeds the price U r^(1 − a/f).

    U is the largest g so far, from 0, and the state is (U, 0, 0); f is `reserve`, r is `floor` and
    a = 1 − (labels left/B)/(rounds left/T), so that early spending leaves 1 − f of an even
    schedule for the rest of it: q ≤ B(f + (1 − f)t/T) + 1 after every round t.
    """

    __slots__ = ()

    reserve: float
    floor: float

    def __post_init__(self) -> None:
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
class Information(Priced):
    """The information of a label: ask where, under a price, most is learned.

    g = tr(F H⁻¹), at most 1, the mutual information of label and θ to first order (nats), with F
    the Fisher information of the round's label at θ. For scorers that keep no Fisher information
    it is ‖φ(z, x̂)‖² in V⁻¹, the information of a reward of the choice (`Bounds.information`).
    Price and state are as in `Priced`; the defaults were chosen on pilot seeds of the study
    `gates` (`docs/decisions.md`).

    Args:
        reserve: f in (0, 1], how far ahead of an even schedule spending may run.
        floor: r in (0, 1), the price on schedule as a share of the largest statistic so far.

    Raises:
        SettingsError: a parameter is outside its range.

    Source: MacKay (1992), Information-based objective functions; Houlsby et al. (2011), BALD.
    Deviation: linearized, log det(I + F H⁻¹) ≈ tr(F H⁻¹), without the half; and the price.
    """

    reserve: float = 0.9
    floor: float = 0.003
    name: ClassVar[str] = "information"

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """tr(F H⁻¹) (nats to first order)."""
        return rules.bounded_information(view.information)


GATES: dict[str, type[Any]] = {
    "always": Always,
    "first": First,
    "random": Random,
    "llf": LLF,
    "margin": Margin,
    "information": Information,
}

COVERAGE = "coverage"
"""The query strategy over fixed classes, see `core.heads.coverage`; `Margin` keeps its pace."""


def gate_type(strategy: str) -> type[Any] | None:
    """The gate with the name of a query strategy, or the one that keeps the pace of `coverage`."""
    return Margin if strategy == COVERAGE else GATES.get(strategy)


def make_gate(name: str, **parameters: Any) -> Gate:
    """The gate called `name` with these parameters.

    Raises:
        SettingsError: no such gate, no such parameter, or a value outside its range.

    >>> make_gate("information", reserve=0.5).reserve
    0.5
    """
    if name not in GATES:
        raise unknown_name("gate", name, GATES)
    field_names = {field.name for field in fields(GATES[name])}
    for parameter in parameters:
        if parameter not in field_names:
            accepted = ", ".join(sorted(field_names)) if field_names else "no parameter"
            raise SettingsError(
                f"the gate '{name}' has no parameter '{parameter}': it takes {accepted}"
            )
    gate: Gate = GATES[name](**parameters)
    return gate


def require_ranking(gate: Gate) -> None:
    """Refuse a gate that cannot order a pool.

    Raises:
        SettingsError: the gate gives no ranking.
    """
    if not gate.ranks:
        ranking_names = ", ".join([COVERAGE, *(name for name, kind in GATES.items() if kind.ranks)])
        raise SettingsError(
            f"a pool needs a gate that ranks its items and '{gate.name}' does not: "
            f"choose one of {ranking_names}, or the mode 'stream'"
        )
