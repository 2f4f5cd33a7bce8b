"""`certificates`: two confidence sets of softmax labels, over λ, S, d and what is bought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.likelihood import LabelLoss, LikelihoodSet, mixture_loss
from stacksl.lab.figures.certificates import USUAL, figures, layout
from stacksl.lab.streams.certificates.runs import Played, World, make_world, play_newton
from stacksl.lab.streams.trial import StreamStudy, Trial
from stacksl.lab.study.store import Numbers
from stacksl.lab.study.study import Line

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


def measure(source: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """Shares of the seed's runs that each set lost, and the sets' sizes at the end."""
    bound, delta = source["bound"], source["delta"]
    world = make_world(
        seed,
        runs=source["runs"],
        labels=source["labels"],
        dim=source["dim"],
        norm_bound=bound,
        design=source["design"],
    )
    played = [play_newton(world, line.settings["ridge"], delta) for line in lines]
    bought = played[0].bought  # by `first` the same at every λ, and by the margin there is one λ
    some = LabelLoss(bought.pairs[:MEASURED], bought.offset[:MEASURED])
    final = LikelihoodSet.of(some, bound, delta)
    shared = {
        "lost_mixture": lost_by_mixture(bought, world.truth, bound, delta),
        "width_mixture": _half_range(world, final),
    }
    level = mixture_loss(bought, _spread(bought, bound))
    found: list[Numbers] = []
    for line, each in zip(lines, played, strict=True):
        numbers: dict[str, float | None] = {
            **shared,
            "lost": float(each.lost_ellipsoid.mean()),
            "lost_plug_in": float(each.lost_plug_in.mean()),
            "over_mixture": float((each.plug_in - level).mean()),
            "width": _half_range_of_ellipsoid(world, each),
        }
        if line.settings["ridge"] == USUAL:
            numbers |= {"radius": each.radius, "radius_mixture": _farthest(world, each, final)}
        found.append(numbers)
    return found


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


CERTIFICATES = StreamStudy(
    name="certificates",
    title="Confidence sets for labels",
    claim="The ellipsoid of `newton` holds θ* with probability 1 − δ, whatever λ, S and d are",
    cost="60 lines of 100 runs of 200 labels a seed, some 40 s of one core",
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
    play=measure,
    table=layout,
    figures=figures,
)
