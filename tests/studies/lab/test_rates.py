"""`rates`: its instances, that a prefix of a stream is a shorter stream, and its slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from stacksl.studies.lab.bench import measured, reproduce
from stacksl.studies.lab.claims.rates import FULL, QUICK, RATES, derive, measure, trials
from stacksl.studies.lab.store import NumberStore
from stacksl.studies.lab.trial import Line, Samples
from stacksl.studies.lab.worlds.lower_bounds import (
    LOWER_ANY,
    LOWER_BLIND,
    NOISE,
    cube,
    pairs,
    printed_bound,
)
from stacksl.studies.lab.worlds.playing import play, regrets
from stacksl.studies.rows import KEYS, Row


def test_the_lower_bound_instance() -> None:
    world = pairs(400, 80, 20, 3)
    assert np.abs(world.truth) == pytest.approx(np.full(20, NOISE * math.sqrt(20 / 80)))
    assert len(set(np.sign(world.truth))) == 2
    assert (np.abs(world.features).sum(axis=2) == 1).all()
    assert (world.features[:, 0] == -world.features[:, 1]).all()
    assert world.values == pytest.approx(world.features @ world.truth)
    assert len(np.unique(np.abs(world.features[:, 0]).argmax(axis=1))) == 20


def test_the_cube_shows_every_corner() -> None:
    world = cube(6, 0.2, 3, 1)
    assert len(np.unique(world.features[4], axis=0)) == 8
    assert np.linalg.norm(world.features[5], axis=1) == pytest.approx(np.ones(8))
    assert world.values == pytest.approx(world.features @ world.truth)
    assert world.values.max() == pytest.approx(math.sqrt(3) * 0.2)


def test_the_constants_of_the_lower_bounds() -> None:
    assert pytest.approx(2 * NormalDist().cdf(-1.0)) == LOWER_BLIND
    error = LOWER_ANY / 2
    assert (1 - 2 * error) * math.log((1 - error) / error) == pytest.approx(2.0, abs=1e-3)
    wanted = math.sqrt(20 * 100 * math.log(1 + 50)) + 2 * 10
    assert printed_bound(100, 1000, 20, 2.0) == pytest.approx(wanted)


def test_regret_stays_above_the_bound_for_labels_chosen_blindly() -> None:
    """300 streams: the mean is above by 27 %, which is 9 of its standard errors."""
    budget, rounds = 80, 400
    totals = []
    for seed in range(300):
        world = pairs(rounds, budget, 20, seed)
        totals.append(regrets(world, play(world, {"name": "first"}, budget)).sum())
    assert np.mean(totals) > LOWER_BLIND * NOISE * rounds * math.sqrt(20 / budget)


def test_the_first_rounds_of_a_stream_are_a_shorter_one() -> None:
    world = {"kind": "cube", "rounds": 60, "size": 0.1, "dim": 3}
    lines = [Line(f"{a}{t}", {"action": a, "T": t}) for a in ("ucb", "greedy") for t in (20, 60)]
    found = measure(world, lines, 4)
    whole = cube(60, 0.1, 3, 4)
    for action, numbers in (("ucb", found[0]), ("greedy", found[2])):
        rewards = whole.rewards
        assert rewards is not None
        short = replace(
            whole,
            features=whole.features[:20],
            values=whole.values[:20],
            rewards=rewards[:20],
        )
        played = play(short, {"name": "always"}, 20, settings={"action": action})
        assert numbers["regret"] == pytest.approx(regrets(short, played).sum())
    assert (found[1]["regret"] or 0.0) >= (found[0]["regret"] or 0.0)


def made_up(law: Callable[[float, float, float], float]) -> Samples:
    """Two seeds a line whose mean is `law`(B, T, size), B = T where every label is bought."""
    found = {}
    for trial in trials(False):
        for line in trial.lines:
            rounds = line.settings.get("T", trial.world["rounds"])
            budget = trial.world.get("labels", rounds)
            mean = law(budget, rounds, trial.world.get("size", 1.0))
            found[line.row] = {"regret": [0.8 * mean, 1.2 * mean]}
    return found


def test_slopes_of_made_up_samples() -> None:
    rows = derive(made_up(lambda b, t, size: t * b**-0.5))
    slopes = {row.row: row for row in rows if row.metric == "slope"}
    for row in slopes.values():
        if row.row.startswith("pairs"):
            assert row.value == pytest.approx(row.settings["corrected"])
        else:
            assert row.value == pytest.approx(row.paper) == 0.5
    assert slopes["pairs: first, slope in B"].paper == pytest.approx(0.5), "√(dB) + c√B"
    printed = [printed_bound(200, t, 20) for t in FULL.horizons]
    wanted = np.polyfit(np.log(FULL.horizons), np.log(printed), 1)[0]
    assert slopes["pairs: first, slope in T"].paper == pytest.approx(wanted)


def test_the_worst_size_is_taken_at_each_horizon() -> None:
    """min(size·T, 1/size) is largest at size = 1/√T, where it is √T: each T has another worst."""
    sizes = [FULL.size(multiple) for multiple in FULL.sizes]
    rows = derive(made_up(lambda b, t, size: min(size * t, 1 / size)))
    worst = {row.row: row for row in rows if row.metric == "worst_regret"}
    for rounds in FULL.clocks:
        wanted = max(min(size * rounds, 1 / size) for size in sizes)
        row = worst[f"cube: UCB, worst size, T = {rounds:,}"]
        assert row.value == pytest.approx(wanted)
    slope = next(row for row in rows if row.row == "cube: UCB, worst size, slope in T")
    means = [worst[f"cube: UCB, worst size, T = {t:,}"].value or 0.0 for t in FULL.clocks]
    wanted = np.polyfit(np.log(FULL.clocks), np.log(means), 1)[0]
    assert slope.value == pytest.approx(wanted)


def test_it_runs() -> None:
    rows: list[Row] = reproduce(
        RATES, measured(RATES, range(2), NumberStore(), quick=True), quick=True
    )
    assert all(tuple(row.to_json()) == KEYS for row in rows)
    named = {row.row: row for row in rows}
    spent = named["pairs: first, B = 100, T = 1,000"]
    assert spent.asked_fraction == spent.budget_fraction == 0.1
    llf = named["pairs: LLF, B = 100, T = 1,000"]
    assert llf.value == spent.value, "the paper's gate buys the first B labels here too"
    assert RATES.layout is not None
    assert RATES.figures is not None
    table = RATES.layout(rows)
    points = {(b, QUICK.horizon) for b in QUICK.budgets} | {
        (QUICK.budget, t) for t in QUICK.horizons
    }
    shown = [line for line in table.splitlines() if line.startswith(("| 50 |", "| 100 |"))]
    assert len(shown) == len(points)
    assert set(RATES.figures(rows)) == {"rates"}
