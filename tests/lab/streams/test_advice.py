"""`advice`: effects, verdicts and the settings that a sentence is tested under."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core import generator, make_gate
from stacksl.errors import SettingsError
from stacksl_lab.engines import run_stream
from stacksl_lab.figures.advice import verdict
from stacksl_lab.streams import bisections
from stacksl_lab.streams.advice import ADVICE, measure, stream_of, trials
from stacksl_lab.streams.sentences import (
    SENTENCES,
    between,
    contrast,
    near_budget,
    negative,
    shift_of_best,
)
from stacksl_lab.streams.trial import played as trial_played
from stacksl_lab.study.rows import Row
from stacksl_lab.synthetic import playing
from stacksl_lab.synthetic.streams import make_stream, sphere


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


def test_a_target_is_missed_and_not_reversed() -> None:
    settings = {"presence": False, "metric": "demand_uncut"}
    assert verdict(Row("advice", "x", "effect", -0.1, 0.01, 4, settings=settings)) == "does not"
    assert verdict(Row("advice", "x", "effect", 0.04, 0.01, 4, settings=settings)) == "holds"


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


def test_every_sentence_has_lines_of_its_own_world() -> None:
    lines = {line.row: (trial.source, line) for trial in trials(False) for line in trial.lines}
    assert len({sentence.key for sentence in SENTENCES}) == len(SENTENCES)
    for sentence in SENTENCES:
        for line in sentence.lines:
            source, kept = lines[line.row]
            assert kept is line or kept == line
            assert source == {**sentence.source, "rounds": 4000}
    assert sum(len(trial.lines) for trial in trials(False)) == len(lines) == 100


def played(*starts: str, seed: int = 0) -> dict[str, dict[str, float | None]]:
    found = {}
    for trial in trials(True):
        lines = [line for line in trial.lines if line.row.startswith(starts)]
        if lines:
            numbers = trial_played(stream_of, measure, trial.source, lines, seed)
            found |= {line.row: dict(n) for line, n in zip(lines, numbers, strict=True)}
    return found


def test_llf_is_a_switch_at_the_warmup_median_and_a_smaller_ridge_opens_it() -> None:
    found = played("c of llf", "ridge", "normalization")
    kappas = {float(r.split("κ = ")[1].split(",")[0]): n for r, n in found.items() if "κ" in r}
    assert {k: n["demand"] for k, n in kappas.items()} == {k: float(k < 1.0) for k in kappas}
    assert kappas[0.1]["regret_per_round"] == kappas[0.9]["regret_per_round"]
    assert found["ridge: ridge = 10, β = 0.1"]["demand"] == 0.0
    assert found["ridge: ridge = 0.01, β = 0.1"]["demand"] == 1.0
    assert found["normalization: ‖φ‖ = 0.25, β = 0.1"]["demand"] == 0.0
    assert found["normalization: ‖φ‖ = 2, β = 0.1"]["demand"] == 1.0


def test_a_larger_scale_of_width_asks_less_by_degrees() -> None:
    asked = [numbers["demand"] for numbers in played("c of width").values()]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == 1.0
    assert asked[-1] == 0.0
    assert any(0.05 < (a or 0.0) < 0.95 for a in asked)


def test_each_side_of_a_range_is_held_against_its_inside() -> None:
    """κ: a switch across the range loses nothing below it, and nothing more above than inside."""
    mine = {sentence.key: sentence for sentence in SENTENCES if sentence.key.startswith("κ, ")}
    lines = mine["κ, below"].lines
    values = {line.row: float(line.settings["value"]) for line in lines}
    samples = {row: {"regret_per_round": [value, 2.0 * value]} for row, value in values.items()}
    inside = np.mean([v for v in values.values() if 0.5 <= v <= 1.5])
    assert [v for v in values.values() if v > 1.5] == [2.0, 3.0]
    below = mine["κ, below"].effects(samples)
    above = mine["κ, above"].effects(samples)
    assert below == pytest.approx([0.175 - inside, 2 * (0.175 - inside)])
    assert above == pytest.approx([2.5 - inside, 2 * (2.5 - inside)])


def test_every_range_has_values_on_both_sides() -> None:
    keys = [s.key for s in SENTENCES if s.key.endswith((", below", ", above"))]
    assert keys == [f"{name}, {side}" for name in ("κ", "δ", "EMA", "τ") for side in
                    ("below", "above")]  # fmt: skip


def test_bisection_of_llf_jumps_and_that_of_adpo_does_not() -> None:
    found = played("bisection, adpo", "bisection, llf")
    llf = found["bisection, llf: B/T = 0.1, β = 0.1"]
    assert llf["jump"] == 1.0
    assert {llf["demand_uncut"], llf["demand_uncut_above"]} <= {0.0, 2.0}, "nothing, or twice B"
    adpo = found["bisection, adpo: B/T = 0.1, β = 0.1"]
    assert (adpo["jump"] or 0.0) <= 0.1
    assert (adpo["level_above"] or 0) / (adpo["level"] or 1) == pytest.approx(1.0, abs=0.006)


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


def test_a_simulated_stream_holds_warmup_items_and_made_up_answers() -> None:
    warmup = sphere(generator(5, "warm-up"), 60, 6, 5)
    features, rewards = bisections.simulated(warmup, 400, 1, norm_bound=2.0, noise=0.3)
    assert {row.tobytes() for row in features} <= {row.tobytes() for row in warmup}
    theta, *_ = np.linalg.lstsq(features.reshape(-1, 5), rewards.ravel(), rcond=None)
    assert np.linalg.norm(theta) == pytest.approx(2.0, abs=0.15)
    noise = rewards - features @ theta
    assert noise.std() == pytest.approx(0.3, abs=0.03)
    assert np.ptp(noise, axis=1).max() < 0.1, "a round's noise is that of the round"


@pytest.mark.parametrize(("level", "least", "most"), [(0.05, 2.0, 2.0), (50.0, 0.0, 0.0)])
def test_labels_beyond_the_budget_are_counted_and_those_of_the_end_are_not(
    level: float, least: float, most: float
) -> None:
    """Of `adpo` alone the last rounds buy what is left of a budget: that is no demand."""
    source = make_stream("iid", "scalar", 0, rounds=200, dim=6, candidates=4)
    gate = make_gate("adpo", level=level)
    assert least <= bisections.demand_uncut(source, "adpo", level, 20, 0) <= most
    assert playing.play(source, gate, 20).asked.sum() == 20, "at either level"


@pytest.mark.parametrize(
    ("gate", "level"), [("adpo", 0.4), ("width", 1.0), ("lucb", 1.5), ("llf", 0.5)]
)
def test_what_is_counted_is_what_the_gate_asks_until_the_budget_is_spent(gate, level) -> None:
    """The same rounds at B and at 2 B, although the level of `width` is counted in B."""
    source = make_stream("iid", "scalar", 1, rounds=200, dim=6, candidates=4)
    cut = playing.play(source, bisections._made(gate, level), 20)
    rounds = int(np.flatnonzero(cut.asked)[-1]) + 1
    assert rounds < 180, "the gate itself spent it"
    assert bisections.demand_uncut(source, gate, level, 20, 0) > 1.0
    kept = level * bisections._rescaled(gate, 6, 20, 40)
    longer = playing.play(bisections._followed(source, 40), bisections._made(gate, kept), 40)
    assert (longer.asked[:rounds] == cut.asked[:rounds]).all()


def test_fewer_candidates_are_shown_and_all_are_tested() -> None:
    found = played("candidates")
    finals = [numbers["final_regret"] for numbers in found.values()]
    assert len(set(finals)) == 4, "each learnt from other candidates"
    assert all(0.0 < (value or 0.0) < 10.0 for value in finals)


def test_the_study_makes_a_table_and_a_figure() -> None:
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
    text = ADVICE.shown(rows)
    assert all(f"| {sentence.key} | {sentence.text} |" in text for sentence in SENTENCES)
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {7}
    assert ADVICE.figures is not None
    assert set(ADVICE.figures(rows)) == {"advice"}
