"""What comes of a stream: one entry a round, the last estimate, and the estimates on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.game.inputs import Array

__all__ = ["Mark", "StreamResult"]


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """The estimate after `round` rounds: for coverage, and for curves of what was learnt.

    Attributes:
        round: rounds gone by, 1 to T.
        theta: θ, (d,), or (K, d) for class heads.
        gram_inv: V⁻¹ (H⁻¹), (d, d); None where `StreamResult.gram_inv` is.
        learnt: labels learnt, since the last reset where there is a drift guard.
    """

    round: int
    theta: Array
    gram_inv: Array | None
    learnt: int


@dataclass(frozen=True, slots=True, eq=False)
class StreamResult:
    """What came of a stream of T rounds: one entry a round, (T,) each, and the last estimate.

    Attributes:
        choices: the index of the action played, among all candidates.
        asked: whether the label was bought.
        statistics, thresholds: the gate asked iff statistic > threshold (score units), but for the
            two rules above every gate. Without certificates NaN from the round on in which no
            label is left: the statistics of the gates made of widths, and their thresholds but for
            `llf`'s, constant ones too.
        gate_scores: the statistic of `contested`, whichever gate decided (DESIGN D8), at the greedy
            action where the action is `asked`; NaN without certificates.
        scores: θᵀφ of the choice (score units).
        reaches: radius·width of the choice, so that its bounds are scores ± reaches; NaN without
            certificates.
        theta: the last θ, (d,), or (K, d) for class heads.
        gram_inv: the last V⁻¹ (H⁻¹), (d, d); None for sgd on class heads and for track='theta'.
        learnt: labels learnt, since the last reset where there is a drift guard.
        clipped: those of them whose loss was above the clip level; 0 but for `sgd`.
        engine: `fused`, `blocked`, `stepwise` or `loop`, what played.
        marks: the estimates after the rounds that were asked for.
        presented: the candidates that an adaptive follower showed, (T, present) int32, ascending;
            None where all were shown.
        resets: (n,) the rounds, counted from 1, after which the drift guard started over.
    """

    choices: NDArray[np.int64]
    asked: NDArray[np.bool_]
    statistics: Array
    thresholds: Array
    gate_scores: Array
    scores: Array
    reaches: Array
    theta: Array
    gram_inv: Array | None
    learnt: int
    clipped: int
    engine: Literal["fused", "blocked", "stepwise", "loop"]
    marks: tuple[Mark, ...]
    presented: NDArray[np.int32] | None
    resets: NDArray[np.int64]
