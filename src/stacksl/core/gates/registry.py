"""The protocol and the registry of gates, which decide when to buy a label.

A gate asks iff its statistic exceeds its threshold. Two rules override every gate and are in the
learner (`rules.forced`): no gate asks when no label is left, and every gate but `llf` asks
whenever labels left ≥ rounds left. The arithmetic is in `rules`, which numba compiles unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, final

import numpy as np

from stacksl.core.gates import rules
from stacksl.core.gates.priced import Contested, Information
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.gates.schedules import Always, First, Random, Usual
from stacksl.errors import SettingsError, unknown_name

if TYPE_CHECKING:
    from stacksl.core.blocks import Array
    from stacksl.core.scorers.bounds import Bounds

ONE_HOT_PACE = {"pace": 0.005, "adaptive": False}
"""`margin`'s parameters on one-hot ridge scores, measured on Banking77 (`docs/paper.md`, D8)."""


class Gate(Protocol):
    """A frozen dataclass of parameters that decides, round by round, whether to buy a label.

    Attributes:
        name: its key in `GATES`.
        ranks: whether a pool can order items by its statistic.
        exact_spend: whether it asks whenever labels left ≥ rounds left (all but `llf`).
    """

    name: ClassVar[str]
    ranks: ClassVar[bool]
    exact_spend: ClassVar[bool]

    def start(self) -> GateState:
        """The state before round 1."""
        ...

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """g, what is compared with the threshold; `asked` is as before this round.

        NaN where it is made of widths and the scorer keeps none.
        """
        ...

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The number that g must exceed for a label to be asked; u is the round's uniform."""
        ...

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """The state after this round, in which a label was asked (`took`) or not."""
        ...


@final
@dataclass(frozen=True, slots=True)
class LLF(Usual):
    """The paper's gate: ask iff the spread max UCB − min LCB exceeds ε = c/√(1 + q).

    At a ridge of at least ‖φ‖² it is `first` for c below the first spread and else never asks, at
    a smaller one it skips what is known (docs/theory.md, section 7). It is the paper's;
    `calibration.calibrate_gate_scale` keeps c under that step, and `first` and `random` belong
    beside it.

    Args:
        gate_scale: c ≥ 0: a label is asked where the spread exceeds c/√(1 + labels asked), in score
            units; calibrated if absent.
        reading: 'else', the text's: a wide spread asks. 'literal', Algorithm 2 as printed (its ELSE
            is commented out): a spread ≤ ε asks; then statistic and threshold change sign.

    Raises:
        SettingsError: c is negative or not finite, or the reading is unknown.

    Source: paper, Algorithm 2 and eq. for Δ_t. Deviation: the default reading is the text's (D1).
    """

    gate_scale: float = 1.0
    reading: Literal["else", "literal"] = "else"
    name: ClassVar[str] = "llf"
    ranks: ClassVar[bool] = False
    exact_spend: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.gate_scale < math.inf:
            raise SettingsError(
                f"the gate 'llf' needs a gate_scale c of at least 0, got {self.gate_scale}: "
                "set it in score units, or leave it out to have it calibrated"
            )
        if self.reading not in ("else", "literal"):
            raise unknown_name("reading", self.reading, ["else", "literal"])

    @property
    def literal(self) -> bool:
        """Whether Algorithm 2 is followed as printed."""
        return self.reading == "literal"

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """The spread Δ (score units); its negative in the literal reading."""
        return rules.llf_statistic(view.scores, view.widths, view.radius, self.literal)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """ε = c/√(1 + q); just below its negative in the literal reading."""
        return rules.llf_threshold(clock, self.gate_scale, self.literal)


@final
@dataclass(frozen=True, slots=True)
class Margin(Usual):
    """The paced margin (aim `model`): ask iff −margin exceeds a threshold that keeps the pace.

    threshold += step × ((1 if asked else 0) − labels left / rounds left). The first item is asked
    and sets the threshold, unless it was `primed`. The state is (threshold, mean of g, mean of
    |g − mean|, n), over the n statistics that were finite.

    Args:
        pace: how far the threshold moves in a round, in score units where `adaptive` is False
            (`ONE_HOT_PACE`); else in units of the running mean absolute deviation of the statistic.
        adaptive: whether the pace follows the statistic's own scale.

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
        known = statistics[np.isfinite(statistics)]
        if not len(known):
            return self.start()
        level = float(np.quantile(known, min(max(1.0 - share, 0.0), 1.0)))
        mean = float(known.mean())
        return (level, mean, float(np.abs(known - mean).mean()), float(len(known)))

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """Minus the difference of the two best scores."""
        return rules.margin_statistic(view.scores)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """The paced threshold."""
        return state[0]

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """The threshold after this round's step, and the statistic's running moments."""
        return rules.margin_advance(g, took, clock, state, self.pace, self.adaptive)


GATES: dict[str, type[Any]] = {
    "always": Always,
    "first": First,
    "random": Random,
    "llf": LLF,
    "margin": Margin,
    "contested": Contested,
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

    >>> make_gate("contested", reserve=0.5).reserve
    0.5
    """
    if name not in GATES:
        raise unknown_name("gate", name, GATES)
    known = {field.name for field in fields(GATES[name])}
    for parameter in parameters:
        if parameter not in known:
            takes = ", ".join(sorted(known)) if known else "no parameter"
            raise SettingsError(
                f"the gate '{name}' has no parameter '{parameter}': it takes {takes}"
            )
    gate: Gate = GATES[name](**parameters)
    return gate


def require_ranking(gate: Gate) -> None:
    """Refuse a gate that cannot order a pool.

    Raises:
        SettingsError: the gate gives no ranking.
    """
    if not gate.ranks:
        able = ", ".join([COVERAGE, *(name for name, kind in GATES.items() if kind.ranks)])
        raise SettingsError(
            f"a pool needs a gate that ranks its items and '{gate.name}' does not: "
            f"choose one of {able}, or the mode 'stream'"
        )
