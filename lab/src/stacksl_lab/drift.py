"""The drift guard: reset the learner when bought labels keep contradicting known directions.

The arithmetic is in scalar functions that numba compiles unchanged; `StudyLearner` and the compiled
engine call the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures
from stacksl.errors import SettingsError
from stacksl.types import Label
from stacksl_lab.rewards import Feedback

if TYPE_CHECKING:
    from stacksl.core.scorers import Scorer

TIE = 1e-9  # relative: on the boundary engines would differ by rounding (`docs/paper.md`, D17)


@dataclass(frozen=True, slots=True)
class DriftGuard:
    """A one-sided cumulative sum (Page 1954) of squared surprises in known directions.

    On every bought answer whose leverage is below `leverage`, once more than `warm`·d labels are
    learned since the last reset,

        S ← max(0, S + min(z², cap) − allowance),

    and S > `level` is an alarm: V = ridge·I, θ = 0, no label learned, S = 0. Labels asked stay
    counted, and the gate's state does not change. z² is taken at the θ before the answer is
    learned, which for a late answer is the present one.

    * A reward y of the choice: z = (y − θᵀφ)/noise, the leverage ‖φ‖² in V⁻¹. In a stationary
      world z² has the mean 1 + leverage (and the square of the ridge's bias).
    * A label: z² = (ℓ − h)²/Var ℓ, with ℓ its log-loss, and the policy's own mean h (the entropy)
      and variance of it; the leverage is the Fisher information tr(F V⁻¹). Its mean is 1 under
      the policy, but its tail is heavy: where the policy is sure, a rare answer alone brings 1/π.
      With five candidates whose scores have the standard deviation 2 a cap of 25 alarms once in
      1,000 labels of a stationary world; the default of 9 did so in none of 400,000.

    The leverage is the guard: in directions not yet known residuals are large without any drift,
    as under covariate shift. With Gaussian noise of the stated scale a stationary world alarms at
    a rate of at most e^(−r·level) a label, where r solves ½ log(1 − 2rv) + r·allowance = 0 at the
    variance v = 1 + leverage: 4.2e-5 at v = 1.1, 6.5e-6 at v = 1.

    Args:
        level: S above which the learner is reset.
        allowance: subtracted from every square; above its mean 1.
        cap: of one square, so that one outlier alone is no alarm.
        leverage: answers of at least this leverage are not counted.
        warm: answers are counted once more than warm·d labels are learned.

    Raises:
        SettingsError: a number outside its range.

    Source: ours; Page (1954) for the sum. Deviation: not in the paper.
    """

    level: float = 30.0
    allowance: float = 2.0
    cap: float = 9.0
    leverage: float = 0.1
    warm: float = 3.0

    def __post_init__(self) -> None:
        mistakes = [
            f"{name} must be a number {wanted}, got {value}"
            for name, value, wanted, good in (
                ("level", self.level, "above 0", self.level > 0.0),
                ("allowance", self.allowance, "above 0", self.allowance > 0.0),
                ("cap", self.cap, "above the allowance", self.cap > self.allowance),
                ("leverage", self.leverage, "above 0", self.leverage > 0.0),
                ("warm", self.warm, "of at least 0", self.warm >= 0.0),
            )
            if not (good and math.isfinite(value))
        ]
        if mistakes:
            raise SettingsError(f"a drift guard's {'; '.join(mistakes)}")

    def advance(
        self, total: float, square: float, leverage: float, learned: int, dim: int
    ) -> float:
        """`advanced` with this guard's numbers."""
        return advanced(
            total,
            square,
            leverage,
            learned,
            dim,
            self.allowance,
            self.cap,
            self.leverage,
            self.warm,
        )


def reward_surprise(reward: float, score: float, noise: float) -> float:
    """z² = ((y − s)/σ)² of a reward y of an action with score s; σ = 0 makes any residual ∞."""
    residual = reward - score
    if noise > 0.0:
        residual /= noise
        return residual * residual
    return 0.0 if abs(residual) <= TIE * (1.0 + abs(score)) else math.inf


def label_surprise(scores: Array, gold: int) -> float:
    """z² = (ℓ − h)²/Var ℓ of the label `gold`, under the softmax of its loss set's `scores`, (m,).

    ℓ = −log π_gold, h = Σ −π log π and Var ℓ = Σ π (−log π − h)². 0 where ℓ is h but for rounding,
    as with one candidate or a uniform policy; ∞ for an answer that the policy rules out.
    """
    largest = scores[0]
    for x in range(1, len(scores)):
        largest = max(largest, scores[x])
    total = 0.0
    for x in range(len(scores)):
        total += math.exp(scores[x] - largest)
    size = largest + math.log(total)
    entropy = 0.0
    for x in range(len(scores)):
        entropy += math.exp(scores[x] - size) * (size - scores[x])
    variance = 0.0
    for x in range(len(scores)):
        away = size - scores[x] - entropy
        variance += math.exp(scores[x] - size) * away * away
    off = size - scores[gold] - entropy
    if abs(off) <= TIE * (1.0 + abs(largest)):
        return 0.0
    return off * off / variance if variance > 0.0 else math.inf


def advanced(
    total: float,
    square: float,
    leverage: float,
    learned: int,
    dim: int,
    allowance: float,
    cap: float,
    most: float,
    warm: float,
) -> float:
    """The next S, from `total` and an answer's z² (`square`) and leverage.

    `learned` are the labels learned since the last reset, `most` is the guard's `leverage`, and the
    rest as in `DriftGuard`.
    """
    if learned <= warm * dim or leverage >= most * (1.0 - TIE):
        return total
    return max(0.0, total + min(square, cap) - allowance)


def alarmed(total: float, level: float) -> bool:
    """Whether S is above the level."""
    return total > level * (1.0 + TIE)


def surprise(
    scorer: Scorer, inputs: Inputs, shown: tuple[int, ...], choice: int, feedback: Feedback
) -> tuple[float, float]:
    """(z², leverage) of an answer at the scorer's present θ and V; changes nothing. O(m d²).

    `shown` is the loss set of a label, `choice` the action of a reward.

    Raises:
        SettingsError: class heads, or labels on one-hot scores (`ridge`).
    """
    labeled = isinstance(feedback, Label)
    if not isinstance(inputs, PairFeatures):
        raise SettingsError("the drift guard needs pair features: leave drift out for class heads")
    if labeled and scorer.name == "ridge":
        raise SettingsError(
            "the drift guard needs a softmax policy for labels, and the one-hot scores of 'ridge' "
            "are none: use the scorer 'newton' or 'sgd', or leave drift out"
        )
    gram_inv = gram_inv_of(scorer.state())
    if isinstance(feedback, Label):
        view = scorer.bounds(inputs, shown)
        rows = inputs.phi[list(shown)]
        centered = rows - view.probabilities @ rows
        squares = ((centered @ gram_inv) * centered).sum(axis=1)
        square = label_surprise(view.scores, shown.index(feedback.index))
        return square, float(view.probabilities @ squares)
    row = inputs.phi[choice]
    score = float(scorer.scores(inputs)[choice])
    leverage = float(row @ gram_inv @ row)
    return reward_surprise(feedback.value, score, scorer.settings.noise), leverage


def gram_inv_of(state: Mapping[str, NDArray[Any]]) -> Any:
    """V⁻¹ in the state of a scorer, (d, d); None of `sgd` on class heads, which has several."""
    if "blocks" in state:
        return state["blocks"][0] if state["theta"].ndim == 1 else None
    return state["gram_inv"]
