"""The scorer `newton`: one-pass online Newton steps on the softmax, for pairs and classes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from stacksl.core.blocks import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.core.confidence import norms, pair_norms
from stacksl.core.losses import cross_entropy, softmax
from stacksl.core.scorers.base import LinearScorer, ScorerSettings, View
from stacksl.core.scorers.rows import (
    pick,
    presented_scores,
)
from stacksl.types import Label


class PairNewton(LinearScorer):
    """`newton` on pair features: θ ← θ − (H + F(θ))⁻¹g, then H ← H + F(θ), θ and g being (d,).

    For a label over its loss set, g = Σ π_x φ_x − φ_gold is the gradient of its cross-entropy and
    F(θ) = Σ π_x (φ_x − μ)(φ_x − μ)ᵀ with μ = Σ π_x φ_x the Fisher information; H starts as
    ridge·I and grows by F at the new θ. Norms are in H⁻¹. `track="all"` also adds the information
    of unasked rounds, at the θ of the round, as if their labels had been bought (an ablation).
    The policy π is the softmax of the scores offset_x + θᵀφ_x, so that with no label it is that
    of the offsets alone. O(m d²) a label.

    Source: Zhang and Sugiyama (NeurIPS 2023), Lee and Oh (NeurIPS 2024), with step size 1;
    `docs/paper.md`, D5. Deviation: not in the paper. The ellipsoid about θ that the radius of ridge
    gives is false in general (`docs/theory.md`, section 4, which has a set that is proved for
    softmax labels).
    """

    name = "newton"

    def __init__(self, dim: int, settings: ScorerSettings) -> None:
        super().__init__((dim,), settings)

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        assert isinstance(inputs, PairFeatures)
        policy = softmax(scores)
        rows = pick(inputs.phi, presented)
        images = self.confidence.images(rows)
        pairs = partial(pair_norms, rows, images)
        return policy, norms(rows, images), pairs, _information(rows, images, policy)

    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        assert isinstance(inputs, PairFeatures)
        rows = pick(inputs.phi, presented)
        scores = presented_scores(self.theta, inputs, presented, rows)
        slope = cross_entropy(scores, presented.index(label.index))[1]
        factors = self._factors(inputs, presented, rows)
        self.theta = self.theta - self._solve(factors, slope @ rows)
        self.confidence.update(self._factors(inputs, presented, rows))

    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        assert isinstance(inputs, PairFeatures)
        rows = pick(inputs.phi, presented)
        self.confidence.update(self._factors(inputs, presented, rows), labels=0)

    def _factors(self, inputs: PairFeatures, presented: tuple[int, ...], rows: Array) -> Array:
        # F = UᵀU with the rows sqrt(π_x)·(φ_x − μ) of U.
        policy = softmax(presented_scores(self.theta, inputs, presented, rows))
        factors: Array = np.sqrt(policy)[:, None] * (rows - policy @ rows)
        return factors

    def _solve(self, factors: Array, gradient: Array) -> Array:
        """(H + UᵀU)⁻¹g for U = `factors`, by the smaller of the two systems (Woodbury)."""
        direction: Array = self.confidence.gram_inv @ gradient
        images = self.confidence.images(factors)
        if len(factors) <= self.dim:
            small_system = np.eye(len(factors)) + images @ factors.T
            return direction - images.T @ np.linalg.solve(small_system, factors @ direction)
        system: Array = np.eye(self.dim) + images.T @ factors
        return np.asarray(np.linalg.solve(system, direction), dtype=np.float64)


def _information(rows: Array, images: Array, policy: Array) -> float:
    """tr(F H⁻¹) = Σ π_x ‖D_x‖² − ‖Σ π_x D_x‖² with D_x = φ_x − φ_i for the likeliest i.

    Where all rows are equal, the differences and the information are exactly 0.
    """
    likeliest = int(np.argmax(policy))
    row_gaps, image_gaps = rows - rows[likeliest], images - images[likeliest]
    common = float((policy @ row_gaps) @ (policy @ image_gaps))
    return max(float(policy @ np.einsum("ij,ij->i", row_gaps, image_gaps)) - common, 0.0)


class ClassNewton(LinearScorer):
    """`newton` on class heads, H bounded from above by one (d, d) matrix; θ is (K, d).

    The Fisher information of a label, (diag π − ππᵀ) ⊗ hhᵀ, is at most ½P ⊗ hhᵀ with
    P = I − 11ᵀ/K (Böhning 1992), also where only some of the classes were presented. So
    H = ridge·I + ½P ⊗ Σ hhᵀ, and with M = ridge·I + ½ Σ hhᵀ, which is all that is kept,

        H⁻¹ = P ⊗ M⁻¹ + (11ᵀ/K) ⊗ I/ridge,

    so ‖e_x ⊗ h‖² = (1 − 1/K)·hᵀM⁻¹h + ‖h‖²/(K·ridge) and, for two classes,
    ‖(e_x − e_i) ⊗ h‖² = 2·hᵀM⁻¹h. The gradient (π − e_gold) ⊗ h has entries that add to zero over
    the classes, so the Newton step is θ ← θ − (π − e_gold) ⊗ M⁻¹h with this label's h already in
    M. O(d² + K d).

    The radius is that of H's full dimension K·d, and proved no more than for pairs. `track="all"`
    adds the bound of unasked rounds too. The policy is the softmax of the scores.

    Source: `docs/paper.md`, D5, D14. Deviation: not in the paper; widths are at most those of
    the exact H.
    """

    name = "newton"

    def __init__(self, dim: int, classes: int, settings: ScorerSettings) -> None:
        super().__init__((classes, dim), settings)
        self.classes = classes

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        assert isinstance(inputs, SharedFeatures)
        policy = softmax(scores)
        square = max(float(inputs.h @ (self.confidence.gram_inv @ inputs.h)), 0.0)
        common = float(inputs.h @ inputs.h) / (self.classes * self.settings.ridge)
        width = math.sqrt((1.0 - 1.0 / self.classes) * square + common)
        information = max(1.0 - float(policy @ policy), 0.0) * square
        return policy, np.full(len(presented), width), math.sqrt(2.0 * square), information

    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        assert isinstance(inputs, SharedFeatures)
        scores = pick(self.scores(inputs), presented)
        slope = cross_entropy(scores, presented.index(label.index))[1]
        self._inform(inputs, labels=1)
        self.theta[list(presented)] -= slope[:, None] * (self.confidence.gram_inv @ inputs.h)

    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        self._inform(inputs, labels=0)

    def _inform(self, inputs: Inputs, labels: int) -> None:
        assert isinstance(inputs, SharedFeatures)
        self.confidence.update(inputs.h[None, :], np.array([0.5]), labels=labels)
