"""`learners`: the exact fit against its own definition, ratios by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stacksl_lab.streams.learners import (
    LEARNERS,
    LOSSES,
    _loss_over,
    _replayed,
    counts,
    derive,
    descent,
    exact_estimates,
    fit,
    measure,
)
from stacksl_lab.synthetic.playing import play, regrets
from stacksl_lab.synthetic.streams import make_stream

from .small_cases import rows_by_line, shrunk


def _stream() -> tuple[np.ndarray, np.ndarray]:
    source = make_stream("iid", "softmax", 5, rounds=60, dim=4)
    return source.features, source.labels


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


def test_ratios_are_those_of_means() -> None:
    numbers = {"regret_per_round": [2.0, 6.0], "final_regret": [1.0, 1.0]}
    base = {"regret_per_round": [1.0, 2.0], "final_regret": [2.0, 4.0]}
    found = derive({"sgd, rate 0.1 · 0.1": numbers, "newton · 0.1": base})
    values = {row.metric: row.value for row in found}
    assert values == {
        "regret_per_round_over_newton": pytest.approx(8 / 3),
        "final_regret_over_newton": pytest.approx(1 / 3),
    }
    assert all(row.se is not None and row.se > 0.0 for row in found)


def test_a_decaying_rate_falls_with_the_root() -> None:
    """From 0 the first step is the rate times (φ_label − mean φ); the fourth has half the rate."""
    features, labels = _stream()
    rows, gold = features[:1], labels[:1]
    first = 0.8 * (rows[0, gold[0]] - rows[0].mean(axis=0))
    assert descent(rows, gold, 0.8, 0.5) == pytest.approx(np.array([np.zeros(4), first]))
    steps = np.diff(descent(features, labels, 0.8, 0.5), axis=0)
    before = descent(features, labels, 0.8, 0.5)[3]
    weights = np.exp(features[3] @ before)
    slope = features[3, labels[3]] - weights @ features[3] / weights.sum()
    assert steps[3] == pytest.approx(0.4 * slope)


def test_steps_in_full_are_those_of_the_engine() -> None:
    """The replay of a constant rate has the regret of the stream that was played."""
    source = make_stream("iid", "softmax", 5, rounds=200, dim=4)
    settings = {"learning_rate": 0.3, "kl_weight": 0.0, "clip": "none"}
    played = play(source, {"name": "first"}, 50, scorer="sgd", settings=settings)
    thetas = descent(source.features[:50], source.labels[:50], 0.3, 0.0)
    lost, theta = _replayed(source, np.arange(51), thetas)
    assert lost == pytest.approx(float(regrets(source, played).mean()))
    assert theta == pytest.approx(played.theta)


def test_a_small_study_gives_rows() -> None:
    study = shrunk(LEARNERS, rounds=100, dim=6)
    rows = study.rows_from(rows_by_line(study, measure))
    assert len({row.row for row in rows if not row.row.endswith("/ newton")}) == 34
    assert all(row.study == "learners" and row.value is not None for row in rows)


def test_loss_sets_by_hand() -> None:
    scores = np.array([0.0, 3.0, 1.0, 2.0, -1.0])
    inside = {loss: _loss_over(loss, (1, 2, 3), 2, scores) for loss in LOSSES}
    assert {inside[loss] for loss in ("all", "given")} == {(0, 1, 2, 3, 4)}
    assert {inside[loss] for loss in set(LOSSES) - {"all", "given"}} == {(1, 2, 3)}
    assert {loss: _loss_over(loss, (1, 2, 3), 4, scores) for loss in LOSSES} == {
        "displaced": (1, 3, 4),
        "joined": (1, 2, 3, 4),
        "dropped": (),
        "mixed": (0, 1, 2, 3, 4),
        "part": (0, 4),
        "all": (0, 1, 2, 3, 4),
        "given": (0, 1, 2, 3, 4),
    }
