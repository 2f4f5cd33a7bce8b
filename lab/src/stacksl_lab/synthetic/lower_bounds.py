"""Streams of the lower bounds: their gaps shrink with the labels, so that rates can be measured.

`pairs`: round t shows ±e_i, i uniform in 1..d, and |θ*_i| = σ√(d/B) with random signs. For every
learner that buys at most B labels E R(T) ≥ `LOWER_ANY` · σT√(d/B), and where which rounds are
asked does not depend on answers E R(T) ≥ `LOWER_BLIND` · σT√(d/B) (docs/theory.md, Theorem C.1).

`cube`: every round shows all of {±1/√d}^d, and |θ*_i| is given; at σ√(d/T), with every label
bought, E R(T) ≥ `LOWER_BLIND` · σd√T for every learner (Theorem C.2).
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np

from stacksl.core import confidence
from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl_lab.synthetic.streams import SyntheticStream

LOWER_BLIND = math.erfc(1.0 / math.sqrt(2.0))
"""2Φ(−1) = 0.317."""

LOWER_ANY = 0.16644
"""2α with (1 − 2α)·log((1 − α)/α) = 2."""

NOISE = 0.3
_NONE = np.zeros((0, 0))


def pairs(rounds: int, labels: int, dim: int, seed: int) -> SyntheticStream:
    """The instance of the lower bound for `labels` = B: it changes with B and not with T."""
    rng = generator(seed, "rates/pairs", rounds, labels, dim)
    truth = NOISE * math.sqrt(dim / labels) * rng.choice([-1.0, 1.0], size=dim)
    places, clock = rng.integers(dim, size=rounds), np.arange(rounds)
    features = np.zeros((rounds, 2, dim))
    features[clock, 0, places], features[clock, 1, places] = 1.0, -1.0
    values = np.stack([truth[places], -truth[places]], axis=1)
    return _world(features, values, truth, rng)


def cube(rounds: int, size: float, dim: int, seed: int) -> SyntheticStream:
    """The hypercube with |θ*_i| = `size` and random signs, the same 2^d candidates each round."""
    rng = generator(seed, "rates/cube", rounds, dim, round(size * 1e9))
    truth = size * rng.choice([-1.0, 1.0], size=dim)
    corners = np.array(list(product([1.0, -1.0], repeat=dim))) / math.sqrt(dim)
    features = np.broadcast_to(corners, (rounds, *corners.shape))
    return _world(features, np.broadcast_to(corners @ truth, features.shape[:2]), truth, rng)


def _world(
    features: Array, values: Array, truth: Array, rng: np.random.Generator
) -> SyntheticStream:
    rewards = values + NOISE * rng.normal(size=(len(values), 1))
    none = np.zeros((0, *features.shape[1:]))
    return SyntheticStream(
        features, values, rewards, None, truth, NOISE, features.shape[1], none, _NONE
    )


def printed_bound(labels: float, rounds: float, dim: int, scale: float = 1.0) -> float:
    """Theorem 2 as printed, with its constant 1: √(d B log(1 + T/(λd))) + c√B, λ = 1.

    Args:
        labels, rounds: B and T.
        scale: c.
    """
    return math.sqrt(dim * labels * math.log1p(rounds / dim)) + scale * math.sqrt(labels)


def proved_bound(labels: float, rounds: float, dim: int, norm: float) -> float:
    """β_B·√(8dℓ_B/B)·n, ℓ_B = log(1 + B/(λd)), with every constant and λ = L = 1, δ = 0.05.

    Theorem A (4) for n = T + B/4, and Theorem 1 for n = B = T, that is 2β_T·√(2dTℓ_T).

    Args:
        labels, rounds: B and n.
        norm: S = ‖θ*‖ in the radius β_B.

    Source: docs/theory.md, Theorem A (4), Lemma 2.
    """
    beta = confidence.radius(NOISE, dim, int(labels), 1.0, 0.05, norm)
    return beta * math.sqrt(8.0 * dim * math.log1p(labels / dim) / labels) * rounds


def theorem_a(labels: int, rounds: int, dim: int = 20) -> float:
    """Theorem A (4) on `pairs`, with all its constants; ‖θ*‖ = σd/√B there."""
    return proved_bound(labels, rounds + labels / 4, dim, NOISE * dim / math.sqrt(labels))


@cache
def blind_regret(labels: int, rounds: int, dim: int, gate: str) -> float:
    """Mean regret on `pairs` of ridge where answers do not choose the labels; `gate` is their law.

    2m·Σ_t E Φ(−√(n·d/B)), n labels of the round's coordinate: of min(t − 1, B) labels each is with
    chance 1/d under `first`, of B each with chance (t − 1)/(Td) under `random`, where the labels
    are taken as drawn with replacement. The sum over t is by the midpoints of at most 400 parts.

    Source: docs/theory.md, Theorem C.1 and the text below it.
    """
    gap, start = 2.0 * NOISE * math.sqrt(dim / labels), min(labels, rounds)
    if gate == "first":
        early = [_wrong(t, 1.0 / dim, dim / labels) for t in _midpoints(start)]
        late = _wrong(labels, 1.0 / dim, dim / labels)
        return gap * (start * float(np.mean(early)) + (rounds - start) * late)
    spread = [_wrong(labels, t / rounds / dim, dim / labels) for t in _midpoints(rounds)]
    return gap * rounds * float(np.mean(spread))


def _midpoints(rounds: int) -> Array:
    parts = min(rounds, 400)
    midpoints: Array = (np.arange(parts) + 0.5) * rounds / parts - 0.5
    return midpoints


def _wrong(draws: float, chance: float, information: float) -> float:
    """E Φ(−√(n·information)), n binomial."""
    from scipy.special import ndtr
    from scipy.stats import binom

    counts = np.arange(int(draws) + 1)
    law = binom.pmf(counts, int(draws), chance)
    return float(law @ ndtr(-np.sqrt(counts * information)))
