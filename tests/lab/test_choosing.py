"""kl_weight and k are chosen on bought labels that are kept apart, never on the test set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stacksl.errors import DataError
from stacksl_lab.language.measuring import candidates
from stacksl_lab.language.studies import LanguageBench
from stacksl_lab.language.tasks import Setup, held_out, permuted
from stacksl_lab.studies import LANGUAGE


def choosing(stage: Any) -> list[Any]:
    """What was played and measured on items of a stream."""
    return [each for each in stage.played if each[1].items[0].id.startswith("MedQA-train")]


def test_the_choice_never_sees_the_test_set(bench: LanguageBench, stage: Any) -> None:
    rows = LANGUAGE["medqa"].reproduce(bench, [0, 1])
    found = choosing(stage)
    assert len(found) == 6 * 2, "two seeds of four weights and, at 0.7, two more k (k = 4 is 3)"
    test = {item.id for item in bench.setup.main.test.items}
    for train, held, settings, _ in found:
        trained, measured = ({item.id for item in each.items} for each in (train, held))
        assert not measured & test
        assert not measured & trained
        assert measured | trained == {item.id for item in bench.setup.main.train.items}
        assert len(measured) + int(settings["budget"]) == 30, "held-out labels are of the budget"
    chosen = next(row for row in rows if row.row == "StackSL")
    assert (chosen.settings["kl_weight"], chosen.settings["k"]) == (0.5, 2)
    assert "kl_weight and k chosen on held-out bought labels" in chosen.settings["marks"]


def test_the_papers_own_choice_is_on_the_test_and_says_so(bench: LanguageBench, stage: Any) -> None:
    paper = replace(bench, paper_selection=True)
    rows = LANGUAGE["medqa"].reproduce(paper, [0])
    assert not choosing(stage)
    chosen = next(row for row in rows if row.row == "StackSL")
    assert any("on the test set" in mark for mark in chosen.settings["marks"])
    weights, negatives = candidates(paper, 0)
    assert not any(cell.held for cell in (*weights, *negatives))
    before = len(stage.played)
    LANGUAGE["kl"].reproduce(paper, [0])
    played = stage.played[before:]
    assert all(s["gate"] != "llf" for *_, s, _ in played), "its grid was the choice"


def test_held_out_labels_are_a_fifth(setup: Setup) -> None:
    stream, apart, left = held_out(setup.main.train, 30, 0)
    assert (len(stream.items), len(apart.items), left) == (54, 6, 24)
    assert set(stream.answers) | set(apart.answers) == set(setup.main.train.answers)
    with pytest.raises(DataError, match="at least 3"):
        held_out(setup.main.train, 2, 0)


def test_permuted_options_keep_their_answer(setup: Setup) -> None:
    whole = setup.main.test
    other = permuted(whole, 1)
    assert other.items != whole.items
    for before, after in zip(whole.items, other.items, strict=True):
        assert sorted(before.candidates) == sorted(after.candidates)
        gold = before.candidates[whole.answers[before.id]]
        assert after.candidates[other.answers[after.id]] == gold
    assert permuted(whole, 1).items == other.items
