"""`learners`: what each learner makes of the same labels, the first B of a stationary stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stacksl.game.inputs import Array
from stacksl.studies.lab.claims.learners_exact import exact_estimates
from stacksl.studies.lab.drawing.learners import METRICS, REFERENCE, figures, layout
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Samples, Trial
from stacksl.studies.lab.worlds.playing import final_regret, play, regrets
from stacksl.studies.lab.worlds.streams import World, make_world
from stacksl.studies.rows import Row, pooled

__all__ = ["LEARNERS", "RATES", "TUNED", "pilot"]

ROUNDS, QUICK_ROUNDS, DIM = 20_000, 1000, 20
BUDGETS = (0.02, 0.1, 1.0)
RATES = (0.003, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3)
"""The learning rates that pilot seeds choose from."""

TUNED: Mapping[float, float] = {0.02: 0.1, 0.1: 0.03, 1.0: 0.01}
"""The learning rate of `sgd` by budget with the least mean regret on the way over `PILOT_SEEDS`."""

PILOT_SEEDS = (1000, 1001, 1002, 1003)

_PLAIN: Mapping[str, Any] = {"kl_weight": 0.0, "clip": "none"}
"""Gradient steps on the log-loss alone."""

_PAPER: Mapping[str, Any] = {"kl_weight": 0.5, "clip": "literal", "clip_level": 5.0}
"""The preset `paper`: Algorithm 2's KL term to the frozen start, and the clip of the text."""


def _lines(budget: float) -> tuple[Line, ...]:
    """Every learner from labels at a budget, as a share of the rounds."""
    sgd = {"learner": "sgd", **_PLAIN}
    found = (
        ("sgd, rate tuned", {**sgd, "learning_rate": TUNED[budget]}),
        ("sgd, rate 0.1", {**sgd, "learning_rate": 0.1}),
        ("sgd with the paper's KL and clip", {"learner": "sgd", "learning_rate": 0.1, **_PAPER}),
        ("ridge on one-hot targets", {"learner": "ridge"}),
        ("newton", {"learner": "newton"}),
        ("exact maximum likelihood", {"learner": "exact"}),
    )
    return tuple(Line(f"{name} · {budget:g}", settings, budget) for name, settings in found)


def trials(quick: bool) -> Sequence[Trial]:
    """One stream of softmax labels, and one of rewards, from which `ridge` alone learns."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    base = {"kind": "iid", "rounds": rounds, "dim": DIM}
    labelled = tuple(line for budget in BUDGETS for line in _lines(budget))
    rewarded = tuple(
        Line(f"ridge on rewards · {budget:g}", {"learner": "ridge", "action": "asked"}, budget)
        for budget in BUDGETS
    )
    return [
        Trial({**base, "feedback": "softmax"}, labelled),
        Trial({**base, "feedback": "scalar"}, rewarded),
    ]


def measure(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """Regret on the way and of the last estimate, for each line."""
    stream = make_world(**world, seed=seed)
    return [_numbers(stream, line, seed) for line in lines]


def _numbers(stream: World, line: Line, seed: int) -> Numbers:
    settings = dict(line.settings)
    learner = settings.pop("learner")
    budget = int((line.budget_fraction or 0.0) * stream.horizon + 1e-9)
    if learner == "exact":
        lost, theta = _exact(stream, budget)
    else:
        gate = {"name": "first"}
        played = play(stream, gate, budget, scorer=learner, settings=settings, seed=seed)
        lost, theta = float(regrets(stream, played).mean()), played.theta
    return {
        "regret_per_round": lost,
        "final_regret": final_regret(stream, theta),
        "asked_fraction": budget / stream.horizon,
    }


def _exact(stream: World, budget: int) -> tuple[float, Array]:
    """Mean regret a round of the latest exact estimate, and the last one."""
    grid, thetas = exact_estimates(stream.features[:budget], stream.labels[:budget])
    lost = 0.0
    bounds = [0, *grid, stream.horizon]
    estimates = [np.zeros(stream.features.shape[2]), *thetas]
    for theta, start, stop in zip(estimates, bounds[:-1], bounds[1:], strict=True):
        values = stream.values[start:stop]
        choices = (stream.features[start:stop] @ theta).argmax(axis=1)
        lost += float((values.max(axis=1) - values[np.arange(len(values)), choices]).sum())
    return lost / stream.horizon, thetas[-1]


def derive(samples: Samples) -> list[Row]:
    """Each learner over `newton` at the same labels: the mean ratio of the two, seed by seed."""
    found = []
    for row, numbers in samples.items():
        name, _, budget = row.rpartition(" · ")
        reference = samples.get(f"{REFERENCE} · {budget}")
        if reference is None or name in (REFERENCE, "ridge on rewards"):
            continue
        for metric in METRICS:
            over = np.array(numbers[metric]) / np.array(reference[metric])
            value, error = pooled(over.tolist())
            found.append(
                Row(
                    "learners",
                    row,
                    f"{metric}_over_{REFERENCE}",
                    value,
                    se=error,
                    seeds=len(over),
                    budget_fraction=float(budget),
                    settings={"marks": []},
                )
            )
    return found


def pilot(
    seeds: Sequence[int] = PILOT_SEEDS, rounds: int = ROUNDS
) -> dict[tuple[float, float], float]:
    """Mean regret on the way of `sgd`, by (budget, learning rate), over pilot seeds.

    >>> sorted(pilot([1000], rounds=20))[0]
    (0.02, 0.003)
    """
    total = {(budget, rate): 0.0 for budget in BUDGETS for rate in RATES}
    for seed in seeds:
        stream = make_world("iid", "softmax", seed, rounds=rounds, dim=DIM)
        for budget, rate in total:
            settings = {"learner": "sgd", **_PLAIN, "learning_rate": rate}
            lost = _numbers(stream, Line("pilot", settings, budget), seed)["regret_per_round"]
            total[budget, rate] += (math.nan if lost is None else lost) / len(seeds)
    return total


LEARNERS = LabStudy(
    name="learners",
    title="Learners at equal labels: the first B of 20,000 rounds",
    claim="the gradient learner's regret is that of the estimate the theorems are about",
    cost="21 lines of 20,000 rounds a seed, some 2 s of one core",
    metrics=("regret_per_round", "final_regret"),
    seeds=12,
    trials=trials,
    play=measure,
    derive=derive,
    layout=layout,
    figures=figures,
)

if __name__ == "__main__":
    for (budget, rate), lost in pilot().items():
        print(f"budget {budget:g}, rate {rate:g}: {lost:.5f}")
