"""Fresh scorers, inputs drawn at random, and what a scorer stands for in full matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from stacksl.core.blocks import Array, PairFeatures, SharedFeatures
from stacksl.core.losses import softmax
from stacksl.core.scorers import Bounds, ScorerSettings, make_scorer
from stacksl.types import Label
from stacksl_lab.rewards import Reward, RewardRidge

ALL = (0, 1, 2, 3)


def pair_inputs(rng: np.random.Generator, count: int = 4, dim: int = 5) -> PairFeatures:
    phi = rng.normal(size=(count, dim))
    return PairFeatures(phi / np.linalg.norm(phi, axis=1, keepdims=True))


def shared_inputs(rng: np.random.Generator, classes: int = 4, dim: int = 5) -> SharedFeatures:
    h = rng.normal(size=dim)
    return SharedFeatures(h / np.linalg.norm(h), classes)


def kronecker(inputs: SharedFeatures) -> PairFeatures:
    """The rows e_x ⊗ h that class heads never build."""
    return PairFeatures(np.kron(np.eye(inputs.size), inputs.h).astype(np.float64))


def fresh(name: str, *, dim: int = 5, classes: int | None = None, **settings: Any) -> Any:
    """A scorer that has learned nothing yet."""
    return make_scorer(name, dim=dim, classes=classes, settings=ScorerSettings(**settings))


def taught(name: str, classes: int | None = None, **settings: Any) -> tuple[Any, Array, Bounds]:
    """A scorer of 6 columns after nine answers, five rows of a tenth item, and its view of them."""
    generator = np.random.default_rng(4)
    rewarded = name == "ridge" and classes is None
    scorer: Any = fresh(name, dim=6, classes=classes, **settings)
    if rewarded:
        scorer = RewardRidge(6, ScorerSettings(**settings))
    for round in range(10):
        rows = generator.normal(size=(5, 6)) / 3.0
        inputs = PairFeatures(rows) if classes is None else SharedFeatures(rows[0], classes)
        if round < 9:
            if rewarded:
                scorer.reward(inputs, round % 2, Reward(float(generator.normal())))
            else:
                scorer.step(inputs, tuple(range(classes or 5)), round % 2, Label(round % 3))
    return scorer, rows, scorer.bounds(inputs, tuple(range(classes or 5)))


def fisher(rows: Array, theta: Array) -> Array:
    """The exact information of one item, (d, d): the covariance of its rows under the policy."""
    policy = softmax(rows @ theta)
    centered = rows - policy @ rows
    return (centered.T * policy) @ centered
