"""Each study asks for the paper's whole grid, with the paper's constants."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from stacksl.runs.settings.resolve import flattened, resolve
from stacksl_lab.language.asking import cell_of
from stacksl_lab.language.cells import Setting, names_in_run
from stacksl_lab.language.paper import NUMBERS
from stacksl_lab.language.studies import LanguageBench
from stacksl_lab.language.tasks import Setup
from stacksl_lab.studies import LANGUAGE, listing, study_named


def rows(study: str, setup: Setup) -> dict[str, Setting]:
    found = LANGUAGE[study].grid(setup)
    assert len({each.row for each in found}) == len(found), "a row's name is its own"
    return {each.row: each for each in found}


def test_there_are_the_seven_tables() -> None:
    assert list(LANGUAGE) == [
        "label-efficiency", "kl", "hard-negatives", "objectives", "medqa", "mmlu", "clipping-lm",
    ]  # fmt: skip
    assert set(NUMBERS) == set(LANGUAGE)
    assert all(study.claim in listing()[name] for name, study in LANGUAGE.items())
    with pytest.raises(Exception, match="did you mean 'medqa'"):
        study_named("medaq")


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_every_row_of_the_paper_is_in_the_grid(study: str, setup: Setup) -> None:
    found = rows(study, setup)
    assert set(NUMBERS[study]) <= set(found)
    for row, numbers in NUMBERS[study].items():
        assert found[row].paper == numbers
        assert set(numbers) <= set(LANGUAGE[study].metrics)


def test_the_constants_are_the_papers(setup: Setup) -> None:
    kl, k = rows("kl", setup), rows("hard-negatives", setup)
    mine = [each for each in kl.values() if each.settings.get("gate") == "llf"]
    assert [each.settings["kl_weight"] for each in mine] == [0.3, 0.5, 0.7, 0.9]
    assert {(each.settings["k"], each.items, each.budget_fraction) for each in mine} == {
        (4, 1000, 0.5)
    }
    mine = [each for each in k.values() if each.settings.get("gate") == "llf"]
    assert [each.settings["k"] for each in mine] == [1, 2, 3, 4]
    assert {(e.settings["kl_weight"], e.items, e.budget_fraction) for e in mine} == {
        (0.7, 1000, 0.5)
    }
    budgets = {
        e.budget_fraction for e in rows("label-efficiency", setup).values() if e.shots is None
    }
    assert budgets == {1.0, 0.5, 0.25, 0.1}
    for study in ("medqa", "mmlu"):
        gated = [e for e in rows(study, setup).values() if e.settings.get("gate") == "llf"]
        assert gated
        assert {each.budget_fraction for each in gated} == {0.5}
    for setting in rows("clipping-lm", setup).values():
        if setting.settings.get("clip", "none") != "none":
            assert setting.settings["clip_level"] == 5.0


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_a_run_takes_the_settings(study: str, bench: LanguageBench) -> None:
    """Every cell resolves: no unknown name, no conflict."""
    for setting in LANGUAGE[study].grid(bench.setup):
        if setting.shots is None:
            cell = cell_of(replace(setting, chosen=False), 0, bench)
            asked: dict[str, Any] = {**cell.settings, "model": "m", "seed": 0, "budget": "5"}
            made = resolve(names_in_run(asked))
            assert made.settings.adapts
            given = flattened(names_in_run(cell.settings))
            assert all(made.origin[name] == "flag" for name in given)


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_the_cost_is_what_is_played(study: str, bench: LanguageBench, stage: Any) -> None:
    """With four options, and an `llf` that buys what `first` buys."""
    LANGUAGE[study].reproduce(bench, [0])
    runs = re.match(r"(\d+) runs", LANGUAGE[study].cost)
    assert runs is not None
    assert int(runs[1]) == len(stage.played)
    chosen = [each for each in stage.played if each[1].name == "MedQA-train"]
    said = re.search(r"(\d+) of them,? (?:on MedQA, )?to choose", LANGUAGE[study].cost)
    assert len(chosen) == (int(said[1]) if said else 0)
