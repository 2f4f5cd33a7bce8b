"""`regret`: its rows, the step in c and the ratios."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl_lab.statistics.intervals import bootstrapped, ratio, slope_over
from stacksl_lab.streams.regret import PAPER, REGRET, derive, lines
from stacksl_lab.streams.trial import Samples
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.store import Store


def test_rows_stand_beside_the_papers() -> None:
    found = REGRET.reproduce(Bench(Store(), quick=True), range(2))
    rows = {(row.row, row.metric): row for row in found}
    for name, _, budget, printed in PAPER:
        row = rows[name, "regret_per_round"]
        assert (row.paper, row.budget_fraction, row.seeds) == (printed, budget, 2)
        assert row.asked_fraction == pytest.approx(budget, abs=1e-9)
        assert rows[f"{name} / paper", "over_paper"].value == pytest.approx(
            (row.value or 0.0) / printed
        )


def test_ratios_of_made_up_samples() -> None:
    found: Samples = {line.row: {"regret_per_round": [1.0, 3.0]} for line in lines()}
    printed = {name: value for name, _, _, value in PAPER}
    for row in derive({**found, "LLF, β = 0.1": {"regret_per_round": [3.0, 9.0]}}):
        name = row.row.partition(" / ")[0]
        times = 3.0 if name == "LLF, β = 0.1" else 1.0
        if row.metric == "over_first":
            assert row.value == pytest.approx(times)
            assert row.se == pytest.approx(0.0, abs=1e-9)
        else:
            assert row.value == pytest.approx(times * 2.0 / printed[name])
            assert row.se == pytest.approx(times * 1.0 / printed[name])


def test_the_bootstrap_gives_a_means_own_error() -> None:
    """For one mean the standard error is s / √n; 2000 draws know it to 1 / √4000 = 1.6%."""
    values = np.random.default_rng(5).exponential(size=(1, 40))
    value, error = bootstrapped(lambda means: means[..., 0], values)
    assert value == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(40), rel=0.08)
    assert bootstrapped(ratio, [[2.0], [4.0]]) == (0.5, None)


def test_a_slope_is_numpys() -> None:
    places, means = [1.0, 3.0, 4.0, 9.0], np.array([2.0, 1.0, 5.0, 7.0])
    wanted = np.polyfit(np.log(places), np.log(means), 1)[0]
    assert slope_over(places)(means) == pytest.approx(wanted)
    assert slope_over(places)(np.stack([means, 3 * means])) == pytest.approx([wanted, wanted])
