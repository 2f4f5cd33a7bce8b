"""`advice`: effects, verdicts and the settings that a sentence is tested under."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.errors import SettingsError
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.engines import run_stream
from stacksl_lab.figures.advice import verdict
from stacksl_lab.streams import bisections
from stacksl_lab.streams.advice import ADVICE, trials
from stacksl_lab.streams.sentences import (
    SENTENCES,
    between,
    contrast,
    near_budget,
    negative,
    shift_of_best,
)
from stacksl_lab.study.rows import Row
from stacksl_lab.synthetic import playing
from stacksl_lab.synthetic.streams import make_stream


@pytest.fixture(autouse=True)
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "run_stream", partial(run_stream, engine="loop"))
    monkeypatch.setattr(bisections, "run_stream", partial(run_stream, engine="loop"))


def effect(value: float, se: float, presence: bool = False) -> Row:
    return Row("advice", "x", "effect", value, se, 4, settings={"presence": presence})


@pytest.mark.parametrize(
    ("value", "se", "presence", "said"),
    [
        (1.0, 0.3, False, "holds"),
        (1.0, 0.32, False, "no effect seen"),
        (-1.0, 0.3, False, "the reverse"),
        (0.0, 0.0, False, "no effect seen"),
        (0.0, 0.0, True, "does not"),
        (1.0, 0.0, True, "holds"),
    ],
)
def test_a_verdict_follows_the_interval(value, se, presence, said) -> None:
    """t(3) = 3.182, so that ± 0.955 leaves out 0 and ± 1.018 does not."""
    assert verdict(effect(value, se, presence)) == said


def test_effects_are_paired_by_seed() -> None:
    samples = {
        "a": {"final_regret": [1.0, 5.0], "demand": [0.0, 0.5], "demand_uncut": [1.04, 2.0]},
        "b": {"final_regret": [2.0, 4.0], "demand": [0.5, 1.0]},
        "c": {"final_regret": [3.0, 3.0], "demand": [1.0, 1.0]},
    }
    assert contrast("final_regret", ["c"], ["a", "b"])(samples) == [1.5, -1.5]
    assert shift_of_best(["c", "a"], ["b", "c"])(samples) == [1.0, -1.0]
    assert negative(shift_of_best(["c", "a"], ["b", "c"]))(samples) == [-1.0, 1.0]
    assert between(["a", "b", "c"])(samples) == pytest.approx([1 / 3, 1 / 3])
    assert near_budget("a")(samples) == pytest.approx([0.01, -0.95])


@given(st.floats(1e-3, 1e3), st.integers(1, 500))
def test_bisection_closes_in_on_the_level_of_a_known_curve(scale, budget) -> None:
    """floor(scale·B/level) labels: all of the budget up to level = scale exactly."""
    low, high, jump = bisections.bracket(
        lambda level: min(budget, int(scale * budget / level)), budget, 1e-3
    )
    assert low <= scale * (1 + 1e-9)
    assert scale / 1.001 < high * (1 + 1e-9)
    assert high / low <= 1.001
    assert 0.0 < jump <= 1.0


@pytest.mark.parametrize("level", [0.0, 1e30])
def test_a_curve_that_never_crosses_is_refused(level) -> None:
    with pytest.raises(SettingsError, match="no level between"):
        bisections.bracket(lambda at: 5 if at < level else 0, 5)


@pytest.mark.parametrize(("level", "least", "most"), [(0.05, 2.0, 2.0), (50.0, 0.0, 0.0)])
def test_labels_beyond_the_budget_are_counted_and_those_of_the_end_are_not(
    level: float, least: float, most: float
) -> None:
    """Of `adpo` alone the last rounds buy what is left of a budget: that is no demand."""
    source = make_stream("iid", "scalar", 0, rounds=200, dim=6, candidates=4)
    gate = make_gate("adpo", level=level)
    assert least <= bisections.demand_uncut(source, "adpo", level, 20, 0) <= most
    assert playing.play(source, gate, 20).asked.sum() == 20, "at either level"


@pytest.mark.parametrize(("gate", "level"), [("adpo", 0.4), ("width", 1.0)])
def test_what_is_counted_is_what_the_gate_asks_until_the_budget_is_spent(gate, level) -> None:
    """The same rounds at B and at 2 B, although the level of `width` is counted in B."""
    source = make_stream("iid", "scalar", 1, rounds=200, dim=6, candidates=4)
    cut = playing.play(source, bisections._gate_at(gate, level), 20)
    rounds = int(np.flatnonzero(cut.asked)[-1]) + 1
    assert rounds < 180, "the gate itself spent it"
    assert bisections.demand_uncut(source, gate, level, 20, 0) > 1.0
    kept = level * bisections._rescaled(gate, 6, 20, 40)
    longer = playing.play(bisections._extended(source, 40), bisections._gate_at(gate, kept), 40)
    assert (longer.asked[:rounds] == cut.asked[:rounds]).all()


def test_an_effect_is_the_difference_of_the_means_that_its_sentence_names() -> None:
    rng = np.random.default_rng(0)
    made = {
        line.row: [{m: float(rng.random()) for m in ADVICE.metrics} for _ in range(3)]
        for trial in trials(True) for line in trial.lines
    }  # fmt: skip
    rows = ADVICE.rows_from(made, quick=True)
    effects = [row for row in rows if row.metric == "effect"]
    assert [row.row for row in effects] == [sentence.key for sentence in SENTENCES]
    budget = next(row for row in effects if row.row == "budget")
    few = [n["final_regret"] for n in made["budget: B/T = 0.02, β = 0.02"]]
    most = [n["final_regret"] for n in made["budget: B/T = 1, β = 1"]]
    assert budget.value == pytest.approx(np.mean(few) - np.mean(most))
