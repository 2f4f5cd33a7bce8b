"""`rates`: its instances, that a prefix of a stream is a shorter stream, and its slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from stacksl_lab.streams.rates import (
    FULL,
    NORMS,
    RATES,
    derive,
    measure,
    theorem_a,
    trials,
)
from stacksl_lab.streams.trial import Samples
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Store
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.lower_bounds import (
    LOWER_ANY,
    LOWER_BLIND,
    NOISE,
    blind_regret,
    cube,
    pairs,
    printed_bound,
    proved_bound,
)
from stacksl_lab.synthetic.playing import play, regrets


def test_the_lower_bound_instance() -> None:
    source = pairs(400, 80, 20, 3)
    assert np.abs(source.truth) == pytest.approx(np.full(20, NOISE * math.sqrt(20 / 80)))
    assert len(set(np.sign(source.truth))) == 2
    assert (np.abs(source.features).sum(axis=2) == 1).all()
    assert (source.features[:, 0] == -source.features[:, 1]).all()
    assert source.values == pytest.approx(source.features @ source.truth)
    assert len(np.unique(np.abs(source.features[:, 0]).argmax(axis=1))) == 20


def test_the_cube_shows_every_corner() -> None:
    source = cube(6, 0.2, 3, 1)
    assert len(np.unique(source.features[4], axis=0)) == 8
    assert np.linalg.norm(source.features[5], axis=1) == pytest.approx(np.ones(8))
    assert source.values == pytest.approx(source.features @ source.truth)
    assert source.values.max() == pytest.approx(math.sqrt(3) * 0.2)


def test_the_constants_of_the_lower_bounds() -> None:
    assert pytest.approx(2 * NormalDist().cdf(-1.0)) == LOWER_BLIND
    error = LOWER_ANY / 2
    assert (1 - 2 * error) * math.log((1 - error) / error) == pytest.approx(2.0, abs=1e-3)
    wanted = math.sqrt(20 * 100 * math.log(1 + 50)) + 2 * 10
    assert printed_bound(100, 1000, 20, 2.0) == pytest.approx(wanted)


def test_the_proved_bounds_by_hand() -> None:
    volume = math.log(1 + 100 / 20)
    beta = 0.3 * math.sqrt(20 * volume + 2 * math.log(20)) + 0.3 * 20 / 10
    assert theorem_a(100, 20_000) == pytest.approx(
        beta * math.sqrt(8 * 20 * volume / 100) * (20_000 + 25)
    )
    volume = math.log(1 + 1000 / 5)
    beta = 0.3 * math.sqrt(5 * volume + 2 * math.log(20)) + 4.0
    assert proved_bound(1000, 1000, 5, 4.0) == pytest.approx(
        2 * beta * math.sqrt(2 * 5 * 1000 * volume)
    )


@pytest.mark.parametrize("gate", ["first", "random"])
def test_the_expected_regret_of_blind_gates_is_what_they_have(gate: str) -> None:
    """400 streams: 3 standard errors are some 6 and 4%, and the two gates differ by 60%."""
    budget, rounds = 80, 800
    totals = []
    for seed in range(400):
        source = pairs(rounds, budget, 20, seed)
        played = play(source, {"name": gate}, budget, seed=seed)
        totals.append(regrets(source, played).sum())
    error = np.std(totals, ddof=1) / math.sqrt(len(totals))
    assert abs(np.mean(totals) - blind_regret(budget, rounds, 20, gate)) < 3 * error
    assert np.mean(totals) > LOWER_BLIND * NOISE * rounds * math.sqrt(20 / budget)


def test_the_expected_regret_by_hand() -> None:
    """One coordinate, one label: the first round is a fair guess, the others err with Φ(−1)."""
    gap = 2 * NOISE
    assert blind_regret(1, 5, 1, "first") == pytest.approx(gap * (0.5 + 4 * LOWER_BLIND / 2))


def test_the_first_rounds_of_a_stream_are_a_shorter_one() -> None:
    lines = [Line(f"{a}{t}", {"action": a, "T": t}) for a in ("ucb", "greedy") for t in (20, 60)]
    whole = cube(60, 0.1, 3, 4)
    found = [measure(whole, line, 4) for line in lines]
    for action, numbers in (("ucb", found[0]), ("greedy", found[2])):
        rewards = whole.rewards
        short = replace(
            whole, features=whole.features[:20], values=whole.values[:20], rewards=rewards[:20]
        )
        played = play(short, {"name": "always"}, 20, settings={"action": action})
        assert numbers["regret"] == pytest.approx(regrets(short, played).sum())
    assert (found[1]["regret"] or 0.0) >= (found[0]["regret"] or 0.0)


def made_up(law: Callable[[float, float, float], float]) -> Samples:
    """Two seeds a line whose mean is `law`(B, T, size), B = T where every label is bought."""
    found = {}
    for trial in trials(False):
        for line in trial.lines:
            rounds = line.settings.get("T", trial.source["rounds"])
            budget = trial.source.get("labels", rounds)
            mean = law(budget, rounds, trial.source.get("size", 1.0))
            found[line.row] = {"regret": [0.8 * mean, 1.2 * mean]}
    return found


def test_slopes_of_made_up_samples() -> None:
    rows = derive(made_up(lambda b, t, size: t * b**-0.5))
    slopes = {row.row: row for row in rows if row.metric == "slope"}
    for row in slopes.values():
        if row.row.startswith(("pairs", "corners: first, slope in B")):
            assert row.value == pytest.approx(row.settings["rate"])
        elif row.row.startswith("corners"):
            assert row.value == pytest.approx(0.0, abs=1e-9), "this law knows no d"
        else:
            assert row.value == pytest.approx(row.paper) == 0.5
    assert slopes["pairs: first, slope in B"].paper == pytest.approx(0.5), "√(dB) + c√B"
    printed = [printed_bound(200, t, 20) for t in FULL.horizons]
    wanted = np.polyfit(np.log(FULL.horizons), np.log(printed), 1)[0]
    assert slopes["pairs: first, slope in T"].paper == pytest.approx(wanted)
    proved = [theorem_a(b, FULL.horizon) for b in FULL.budgets]
    wanted = np.polyfit(np.log(FULL.budgets), np.log(proved), 1)[0]
    assert slopes["pairs: first, slope in B"].settings["proved"] == pytest.approx(wanted)


@pytest.mark.parametrize("name", list(NORMS)[:1])
def test_the_worst_norm_is_taken_at_each_horizon(name: str) -> None:
    """min(size·T, 1/size) is largest at size = 1/√T, where it is √T: each T has another worst."""
    allowed = {norm: norm / math.sqrt(5) for norm in FULL.norms if norm <= NORMS[name]}
    rows = derive(made_up(lambda b, t, size: min(size * t, 1 / size)))
    worst = {row.row: row for row in rows if row.metric == "worst_regret"}
    for rounds in FULL.clocks:
        row = worst[f"cube: UCB, {name}, T = {rounds:,}"]
        found = {norm: min(size * rounds, 1 / size) for norm, size in allowed.items()}
        assert row.value == pytest.approx(max(found.values()))
        assert found[row.settings["norm"]] == max(found.values())
    slope = next(row for row in rows if row.row == f"cube: UCB, {name}, slope in T")
    means = [worst[f"cube: UCB, {name}, T = {t:,}"].value or 0.0 for t in FULL.clocks]
    wanted = np.polyfit(np.log(FULL.clocks), np.log(means), 1)[0]
    assert slope.value == pytest.approx(wanted)


def test_it_runs() -> None:
    bench = Bench(Store(), quick=True)
    rows: list[Row] = RATES.reproduce(bench, range(2))
    named = {row.row: row for row in rows}
    spent = named["pairs: first, B = 100, T = 1,000"]
    assert spent.asked_fraction == spent.budget_fraction == 0.1
    llf = named["pairs: LLF, B = 100, T = 1,000"]
    assert llf.value == spent.value, "the paper's gate buys the first B labels here too"
