"""`learners`: the exact fit against its own definition, ratios by hand, rows of the schema."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from stacksl.game import ScorerSettings, make_scorer
from stacksl.game.inputs import PairFeatures
from stacksl.items import Label
from stacksl.studies.lab.bench import reproduce
from stacksl.studies.lab.claims.learners import LEARNERS, RATES, TUNED, derive, measure
from stacksl.studies.lab.claims.learners_exact import counts, exact_estimates, fit
from stacksl.studies.lab.trial import Trial
from stacksl.studies.lab.worlds.streams import make_world


def _stream(rounds: int = 60) -> tuple[np.ndarray, np.ndarray]:
    world = make_world("iid", "softmax", 5, rounds=rounds, dim=4)
    return world.features, world.labels


def test_counts_grow_geometrically_and_end_at_all() -> None:
    found = counts(2000)
    assert found[:10] == list(range(1, 11))
    assert found[-1] == 2000
    assert all(b <= max(a + 1, 1.1 * a + 1) for a, b in itertools.pairwise(found))
    assert counts(1) == [1]


def test_the_exact_fit_has_no_gradient() -> None:
    """Its gradient is that of the definition, summed item by item."""
    features, labels = _stream()
    theta = fit(features, labels, 1.0, np.zeros(4))
    gradient = theta.copy()
    for rows, gold in zip(features, labels, strict=True):
        weights = np.exp(rows @ theta)
        gradient += (weights / weights.sum()) @ rows - rows[gold]
    assert np.abs(gradient).max() < 1e-4


def test_exact_estimates_are_fits_of_the_labels_so_far() -> None:
    features, labels = _stream()
    grid, thetas = exact_estimates(features, labels)
    assert len(grid) == len(thetas)
    assert grid[-1] == 60
    alone = fit(features[: grid[4]], labels[: grid[4]], 1.0, np.zeros(4))
    assert thetas[4] == pytest.approx(alone, abs=1e-5)


def test_newton_comes_close_to_the_exact_fit() -> None:
    """One pass against the minimum of the same objective: near, and not the same."""
    features, labels = _stream(400)
    scorer = make_scorer("newton", dim=4, classes=None, settings=ScorerSettings())
    for rows, gold in zip(features, labels, strict=True):
        scorer.step(PairFeatures(rows), tuple(range(5)), 0, Label(int(gold)))
    exact = fit(features, labels, 1.0, np.zeros(4))
    off = float(np.linalg.norm(scorer.state()["theta"] - exact))
    assert 0.0 < off < 0.25 * float(np.linalg.norm(exact))


def test_ratios_are_the_means_of_the_seeds_own() -> None:
    numbers = {"regret_per_round": [2.0, 6.0], "final_regret": [1.0, 1.0]}
    base = {"regret_per_round": [1.0, 2.0], "final_regret": [2.0, 4.0]}
    found = derive({"sgd, rate 0.1 · 0.1": numbers, "newton · 0.1": base})
    values = {row.metric: row.value for row in found}
    assert values == {
        "regret_per_round_over_newton": 2.5,
        "final_regret_over_newton": 0.375,
    }


def test_the_tuned_rates_are_among_those_tried() -> None:
    assert set(TUNED.values()) <= set(RATES)


def test_a_small_study_gives_rows_a_table_and_a_figure() -> None:
    small = [
        Trial({**one.world, "rounds": 100, "dim": 6}, one.lines) for one in LEARNERS.trials(True)
    ]
    study = replace(LEARNERS, trials=lambda quick: small)
    found = {
        line.row: [measure(one.world, [line], seed)[0] for seed in (0, 1)]
        for one in small
        for line in one.lines
    }
    rows = reproduce(study, found)
    assert len({row.row for row in rows}) == 21
    assert all(row.study == "learners" and row.value is not None for row in rows)
    assert study.layout is not None
    assert study.figures is not None
    assert "| exact maximum likelihood |" in study.layout(rows)
    assert set(study.figures(rows)) == {"learners"}
