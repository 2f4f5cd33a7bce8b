"""The scorers of one parameter θ and one matrix: what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, Inputs
from stacksl.core.confidence import ConfidenceSet, current_radius
from stacksl.core.heads.linear import Head, refit
from stacksl.core.heads.logistic import Fit
from stacksl.core.scorers.bounds import Bounds, assemble
from stacksl.core.scorers.rows import all_scores, restored
from stacksl.core.scorers.settings import ScorerSettings


class LinearScorer:
    """θ, the confidence set of its matrix, and the count of rounds.

    Args:
        shape: of θ: (d,) for pair features, (K, d) for class heads.
        settings: the numbers of the scorer.
        seed: draws the folds of a refit.
    """

    def __init__(self, shape: tuple[int, ...], settings: ScorerSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.dim = shape[-1]
        self.theta: Array = np.zeros(shape)
        self.confidence = ConfidenceSet.empty(self.dim, settings.ridge)
        self.rounds = 0

    @property
    def learnt(self) -> int:
        """Labels (or rewards) that entered the matrix."""
        return self.confidence.learnt

    def scores(self, inputs: Inputs) -> Array:
        """offset_x + θᵀφ(z, x) of all K candidates, (K,)."""
        return all_scores(self.theta, inputs)

    def _assembled(
        self,
        presented: tuple[int, ...],
        scores: Array,
        policy: Array,
        widths: Array,
        against: Callable[[int], Array] | float,
        size: int,
        information: float | None = None,
    ) -> Bounds:
        """The `Bounds` under the scorer's settings, its radius that of `size` dimensions."""
        reach = current_radius(self.settings, size, self.learnt, self.rounds)
        return assemble(
            presented, scores, policy, widths, against, reach, self.dim, self.settings,
            self.confidence.volume, information,
        )  # fmt: skip

    def refit(
        self, block: Block, labels: NDArray[np.int64], tune: bool = True, fit: Fit | None = None
    ) -> Head | None:
        """The final model of the labelled items `block`; see `heads.linear.refit`."""
        return refit(block, labels, self.theta, self.seed, tune, fit)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a step changes, as copies."""
        return {
            "theta": self.theta.copy(),
            "gram_inv": self.confidence.gram_inv.copy(),
            "volume": np.array([self.confidence.volume]),
            "counts": np.array([self.learnt, self.rounds], dtype=np.int64),
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
        self.confidence.learnt, self.rounds = (int(count) for count in counts)
