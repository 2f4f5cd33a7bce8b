"""Gates that depend on the clock alone: `always`, `first`, `random`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from stacksl.core.gates import rules
from stacksl.core.gates.rules import Clock, GateState

if TYPE_CHECKING:
    from stacksl.core.scorers.bounds import Bounds

AT_REST: GateState = (0.0, 0.0, 0.0, 0.0)
"""The state of a gate without one, and of a price before round 1."""


class Usual:
    """What holds of most gates: they rank, spend exactly, and keep no state."""

    __slots__ = ()

    ranks: ClassVar[bool] = True
    exact_spend: ClassVar[bool] = True

    def start(self) -> GateState:
        """The gate keeps no state."""
        return AT_REST

    def advance(self, g: float, took: bool, clock: Clock, state: GateState) -> GateState:
        """Unchanged."""
        return state


class _WhileLeft(Usual):
    """The rule of `always` and `first`: ask while labels are left."""

    __slots__ = ()

    ranks: ClassVar[bool] = False

    def statistic(self, view: Bounds, clock: Clock, state: GateState) -> float:
        """Labels left."""
        return float(clock.budget - clock.asked)

    def threshold(self, g: float, u: float, clock: Clock, state: GateState) -> float:
        """0: one label left is enough."""
        return 0.0


@final
@dataclass(frozen=True, slots=True)
class Always(_WhileLeft):
    """The gate of StackSL (Algorithm 1): ask while labels are left.

    `first` is the same rule. The names differ because the claims do: `always` is the
    full-feedback algorithm, meant with B = T; `first` is the baseline that spends B < T labels on
    the first B rounds, which any selective gate must beat.

    Source: paper, Algorithm 1.
    """

    name: ClassVar[str] = "always"


@final
@dataclass(frozen=True, slots=True)
class First(_WhileLeft):
    """The baseline that buys the first B labels: ask while labels are left (see `Always`).

    On an i.i.d. stream its purchases have the distribution of those of `random`, but are earlier;
    `llf` below its cap is the same rule.
    """

    name: ClassVar[str] = "first"


@final
@dataclass(frozen=True, slots=True)
class Random(Usual):
    """Selection sampling: ask iff u < labels left / rounds left, which spends exactly B.

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
