"""`certificates`: two confidence sets of softmax labels, over λ, S, d and what is bought.

Many short runs of `newton` are played at once: the scorer's steps over a dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.confidence import radius
from stacksl.core.rng import generator
from stacksl_lab.figures.certificates import USUAL, figures, layout
from stacksl_lab.likelihood import LabelLoss, LikelihoodSet, mixture_loss
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.streams import sphere

RUNS, QUICK_RUNS = 100, 4  # of a seed
MEASURED = 4  # runs of a seed of which the sizes are measured
LABELS, DELTA = 200, 0.05
DIMS, BOUNDS, RIDGES = (1, 5, 20), (2.0, 9.0, 20.0, 40.0), (0.01, 0.1, 1.0, 10.0)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Labels after which the mixture's set is checked; the others are checked after each label."""
ASCENTS = 2  # of the search for the point of a set that is farthest from θ, from either side


def trials(quick: bool) -> Sequence[Trial]:
    """Runs of each dimension and norm, a line for each λ.

    By the margin what is bought depends on the answers, and on λ.
    """
    return [
        Trial(
            {
                "design": design, "dim": dim, "bound": bound, "delta": DELTA,
                "runs": QUICK_RUNS if quick else RUNS, "labels": LABELS,
            },
            tuple(
                Line(f"{design}, d = {dim}, S = {bound:g}, λ = {ridge:g}", {"ridge": ridge})
                for ridge in (RIDGES if design == "first" else (USUAL,))
            ),
        )
        for design in ("first", "margin")
        for dim in (DIMS[:2] if quick else DIMS)
        for bound in BOUNDS
    ]  # fmt: skip


def measure(world: World, line: Line, seed: int) -> Numbers:
    """Shares of the seed's runs that each set lost, and the sets' sizes at the end."""
    played, (final, level, shared) = play_newton(world, line.settings["ridge"]), _mixture(world)
    numbers: dict[str, float | None] = {
        **shared,
        "lost": float(played.lost_ellipsoid.mean()),
        "lost_plug_in": float(played.lost_plug_in.mean()),
        "over_mixture": float((played.plug_in - level).mean()),
        "width": _half_range_of_ellipsoid(world, played),
    }
    if line.settings["ridge"] == USUAL:
        numbers |= {"radius": played.radius, "radius_mixture": _farthest(world, played, final)}
    return numbers


@lru_cache(maxsize=1)
def _mixture(world: World) -> tuple[LikelihoodSet, Array, dict[str, float]]:
    """The mixture's set of some runs, its level in all, and what it lost and measures.

    By `first` the same labels are bought at every λ, and by the margin there is one λ.
    """
    bought, bound, delta = play_newton(world, USUAL).bought, world.bound, world.delta
    some = LabelLoss(bought.pairs[:MEASURED], bought.offset[:MEASURED])
    final = LikelihoodSet.of(some, bound, delta)
    lost = lost_by_mixture(bought, world.truth, bound, delta)
    shared = {"lost_mixture": lost, "width_mixture": _half_range(world, final)}
    return final, mixture_loss(bought, _spread(bought, bound)), shared


def lost_by_mixture(bought: LabelLoss, truth: Array, bound: float, delta: float) -> float:
    """The share of runs of which θ*, (N, d), was outside the mixture's set at any of `COUNTS`."""
    lost = np.zeros(len(truth), dtype=bool)
    for count in COUNTS:
        part = LabelLoss(bought.pairs[:, :count], bought.offset[:, :count])
        level = mixture_loss(part, _spread(part, bound)) + math.log(1.0 / delta)
        lost |= part.value(truth) > level
    return float(lost.mean())


def _spread(labels: LabelLoss, bound: float) -> float:
    return bound / math.sqrt(labels.pairs.shape[-1])


def _pair(world: World) -> Array:
    """A difference of two rows that no label was bought of, (MEASURED, d)."""
    rows: Array = world.fresh[:MEASURED, 0] - world.fresh[:MEASURED, 1]
    return rows


def _half_range(world: World, final: LikelihoodSet) -> float:
    """Half of what a pair's score difference may be within the set, a mean over runs."""
    pair = _pair(world)
    return float(0.5 * (final.highest(pair)[0] + final.highest(-pair)[0]).mean())


def _half_range_of_ellipsoid(world: World, played: Played) -> float:
    pair = _pair(world)
    images = np.linalg.solve(played.matrix[:MEASURED], pair[..., None])[..., 0]
    return float(played.radius * np.sqrt(np.einsum("nd,nd->n", pair, images)).mean())


