"""The scorer `sgd`, of Algorithms 1 and 2: gradient steps on the clipped loss and a KL term."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures
from stacksl.core.calibration import WINDOW, clip_level
from stacksl.core.confidence import ConfidenceSet, norms, pair_norms
from stacksl.core.losses import above, clip, cross_entropy, kl, softmax
from stacksl.core.scorers.base import Pairs, Scorer, ScorerSettings, View
from stacksl.core.scorers.rows import add_rows, all_scores, pick
from stacksl.types import Label


class GradientScorer(Scorer):
    """`sgd`: θ ← θ − η·∇_θ [clip(ℓ(θ)) + λ·KL(π_θ ‖ π_ref)], for pairs (d,) or classes (K, d).

    ℓ is the cross-entropy of the label over the loss set, η = `learning_rate`, λ = `kl_weight`,
    π_ref as `reference` says: the starting policy (θ = 0), or the policy at the step's beginning.
    The clip level is `clip_level`, or the 95% quantile of the last 200 losses (no clipping before
    20).

    V: `labeled` adds φ(z, x̂) of the choice when a label is learned; `all`, as printed, adds it on
    unlabeled rounds too, through `skip`. For class heads V is block-diagonal, and φ(z, x̂) moves
    the block of x̂ alone. Bounds are centered at θ; the radius is that of φ's full dimension, K·d
    for class heads. The policy is the softmax of the scores.

    `rounds` counts steps with feedback and skips: the n of the radius when it counts rounds.
    `clipped` counts the learned labels whose loss was above the level.

    Source: Algorithms 1 and 2. Deviation: `docs/paper.md`, D2, D3, D10; the radius was
    proved for the ridge estimate, not for this θ.
    """

    name = "sgd"

    def __init__(self, dim: int, classes: int | None, settings: ScorerSettings) -> None:
        super().__init__((dim,) if classes is None else (classes, dim), settings)
        self.reference: Array = np.zeros_like(self.theta)
        self.tracker = Blocks(dim, settings.ridge, by_class=classes is not None)
        self.learned = 0
        self.clipped = 0
        self.kl_weight = settings.kl_weight
        self._losses = np.zeros(WINDOW)

    @property
    def volume(self) -> float:  # type: ignore[override]
        """Log det(V/λI), in nats."""
        return self.tracker.volume

    def step(
        self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label | None
    ) -> None:
        """See `Scorer.step`: None is the step on the KL term alone."""
        if label is None:
            self._descend(inputs, presented, None, self._level(), self._anchor())
        super().step(inputs, presented, choice, label)

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        return softmax(scores), *self.tracker.widths(inputs, presented), None

    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        gold, level = presented.index(label.index), self._level()
        loss = self._descend(inputs, presented, gold, level, self._anchor())
        self._losses[self.learned % WINDOW] = loss
        self.learned += 1
        if self.settings.clip != "none" and above(loss, level):
            self.clipped += 1
        self.tracker.add(inputs, choice)

    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        self.tracker.add(inputs, choice)

    def _anchor(self) -> Array:
        """The θ of the reference policy."""
        return self.theta.copy() if self.settings.reference == "previous" else self.reference

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a step changes, as copies."""
        counts = np.array([self.learned, self.rounds, self.clipped], dtype=np.int64)
        arrays = {"theta": self.theta.copy(), "losses": self._losses.copy(), "counts": counts}
        return {**arrays, **self.tracker.state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""
        self.theta, self._losses = np.array(state["theta"]), np.array(state["losses"])
        self.learned, self.rounds, self.clipped = (int(count) for count in state["counts"])
        self.tracker.restore(state)

    def _descend(
        self,
        inputs: Inputs,
        presented: tuple[int, ...],
        gold: int | None,
        level: float,
        anchor: Array,
    ) -> float:
        scores = pick(self.scores(inputs), presented)
        slope = np.zeros_like(scores)
        loss = 0.0
        if gold is not None:
            loss, gradient = cross_entropy(scores, gold)
            slope += clip(loss, gradient, level, self.settings.clip)[1]
        if self.kl_weight > 0.0:
            pull = kl(scores, pick(all_scores(anchor, inputs), presented))[1]
            slope += self.kl_weight * pull
        add_rows(self.theta, inputs, presented, -self.settings.learning_rate * slope)
        return loss

    def _level(self) -> float:
        return clip_level(self._losses[: self.learned], self.settings.clip_level)


class Blocks:
    """V: one (d, d) block for pair features, and one for each class of class heads (D14).

    φ(z, x) = e_x ⊗ h moves the block of x alone, so a class has a block from the first time that it
    is chosen; until then that is ridge·I.
    """

    def __init__(self, dim: int, ridge: float, *, by_class: bool) -> None:
        self.dim = dim
        self.ridge = ridge
        empty = {} if by_class else {0: ConfidenceSet.empty(dim, ridge)}
        self.blocks: dict[int, ConfidenceSet] = empty

    @property
    def volume(self) -> float:
        """Log det(V/λI), of all blocks."""
        return sum((self.blocks[owner].volume for owner in sorted(self.blocks)), 0.0)

    def widths(self, inputs: Inputs, presented: tuple[int, ...]) -> tuple[Array, Pairs]:
        """Widths of the presented candidates, and pair widths against any of them.

        O(m d²), and with class heads O(d²) for every presented class that has a block.
        """
        if isinstance(inputs, PairFeatures):
            rows = pick(inputs.phi, presented)
            images = self.blocks[0].images(rows)
            return norms(rows, images), partial(pair_norms, rows, images)
        row = inputs.h[None, :]
        untouched = math.sqrt(float(inputs.h @ inputs.h) / self.ridge)
        widths = np.full(len(presented), untouched)
        for position, candidate in enumerate(presented):
            if candidate in self.blocks:
                widths[position] = self.blocks[candidate].widths(row)[0]
        return widths, partial(class_pair_widths, widths)

    def add(self, inputs: Inputs, candidate: int) -> None:
        """V ← V + φ(z, x)φ(z, x)ᵀ for the candidate's index x in the full list; O(d²)."""
        if isinstance(inputs, PairFeatures):
            self.blocks[0].update(inputs.phi[candidate : candidate + 1])
            return
        if candidate not in self.blocks:
            self.blocks[candidate] = ConfidenceSet.empty(self.dim, self.ridge)
        self.blocks[candidate].update(inputs.h[None, :])

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays that `restore` takes."""
        owners = sorted(self.blocks)
        blocks = np.zeros((len(owners), self.dim, self.dim))
        for slot, owner in enumerate(owners):
            blocks[slot] = self.blocks[owner].gram_inv
        volumes = np.array([self.blocks[owner].volume for owner in owners])
        return {"owners": np.array(owners, dtype=np.int64), "blocks": blocks, "volumes": volumes}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`."""
        saved = zip(state["owners"], state["blocks"], state["volumes"], strict=True)
        self.blocks = {
            int(owner): ConfidenceSet(np.array(block), self.ridge, volume=float(volume))
            for owner, block, volume in saved
        }


def class_pair_widths(widths: Array, choice: int) -> Array:
    """‖e_x ⊗ h − e_i ⊗ h‖ for i = `choice` where V is block-diagonal: sqrt(w_x² + w_i²), 0 at i."""
    pairs: Array = np.hypot(widths, widths[choice])
    pairs[choice] = 0.0
    return pairs
