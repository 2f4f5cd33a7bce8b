"""`certificates`: many runs at once against the scorer, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures
from stacksl.core.losses import cross_entropy
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.types import Label
from stacksl_lab.streams.certificates.study import (
    CANDIDATES,
    CERTIFICATES,
    Design,
    make_world,
    measure,
    play_newton,
)
from stacksl_lab.streams.trial import play_trial
from stacksl_lab.study.store import Numbers

EVERYONE = tuple(range(CANDIDATES))


@pytest.mark.parametrize(
    ("design", "dim", "bound", "ridge"), [("first", 1, 20.0, 1.0), ("margin", 4, 9.0, 0.1)]
)
def test_runs_at_once_are_runs_of_the_scorer(
    design: Design, dim: int, bound: float, ridge: float
) -> None:
    world = make_world(3, runs=4, labels=25, dim=dim, bound=bound, delta=0.05, design=design)
    newton = play_newton(world, ridge)
    settings = ScorerSettings(ridge=ridge, delta=0.05, norm_bound=bound)
    for run, truth in enumerate(world.truth):
        assert np.linalg.norm(truth) == pytest.approx(bound)
        scorer = make_scorer("newton", dim=dim, classes=None, settings=settings)
        own = true = 0.0
        outside, beyond = False, False
        for number in range(26):
            state = scorer.state()
            offset = state["theta"] - truth
            error = math.sqrt(float(offset @ np.linalg.solve(state["gram_inv"], offset)))
            outside |= error > scorer.bounds(PairFeatures(np.eye(dim)[:1]), (0,)).radius
            beyond |= true > own + math.log(20.0)
            if number == 25:
                break
            offered = world.features[run, number]
            tops = np.sort(offered @ state["theta"], axis=1)
            place = int((tops[:, -1] - tops[:, -2]).argmin())
            inputs, gold = PairFeatures(offered[place]), int(world.labels[run, number, place])
            own += cross_entropy(inputs.phi @ state["theta"], gold)[0]
            true += cross_entropy(inputs.phi @ truth, gold)[0]
            scorer.step(inputs, EVERYONE, 0, Label(gold))
        assert newton.theta[run] == pytest.approx(scorer.state()["theta"], abs=1e-8)
        inverse = np.linalg.inv(newton.matrix[run])
        assert inverse == pytest.approx(scorer.state()["gram_inv"], abs=1e-8)
        assert newton.plug_in[run] == pytest.approx(own)
        assert newton.bought.value(world.truth)[run] == pytest.approx(true)
        assert (newton.lost_ellipsoid[run], newton.lost_plug_in[run]) == (outside, beyond)


def test_a_seed_has_numbers_for_every_line() -> None:
    trials = CERTIFICATES.trials(True)
    assert len([line for trial in CERTIFICATES.trials(False) for line in trial.lines]) == 60
    assert {trial.source["runs"] for trial in CERTIFICATES.trials(False)} == {100}
    found = {}
    for trial in trials:
        known = trial.source["dim"] == 1 and trial.source["bound"] == 2.0
        made_up: list[Numbers] = [{"lost": 0.25}] * 4
        how = (make_world, measure, trial.source, trial.lines, 0)
        numbers = play_trial(*how) if known else made_up
        for line, each in zip(trial.lines, numbers, strict=False):
            found[line.row] = [each, each]
    assert len(CERTIFICATES.rows_from(found, quick=True)) > len(found)
    first = found["first, d = 1, S = 2, λ = 0.1"][0]
    assert set(first) | {"radius", "radius_mixture"} == set(CERTIFICATES.metrics)
