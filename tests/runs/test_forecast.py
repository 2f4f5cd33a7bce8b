"""The forecasts: pure functions on arrays, from made curves and labels."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

from stacksl.models.forecast import GROWTH, Normal, accuracy_at, carried_over, gain, share_of

from ..benchmarks import benchmark, record

SLOPE, plan = 0.4, benchmark("plan_scenarios")  # which fits the growth


def scenario(source: str, start: float, miss: float = 0.3) -> Any:
    """A run whose odds follow a power law, and whose `carried_over` is too low by `miss`."""
    levels = [(n, start + SLOPE * math.log(n / 100)) for n in (50, 100, 200, 400, 800)]
    points = tuple((n, share_of(a), share_of(a - miss)) for n, a in levels)
    return plan.Scenario(source, 20, points)


def test_a_power_law_is_found_and_continued() -> None:
    law = (scenario("a", 0.2), scenario("b", 1.0), scenario("c", 1.8))
    known = plan.fitted_growth(law)
    assert known is not None
    coefficients, sd = known.missed
    assert coefficients == pytest.approx((0.3, 0.0, 0.0), abs=0.01)
    assert 0 < sd < 1.0  # what the prior leaves of its 1.0
    assert known.first.mean == pytest.approx(1.0)
    assert known.first.sd > 0.8, "the levels of the three differ by as much"
    told = accuracy_at(known, Normal(0.5, 0.0), 100, 400, 20)
    assert told.value == pytest.approx(share_of(0.5 + SLOPE * math.log(4)), abs=0.01)
    added = gain(known, Normal(0.5, 0.0), 100, 100, 20)
    assert added.value == pytest.approx(
        share_of(0.5 + SLOPE * math.log(2)) - share_of(0.5), abs=0.01
    )
    flat = replace(known, slope=((0.0, 0.0, 0.0), known.slope[1]))
    assert gain(flat, Normal(0.5, 0.0), 100, 100, 20).value > 0.001, "growth may be more than none"


def test_a_level_near_its_ceiling_gains_less_in_odds_too() -> None:
    known = GROWTH

    def odds(level: float) -> float:
        at = accuracy_at(known, Normal(level, 0.0), 100, 400, 20).value
        return math.log(at / (1 - at)) - level

    assert odds(0.0) > odds(2.0) + 0.05


def test_labels_that_are_harder_than_the_pool_are_carried_over() -> None:
    rng = np.random.default_rng(0)
    pool = rng.beta(5, 1, 4000)
    hard = np.sort(pool)[:400]  # the least sure are bought
    right = (rng.random(400) < hard).astype(float)
    assert right.mean() < 0.6
    assert carried_over(hard, right, pool) == pytest.approx(pool.mean(), abs=0.08)
    sure = np.full(400, 0.9)  # a model that is surer than right is corrected
    assert carried_over(sure, np.tile([0.0, 1.0], 200), sure) == pytest.approx(0.5, abs=0.05)


def test_the_gain_falls_with_labels_and_is_never_more_than_is_left() -> None:
    gains = [gain(GROWTH, Normal(2.0, 0.3), n, 100, 20) for n in (100, 400, 1600)]
    values = [found.value for found in gains]
    assert values == sorted(values, reverse=True)
    for found in gains:
        assert 0 <= found.low <= found.value <= found.high <= 1 - share_of(1)


def test_the_growth_is_that_of_the_runs_measured() -> None:
    known = plan.fitted_growth([plan.scenario_of(row) for row in record("plan")["rows"]])
    assert known.sources == GROWTH.sources >= 3
    assert astuple(known.first) == pytest.approx(astuple(GROWTH.first))
    for one, other in ((known.missed, GROWTH.missed), (known.slope, GROWTH.slope)):
        assert one[0] == pytest.approx(other[0])
        assert one[1] == pytest.approx(other[1])
