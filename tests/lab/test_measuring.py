"""From a grid to rows: each cell once, k cut, rows that coincide marked, the schema held."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl_lab.language.cells import Result
from stacksl_lab.language.studies import LanguageBench
from stacksl_lab.studies import LANGUAGE
from stacksl_lab.study.bench import Pace
from stacksl_lab.study.rows import KEYS, Row, half_width, pooled, row_from
from stacksl_lab.study.store import Store


def by_row(rows: list[Row], metric: str = "accuracy") -> dict[str, Row]:
    return {row.row: row for row in rows if row.metric == metric}


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_rows_keep_the_one_schema(study: str, bench: LanguageBench) -> None:
    found = LANGUAGE[study].reproduce(bench, [0, 1])
    for row in found:
        line = json.loads(json.dumps(row.to_json()))
        assert tuple(line) == KEYS
        assert row_from(line) == row
        assert row.study == study
        assert row.seeds in (1, 2)
    assert {row.row for row in found} == {s.row for s in LANGUAGE[study].grid(bench.setup)}


def test_a_row_with_another_key_is_refused() -> None:
    with pytest.raises(Exception, match="extra"):
        row_from({**Row("s", "r", "m", 1.0).to_json(), "extra": 1})


def test_k_is_cut_and_the_same_run_is_played_once(bench: LanguageBench, stage: Any) -> None:
    found = by_row(LANGUAGE["hard-negatives"].reproduce(bench, [0]))
    gates = [(s["gate"], s["k"]) for _, _, s, _ in stage.played]
    assert sorted(k for gate, k in gates if gate == "llf") == [1, 2, 3]
    four = found["k = 4"]
    assert four.settings["k"] == 3
    assert four.value == found["k = 3"].value
    assert "the same run as 'k = 3': computed once" in four.settings["marks"]
    assert any("k is cut to 3" in mark for mark in four.settings["marks"])
    assert not any("k is cut" in mark for mark in found["k = 3"].settings["marks"])


def test_llf_equal_to_first_is_played_once(bench: LanguageBench, stage: Any) -> None:
    found = by_row(LANGUAGE["medqa"].reproduce(bench, [0]))
    assert "first" not in [s["gate"] for *_, s, _ in stage.played]
    assert found["first"].value == found["LLF-StackSL"].value
    assert any("computed once" in mark for mark in found["first"].settings["marks"])


def test_a_stopped_bench_goes_on(bench: LanguageBench, stage: Any, tmp_path: Path) -> None:
    def stop(pace: Pace) -> None:
        if pace.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LANGUAGE["kl"].reproduce(bench, [0], stop)
    kept = len(stage.played) + len(stage.examined)
    assert kept == 5
    again = replace(bench, store=Store(bench.store.path))
    rows = LANGUAGE["kl"].reproduce(again, [0])
    undisturbed = replace(bench, store=Store())
    calls = len(stage.played) + len(stage.examined)
    assert rows == LANGUAGE["kl"].reproduce(undisturbed, [0])
    assert calls == len(stage.played) + len(stage.examined) - calls, "nothing is measured twice"


def test_a_result_is_kept_as_numbers(tmp_path: Path) -> None:
    result = Result(0.5, 0.4, 10, 5, 10, 1.0, True, mean_loss=1.5)
    Store(tmp_path / "cells.jsonl").put({"a": result.found(), "b": "a reason"})
    again = Store(tmp_path / "cells.jsonl")
    kept = again.get("a")
    assert kept is not None
    assert Result.of(kept) == result
    assert again.get("b") is None, "the reason may be gone next time"


def test_a_fault_is_not_measured_and_not_kept(bench: LanguageBench, stage: Any) -> None:
    stage.fail = SettingsError("no such thing")
    found = by_row(LANGUAGE["kl"].reproduce(bench, [0]))
    assert found["λ_KL = 0.7"].value is None
    assert "not measured: no such thing" in found["λ_KL = 0.7"].settings["marks"]
    assert found["λ_KL = 0.7"].paper == 0.3166
    assert found["Base, 0-shot"].value == 0.3
    stage.fail = None
    again = replace(bench, store=Store(bench.store.path))
    assert by_row(LANGUAGE["kl"].reproduce(again, [0]))["λ_KL = 0.7"].value is not None


def test_an_absent_model_is_not_looked_for(bench: LanguageBench, stage: Any) -> None:
    gone = replace(bench, setup=replace(bench.setup, absent="the weights are not here"))
    for study in LANGUAGE.values():
        rows = study.reproduce(gone, [0, 1])
        assert all(row.value is None for row in rows)
        assert any(row.paper is not None for row in rows)
    assert not stage.played
    assert not stage.examined


def test_numbers_of_the_paper_stand_beside_its_model_alone(bench: LanguageBench) -> None:
    other = replace(bench, setup=replace(bench.setup, papers=False))
    assert all(row.paper is None for row in LANGUAGE["objectives"].reproduce(other, [0, 1]))
    mine = by_row(LANGUAGE["objectives"].reproduce(bench, [0, 1]), "accuracy_sd")
    assert mine["SFT"].paper == 0.0023
    assert mine["SFT"].value == pytest.approx(0.001 / 2**0.5), "seeds 0 and 1 differ by 0.001"


def test_errors_of_a_mean() -> None:
    """s of (0, 0.1, 0.2) is 0.1; the 97.5 % quantile of t with 2 degrees is 4.303."""
    value, se = pooled([0.0, 0.1, 0.2])
    assert value == pytest.approx(0.1)
    assert se == pytest.approx(0.1 / 3**0.5)
    row = Row("s", "r", "accuracy", value, se, 3)
    assert half_width(row) == pytest.approx(4.302652729911275 * 0.1 / 3**0.5)
    assert pooled([0.5], 100) == (0.5, 0.05), "sqrt(0.25 / 100)"
    assert pooled([0.5]) == (0.5, None)
