"""Fresh scorers, inputs drawn at random, and what a scorer stands for in full matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from stacksl.core.blocks import Array, PairFeatures, SharedFeatures
from stacksl.core.losses import softmax
from stacksl.core.scorers import ScorerSettings, make_scorer

ALL = (0, 1, 2, 3)


def pair_inputs(rng: np.random.Generator, count: int = 4, dim: int = 5) -> PairFeatures:
    phi = rng.normal(size=(count, dim))
    return PairFeatures(phi / np.linalg.norm(phi, axis=1, keepdims=True))


def shared_inputs(rng: np.random.Generator, classes: int = 4, dim: int = 5) -> SharedFeatures:
    h = rng.normal(size=dim)
    return SharedFeatures(h / np.linalg.norm(h), classes)


def kronecker(inputs: SharedFeatures) -> PairFeatures:
    """The rows e_x ⊗ h that class heads never build."""
    return PairFeatures(np.kron(np.eye(inputs.classes), inputs.h).astype(np.float64))


def fresh(
    name: str, *, dim: int = 5, classes: int | None = None, seed: int = 0, **settings: Any
) -> Any:
    """A scorer that has learnt nothing yet."""
    return make_scorer(
        name, dim=dim, classes=classes, settings=ScorerSettings(**settings), seed=seed
    )


def fisher(rows: Array, theta: Array) -> Array:
    """The exact information of one item, (d, d): the covariance of its rows under the policy."""
    policy = softmax(rows @ theta)
    centred = rows - policy @ rows
    return (centred.T * policy) @ centred
