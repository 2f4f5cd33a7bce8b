"""The settings of a scorer, and what the scorers of one parameter θ and one matrix share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs
from stacksl.core.confidence import ConfidenceSet
from stacksl.core.losses import Reading
from stacksl.core.scorers.bounds import Action
from stacksl.core.scorers.rows import all_scores, restored

Reference = Literal["frozen", "previous"]
Track = Literal["labeled", "all"]
RadiusCounts = Literal["learned", "rounds"]


LEAST_RIDGE = 1e-6
"""The least λ: below it the rounding of near-duplicate rows shows in the inverse of V.

V⁻¹ is updated and never inverted again, so that its error grows with the labels and with 1/λ. After
100,000 near-duplicates the largest entry of |V⁻¹V − I| is .016 at this λ, 14 at a hundredth of it
(`benchmarks/width_error.py --floor 20`). At d = 768 it is no larger: after 20,000 near-duplicates
9e-6 at this λ, 1e-7 at 1e-5, 7e-13 at 1 (`--floor 768 --labels 20000`).
"""


@dataclass(frozen=True, slots=True)
class ScorerSettings:
    """The settings that, with name and dimensions, define a scorer.

    Those of a run are checked where they are stated, in `runs.settings.fields`.

    Attributes:
        ridge: λ of V_0 = λI, at least `LEAST_RIDGE` (paper, Section 4; 1e-3 to 1).
        delta: δ; the confidence set is to hold with probability 1 − δ.
        noise: σ, the sub-Gaussian scale of the feedback; 1 for labels.
        norm_bound: S, a bound on ‖θ*‖.
        feature_norm: L, a bound on ‖φ‖.
        learning_rate: η of the gradient step; `sgd` alone.
        kl_weight: λ of the term λ·KL(π_θ ‖ π_ref); `sgd` alone.
        reference: π_ref: the starting policy, or the policy at the beginning of the step (whose
            gradient there is zero: D3); `sgd` alone.
        clip: how a loss above the level is clipped (D10); `sgd` alone.
        clip_level: ρ in nats; None is the 95% quantile of the last losses; `sgd` alone.
        track: what enters V (D2): rows of learned labels, or of all rounds (as printed).
        radius_counts: the n of the radius: labels learned, or rounds so far (as printed).
        action: the action played (D6): the largest score (`greedy`) or the largest UCB (`ucb`).
    """

    ridge: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    norm_bound: float = 1.0
    feature_norm: float = 1.0
    learning_rate: float = 0.1
    kl_weight: float = 0.1
    reference: Reference = "frozen"
    clip: Reading = "scale"
    clip_level: float | None = None
    track: Track = "labeled"
    radius_counts: RadiusCounts = "learned"
    action: Action = "greedy"


class LinearScorer:
    """θ, the confidence set of its matrix, and the count of rounds.

    Args:
        shape: of θ: (d,) for pair features, (K, d) for class heads.
        settings: the numbers of the scorer.
    """

    def __init__(self, shape: tuple[int, ...], settings: ScorerSettings) -> None:
        self.settings = settings
        self.dim = shape[-1]
        self.theta: Array = np.zeros(shape)
        self.confidence = ConfidenceSet.empty(self.dim, settings.ridge)
        self.rounds = 0

    @property
    def learned(self) -> int:
        """Labels (or rewards) that entered the matrix."""
        return self.confidence.learned

    @property
    def volume(self) -> float:
        """Log det(V/λI), in nats."""
        return self.confidence.volume

    def scores(self, inputs: Inputs) -> Array:
        """offset_x + θᵀφ(z, x) of all K candidates, (K,)."""
        return all_scores(self.theta, inputs)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a step changes, as copies."""
        return {
            "theta": self.theta.copy(),
            "gram_inv": self.confidence.gram_inv.copy(),
            "volume": np.array([self.confidence.volume]),
            "counts": np.array([self.learned, self.rounds], dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit.

        Raises:
            FeatureError: the state is of a scorer with other dimensions.
        """
        self.theta = restored(state, "theta", self.theta)
        self.confidence.gram_inv = restored(state, "gram_inv", self.confidence.gram_inv)
        self.confidence.volume = float(restored(state, "volume", np.zeros(1))[0])
        counts = restored(state, "counts", np.zeros(2, dtype=np.int64))
        self.confidence.learned, self.rounds = (int(count) for count in counts)
