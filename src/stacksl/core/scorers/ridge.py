"""The scorer `ridge`, of the theorems: θ̂ = V⁻¹b, for pairs and for class heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.core.confidence import norms, pair_norms
from stacksl.core.gates.rules import TIE
from stacksl.core.scorers.base import LinearScorer, ScorerSettings, View
from stacksl.core.scorers.rows import pick
from stacksl.types import Label


def shares(scores: Array) -> Array:
    """The policy of one-hot regression: max(s, 0)/Σ max(s, 0), uniform where no score is above 0.

    `scores` is (m,). One-hot targets make a score an estimate of a probability, so it is clipped
    at 0 and normalized; a softmax of it would be nearly uniform. Scores that add up to less than
    1e-9 of the targets' 1 are rounding, and none is above 0 (`docs/paper.md`, D17).

    >>> shares(np.array([3.0, 1.0, -2.0])), shares(np.array([1e-17, 0.0]))
    (array([0.75, 0.25, 0.  ]), array([0.5, 0.5]))
    """
    positive = np.maximum(scores, 0.0)
    total = float(positive.sum())
    share: Array = positive / total if total > TIE else np.full(len(scores), 1.0 / len(scores))
    return share


class PairRidge(LinearScorer):
    """`ridge` on pair features: θ̂ = V⁻¹b with V = ridge·I + Σ φφᵀ and b = Σ y·φ, both (d,).

    A label puts every row of its loss set into V and b with its one-hot target (y = 1 for the
    gold, 0 for the rest). `track="all"` adds φ(z, x̂) to V, and not to b, on unasked rounds (the
    printed reading, whose coverage falls: `docs/paper.md`, D2). The policy is `shares` of the
    scores.

    Source: paper, Section 5; Abbasi-Yadkori, Pal and Szepesvari (2011) for the radius.
    Deviation: the radius counts labels (`docs/paper.md`, D2), and under labels each brings a row
    for every candidate of its loss set, so there it is smaller than the theorem's: calibrated, not
    valid.
    """

    name = "ridge"

    def __init__(self, dim: int, settings: ScorerSettings) -> None:
        super().__init__((dim,), settings)
        self.moment: Array = np.zeros(dim)

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        assert isinstance(inputs, PairFeatures)
        rows = pick(inputs.phi, presented)
        images = self.confidence.images(rows)
        return shares(scores), norms(rows, images), partial(pair_norms, rows, images), None

    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        assert isinstance(inputs, PairFeatures)
        rows = pick(inputs.phi, presented)
        self.moment += rows[presented.index(label.index)]
        self.confidence.update(rows)
        self.theta = self.confidence.gram_inv @ self.moment

    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        assert isinstance(inputs, PairFeatures)
        self.confidence.update(inputs.phi[choice : choice + 1], labels=0)
        self.theta = self.confidence.gram_inv @ self.moment

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a step changes, as copies."""
        return {**super().state(), "moment": self.moment.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""
        self.moment = np.array(state["moment"])
        super().restore(state)


class ClassRidge(LinearScorer):
    """`ridge` on class heads: one-hot regressions θ̂_x = A⁻¹ Σ y_x·h that share one Gram matrix.

    With φ(z, x) = e_x ⊗ h and all K rows of a label entering V, V is I_K ⊗ A with
    A = ridge·I + Σ hhᵀ, so one (d, d) matrix serves all classes exactly (`docs/paper.md`, D14). A
    label updates every class, presented or not: the gold's target is 1, all others' are 0.
    Recursive least squares: θ̂_x ← θ̂_x + (y_x − θ̂_xᵀh)·A⁻¹h, O(d² + K d).

    The width of every class is ‖h‖ in A⁻¹, and a pair's is sqrt(2) times that; the radius is that
    of one class's d-dimensional regression. `track="all"` adds hhᵀ to A, with nothing to b, on
    unasked rounds. The policy is `shares` of the scores.

    Source: paper, Section 5, one estimate a class; `docs/paper.md`, D5, D14.
    """

    name = "ridge"

    def __init__(self, dim: int, classes: int, settings: ScorerSettings) -> None:
        super().__init__((classes, dim), settings, degrees=dim)

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        assert isinstance(inputs, SharedFeatures)
        square = max(float(inputs.h @ (self.confidence.gram_inv @ inputs.h)), 0.0)
        widths = np.full(len(presented), math.sqrt(square))
        return shares(scores), widths, math.sqrt(2.0 * square), None

    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        self._regress(inputs, label.index, labels=1)

    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        self._regress(inputs, None, labels=0)

    def _regress(self, inputs: Inputs, gold: int | None, labels: int) -> None:
        assert isinstance(inputs, SharedFeatures)
        residual = -(self.theta @ inputs.h)
        if gold is not None:
            residual[gold] += 1.0
        self.confidence.update(inputs.h[None, :], labels=labels)
        gain = self.confidence.gram_inv @ inputs.h
        self.theta += residual[:, None] * gain