def _farthest(world: World, played: Played, final: LikelihoodSet) -> float:
    """The largest ‖θ' − θ‖ in H over the θ' of the mixture's set, from below, a mean over runs.

    It is a maximum of a convex function: each step goes to where its gradient is largest.
    """
    theta, matrix = played.theta[:MEASURED], played.matrix[:MEASURED]
    best = np.zeros(len(theta))
    for side in (1.0, -1.0):
        direction = side * _pair(world)
        for _ in range(1 + ASCENTS):
            offset = final.highest(direction)[1] - theta
            direction = np.einsum("nde,ne->nd", matrix, offset)
            best = np.maximum(best, np.sqrt(np.einsum("nd,nd->n", offset, direction)))
    return float(best.mean())


CANDIDATES, POOL = 5, 4
Design = Literal["first", "margin"]
"""Which items are bought: all that come, or of every four the one with the smallest margin."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What N runs may buy.

    Attributes:
        bound, delta: S and δ.
        truth: θ*, (N, d), uniform on the sphere of radius S.
        features: φ, (N, B, P, K, d): P items to choose each of B labels from.
        labels: of each, (N, B, P), drawn from the softmax of the true scores.
        fresh: rows of which no label can be bought, (N, 2, d).
    """

    bound: float
    delta: float
    truth: Array
    features: Array
    labels: NDArray[np.int64]
    fresh: Array


def make_world(
    seed: int, *, runs: int, labels: int, dim: int, bound: float, delta: float, design: Design
) -> World:
    """Runs under `seed`: φ uniform on the unit sphere of R^dim, fresh for each item."""
    pool = POOL if design == "margin" else 1
    rng = generator(seed, f"certificates/{design}/{bound:g}", runs, labels, dim)
    truth = bound * sphere(rng, runs, dim)
    features = sphere(rng, runs, labels, pool, CANDIDATES, dim)
    values = np.einsum("nbpkd,nd->nbpk", features, truth)
    drawn = (values + rng.gumbel(size=values.shape)).argmax(axis=-1)
    return World(bound, delta, truth, features, drawn, sphere(rng, runs, 2, dim))


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


@lru_cache(maxsize=4)
def play_newton(world: World, ridge: float) -> Played:
    """Every run of `world` with the scorer `newton`; it knows S and buys by the smallest margin."""
    runs, count, _, _, dim = world.features.shape
    bound, delta = float(np.linalg.norm(world.truth[0])), world.delta
    theta, matrix = np.zeros((runs, dim)), np.tile(ridge * np.eye(dim), (runs, 1, 1))
    plug_in, true = np.zeros(runs), np.zeros(runs)
    lost = np.zeros((2, runs), dtype=bool)
    bought = []
    for number in range(count + 1):
        reach = radius(1.0, dim, number, ridge, delta, bound)
        offset = theta - world.truth
        lost[0] |= np.einsum("ni,nij,nj->n", offset, matrix, offset) > reach * reach
        lost[1] |= true > plug_in + math.log(1.0 / delta)
        if number == count:
            break
        pairs = _bought(world, number, theta)
        bought.append(pairs)
        label = LabelLoss(pairs, np.zeros(pairs.shape[:-1]))
        plug_in += label.value(theta)
        true += label.value(world.truth)
        gradient, information = label.derivatives(theta)
        theta = theta - np.linalg.solve(matrix + information, gradient[..., None])[..., 0]
        matrix = matrix + label.derivatives(theta)[1]
    every = np.concatenate(bought, axis=1)
    losses = LabelLoss(every, np.zeros(every.shape[:-1]))
    return Played(losses, theta, matrix, reach, plug_in, lost[0], lost[1])


def _bought(world: World, number: int, theta: Array) -> Array:
    """φ_x − φ_gold of the item that each run buys, (N, 1, K, d)."""
    runs = np.arange(len(theta))
    offered = world.features[:, number]
    scores = np.sort(np.einsum("npkd,nd->npk", offered, theta), axis=-1)
    place = (scores[..., -1] - scores[..., -2]).argmin(axis=-1)
    rows = offered[runs, place]
    gold = rows[runs, world.labels[runs, number, place]]
    differences: Array = (rows - gold[:, None])[:, None]
    return differences


CERTIFICATES = StreamStudy(
    name="certificates",
    title="Confidence sets for labels",
    claim="The ellipsoid of `newton` holds θ* with probability 1 − δ, whatever λ, S and d are",
    cost="60 lines of 100 runs of 200 labels per seed, about 40 s of one core",
    metrics=(
        "lost",
        "lost_plug_in",
        "lost_mixture",
        "over_mixture",
        "width",
        "width_mixture",
        "radius",
        "radius_mixture",
    ),
    seeds=10,
    trials=trials,
    measure=measure,
    stream=make_world,
    table=layout,
    figures=figures,
)
