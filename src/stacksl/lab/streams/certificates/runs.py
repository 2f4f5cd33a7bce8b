"""Many short runs of `newton` on softmax labels at once: the scorer's steps over a dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core import generator, radius
from stacksl.core.blocks import Array
from stacksl.core.likelihood import LabelLoss
from stacksl.lab.synthetic.streams import sphere

CANDIDATES, POOL = 5, 4
Design = Literal["first", "margin"]
"""Which items are bought: all that come, or of every four the one with the smallest margin."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What N runs may buy.

    Attributes:
        truth: θ*, (N, d), uniform on the sphere of radius S.
        features: φ, (N, B, P, K, d): P items to choose each of B labels from.
        labels: of each, (N, B, P), drawn from the softmax of the true scores.
        fresh: rows of which no label can be bought, (N, 2, d).
    """

    truth: Array
    features: Array
    labels: NDArray[np.int64]
    fresh: Array


def make_world(
    seed: int, *, runs: int, labels: int, dim: int, norm_bound: float, design: Design
) -> World:
    """Runs under `seed`: φ uniform on the unit sphere of R^dim, fresh for each item."""
    pool = POOL if design == "margin" else 1
    rng = generator(seed, f"certificates/{design}/{norm_bound:g}", runs, labels, dim)
    truth = norm_bound * sphere(rng, runs, dim)
    features = sphere(rng, runs, labels, pool, CANDIDATES, dim)
    values = np.einsum("nbpkd,nd->nbpk", features, truth)
    drawn = (values + rng.gumbel(size=values.shape)).argmax(axis=-1)
    return World(truth, features, drawn, sphere(rng, runs, 2, dim))


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What N runs bought, and where `newton` got to.

    Attributes:
        bought: L of the labels in their order, of N runs.
        theta: (N, d); matrix: H, (N, d, d).
        radius: of E_H after the last label.
        plug_in: Σ −log π of each label under the θ before it, (N,).
        lost_ellipsoid, lost_plug_in: whether θ* was ever outside, (N,).
    """

    bought: LabelLoss
    theta: Array
    matrix: Array
    radius: float
    plug_in: Array
    lost_ellipsoid: NDArray[np.bool_]
    lost_plug_in: NDArray[np.bool_]


def play_newton(world: World, ridge: float, delta: float) -> Played:
    """Every run of `world` with the scorer `newton`; it knows S and buys by the smallest margin."""
    runs, count, _, _, dim = world.features.shape
    bound = float(np.linalg.norm(world.truth[0]))
    theta, matrix = np.zeros((runs, dim)), np.tile(ridge * np.eye(dim), (runs, 1, 1))
    own, true = np.zeros(runs), np.zeros(runs)
    lost = np.zeros((2, runs), dtype=bool)
    bought = []
    for number in range(count + 1):
        reach = radius(1.0, dim, number, ridge, delta, bound)
        offset = theta - world.truth
        lost[0] |= np.einsum("ni,nij,nj->n", offset, matrix, offset) > reach * reach
        lost[1] |= true > own + math.log(1.0 / delta)
        if number == count:
            break
        pairs = _bought(world, number, theta)
        bought.append(pairs)
        label = LabelLoss(pairs, np.zeros(pairs.shape[:-1]))
        own += label.value(theta)
        true += label.value(world.truth)
        gradient, information = label.derivatives(theta)
        theta = theta - np.linalg.solve(matrix + information, gradient[..., None])[..., 0]
        matrix = matrix + label.derivatives(theta)[1]
    every = np.concatenate(bought, axis=1)
    losses = LabelLoss(every, np.zeros(every.shape[:-1]))
    return Played(losses, theta, matrix, reach, own, lost[0], lost[1])


def _bought(world: World, number: int, theta: Array) -> Array:
    """φ_x − φ_gold of the item that each run buys, (N, 1, K, d)."""
    runs = np.arange(len(theta))
    offered = world.features[:, number]
    scores = np.sort(np.einsum("npkd,nd->npk", offered, theta), axis=-1)
    place = (scores[..., -1] - scores[..., -2]).argmin(axis=-1)
    rows = offered[runs, place]
    gold = rows[runs, world.labels[runs, number, place]]
    found: Array = (rows - gold[:, None])[:, None]
    return found
