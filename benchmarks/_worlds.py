"""Synthetic worlds in which the truth is known: what `preset_differences.py` plays in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stacksl.core import PairBlock, SharedBlock
from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.rng import generator
from stacksl.types import Label
from stacksl_lab.rewards import Feedback, Reward

__all__ = ["WORLDS", "World"]

DIM, ROUNDS, TESTS = 20, 2000, 1000


@dataclass(frozen=True)
class World:
    """T rounds and a test set that follows the same law.

    `rows` is φ (T, K, d), or h (T, d) with `classes`; `values` (T, K) are the true scores, which
    for classes are 1 for the gold and 0 elsewhere; `gold` (T,) are the labels that would be
    bought, `rewards` (T, K) what each choice would pay. The last `tests` rows are the test set.
    """

    rows: np.ndarray
    values: np.ndarray
    gold: np.ndarray
    rewards: np.ndarray | None = None
    truth: np.ndarray | None = None
    classes: int | None = None
    tests: int = TESTS

    @property
    def horizon(self) -> int:
        """T, the rows that are played."""
        return len(self.rows) - self.tests

    def inputs(self, t: int) -> PairFeatures | SharedFeatures:
        """What the learner sees in round t + 1."""
        row = self.rows[t]
        return PairFeatures(row) if self.classes is None else SharedFeatures(row, self.classes)

    def block(self, picked: np.ndarray) -> PairBlock | SharedBlock:
        """The rows `picked` as a block."""
        rows = self.rows[picked]
        if self.classes is not None:
            return SharedBlock(rows, self.classes)
        size = rows.shape[1]
        offsets = np.arange(len(rows) + 1, dtype=np.int64) * size
        return PairBlock(rows.reshape(-1, rows.shape[2]), offsets)

    def feedback(self, t: int, choice: int) -> Feedback:
        """The label of round t + 1, or the reward of the choice."""
        if self.rewards is None:
            return Label(int(self.gold[t]))
        return Reward(float(self.rewards[t, choice]))


def sphere(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def label_world(seed: int, kind: str, candidates: int = 5, rounds: int = ROUNDS) -> World:
    """Softmax labels of scores with deviation 2, φ uniform on the sphere of R^20.

    `shift`: each half of the rounds has ten dimensions of its own. `ties`: in half of the rounds
    the candidates' scores lie within some .1 of each other.
    """
    rng = generator(seed, f"preset_differences/{kind}")
    count = rounds + TESTS
    rows = sphere(rng, count, candidates, DIM)
    if kind == "shift":
        early = np.where(np.arange(count) < rounds, np.arange(count) < rounds // 2, True)
        early[rounds:] = np.arange(TESTS) % 2 == 0
        rows = np.zeros_like(rows)
        half = sphere(rng, count, candidates, DIM // 2)
        rows[early, :, : DIM // 2], rows[~early, :, DIM // 2 :] = half[early], half[~early]
    if kind == "ties":
        near = sphere(rng, count, 1, DIM) + 0.02 * rows
        near /= np.linalg.norm(near, axis=-1, keepdims=True)
        rows = np.where((rng.random(count) < 0.5)[:, None, None], near, rows)
    truth = 2.0 * rng.normal(size=DIM)
    values = rows @ truth
    gold = (values + rng.gumbel(size=values.shape)).argmax(axis=1)
    return World(rows, values, gold, truth=truth)


def reward_world(seed: int, rounds: int = ROUNDS) -> World:
    """Rewards θ*ᵀφ + 0.3·N(0, 1), K = 20 fresh candidates on the sphere of R^20, θ* ~ N(0, I)."""
    rng = generator(seed, f"preset_differences/rewards/{rounds}")
    rows, truth = sphere(rng, rounds, 20, DIM), rng.normal(size=DIM)
    values = rows @ truth
    rewards = values + 0.3 * rng.normal(size=(rounds, 1))
    return World(rows, values, values.argmax(axis=1), rewards, truth, tests=0)


def hard_world(seed: int, rounds: int, labels: int = 100) -> World:
    """The lower bound's stream: contexts e_i, candidates ±e_i, |θ_i| = σ√(d/B), d = 10, σ = .5."""
    rng = generator(seed, f"preset_differences/hard/{rounds}")
    axes = np.eye(10)[rng.integers(10, size=rounds)]
    rows = np.stack([axes, -axes], axis=1)
    truth = rng.choice([-1.0, 1.0], size=10) * 0.5 * math.sqrt(10 / labels)
    values = rows @ truth
    rewards = values + 0.5 * rng.normal(size=(rounds, 1))
    return World(rows, values, values.argmax(axis=1), rewards, truth, tests=0)


def class_world(seed: int, kind: str, classes: int = 20) -> World:
    """Twenty classes: h is a prototype on the sphere of R^20 plus noise, of norm 1.

    `rare`: half of the classes come a tenth as often in the stream. `sorted`: the stream is in
    order of class. The test set is balanced throughout.
    """
    rng = generator(seed, f"preset_differences/classes/{kind}")
    weights = np.ones(classes)
    if kind == "rare":
        weights[: classes // 2] = 0.1
    drawn = rng.choice(classes, size=ROUNDS, p=weights / weights.sum())
    drawn = np.sort(drawn) if kind == "sorted" else drawn
    gold = np.concatenate([drawn, np.arange(TESTS) % classes])
    rows = sphere(rng, classes, DIM)[gold] + 1.2 * sphere(rng, len(gold), DIM)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return World(rows, np.eye(classes)[gold], gold, classes=classes)


WORLDS: dict[str, Callable[[int], World]] = {
    "labels": lambda seed: label_world(seed, "labels"),
    "shift": lambda seed: label_world(seed, "shift"),
    "ties": lambda seed: label_world(seed, "ties"),
    "K = 200": lambda seed: label_world(seed, "K = 200", 200, 1000),
    "rewards": reward_world,
    "rewards, T = 20,000": lambda seed: reward_world(seed, 20_000),
    "classes": lambda seed: class_world(seed, "classes"),
    "rare": lambda seed: class_world(seed, "rare"),
    "sorted": lambda seed: class_world(seed, "sorted"),
    **{f"hard, T = {n}": lambda seed, n=n: hard_world(seed, n) for n in (500, 1000, 2000, 4000)},
}
