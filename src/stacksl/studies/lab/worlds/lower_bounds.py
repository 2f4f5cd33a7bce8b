"""Streams on which rates can be measured: their gaps shrink with the labels, so regret grows on.

`pairs`: round t shows ±e_i, i uniform in 1..d, and |θ*_i| = σ√(d/B) with random signs. For every
learner that buys at most B labels E R(T) ≥ `LOWER_ANY` · σT√(d/B), and where which rounds are
asked does not depend on answers E R(T) ≥ `LOWER_BLIND` · σT√(d/B) (docs/theory.md, Theorem C.1).

`cube`: every round shows all of {±1/√d}^d, and |θ*_i| is given; at σ√(d/T), with every label
bought, E R(T) ≥ `LOWER_BLIND` · σd√T for every learner (Theorem C.2).
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from stacksl.game import generator
from stacksl.game.inputs import Array
from stacksl.studies.lab.worlds.streams import World

__all__ = ["LOWER_ANY", "LOWER_BLIND", "cube", "pairs", "printed_bound"]

LOWER_BLIND = math.erfc(1.0 / math.sqrt(2.0))
"""2Φ(−1) = 0.317."""

LOWER_ANY = 0.16644
"""2α with (1 − 2α)·log((1 − α)/α) = 2."""

NOISE = 0.3
_NONE = np.zeros((0, 0))


def pairs(rounds: int, labels: int, dim: int, seed: int) -> World:
    """The instance of the lower bound for `labels` = B: it changes with B and not with T."""
    rng = generator(seed, "rates/pairs", rounds, labels, dim)
    truth = NOISE * math.sqrt(dim / labels) * rng.choice([-1.0, 1.0], size=dim)
    places, clock = rng.integers(dim, size=rounds), np.arange(rounds)
    features = np.zeros((rounds, 2, dim))
    features[clock, 0, places], features[clock, 1, places] = 1.0, -1.0
    values = np.stack([truth[places], -truth[places]], axis=1)
    return _world(features, values, truth, rng)


def cube(rounds: int, size: float, dim: int, seed: int) -> World:
    """The hypercube with |θ*_i| = `size` and random signs, the same 2^d candidates each round."""
    rng = generator(seed, "rates/cube", rounds, dim, round(size * 1e9))
    truth = size * rng.choice([-1.0, 1.0], size=dim)
    corners = np.array(list(product([1.0, -1.0], repeat=dim))) / math.sqrt(dim)
    features = np.broadcast_to(corners, (rounds, *corners.shape))
    return _world(features, np.broadcast_to(corners @ truth, features.shape[:2]), truth, rng)


def _world(features: Array, values: Array, truth: Array, rng: np.random.Generator) -> World:
    rewards = values + NOISE * rng.normal(size=(len(values), 1))
    none = np.zeros((0, *features.shape[1:]))
    return World(features, values, rewards, None, truth, NOISE, features.shape[1], none, _NONE)


def printed_bound(labels: float, rounds: float, dim: int, scale: float = 1.0) -> float:
    """Theorem 2 as printed, with its constant 1: √(d B log(1 + T/(λd))) + c√B, λ = 1.

    Args:
        labels, rounds: B and T.
        scale: c.
    """
    return math.sqrt(dim * labels * math.log1p(rounds / dim)) + scale * math.sqrt(labels)
