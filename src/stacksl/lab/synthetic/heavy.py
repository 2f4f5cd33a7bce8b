"""Streams with heavy-tailed losses: rows of heavy-tailed length, some labels the worst of all."""

from __future__ import annotations

import numpy as np

from stacksl.core import generator
from stacksl.core.blocks import Array
from stacksl.lab.synthetic.streams import SyntheticStream, sphere

SHORTEST, TAIL = 0.1, 1.5
SCALE = 8.0
TESTS = 2000


def heavy_stream(
    seed: int, *, rounds: int, share: float, dim: int = 20, candidates: int = 4
) -> SyntheticStream:
    """T rounds whose rows have length min(1, 0.1·u^(−1/1.5)), u uniform, and θ* ~ 8·N(0, I).

    Most scores are then near each other, a loss near log K, and some 3 % of rounds have rows of
    length 1, scores that are 8 apart, and losses as large where the label is a surprise. Labels
    follow the softmax of the scores; in a `share` of the rounds, drawn independently, the label is
    the candidate of the lowest score instead, as of a mistaken or adversarial labeler.
    The test rounds follow the same law and are judged by the true scores.
    """
    rng = generator(seed, "heavy", rounds, dim, candidates)
    truth = SCALE * rng.normal(size=dim)
    features = _rows(rng, rounds, candidates, dim)
    values = features @ truth
    drawn = values + rng.gumbel(size=values.shape)
    flipped = rng.random(rounds) < share
    tests = _rows(rng, TESTS, candidates, dim)
    return SyntheticStream(
        features,
        values,
        None,
        np.where(flipped[:, None], -values, drawn),
        truth,
        1.0,
        candidates,
        tests,
        tests @ truth,
    )


def _rows(rng: np.random.Generator, count: int, candidates: int, dim: int) -> Array:
    lengths = np.minimum(1.0, SHORTEST * (1.0 - rng.random(count)) ** (-1.0 / TAIL))
    return sphere(rng, count, candidates, dim) * lengths[:, None, None]
