"""The audit's size, draw and verdict, and what facts measure the final model by."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import floor
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from stacksl.data import Dataset
from stacksl.errors import SettingsError
from stacksl.ledger.purchases import Word
from stacksl.models.audit import Audit, Audited, audit_size, draw, expected_width, judge_audit
from stacksl.models.evaluation import Evaluation, Tested
from stacksl.report.quality import SecondLook
from stacksl.runs.finish.facts import calibration, class_rows, confusion_rows, open_rows, source
from stacksl.runs.loop.game import Examples

from .conftest import CLASSES, class_items


@given(st.integers(1, 100_000))
def test_default_size_is_the_formula(budget: int) -> None:
    wanted = floor(min(max(budget / 10, 50), 200, budget / 4)) if budget >= 80 else 0
    assert audit_size(budget, asked_for=None, tested=False, items=10**6) == wanted
    assert audit_size(budget, asked_for=None, tested=True, items=10**6) == 0


def test_what_is_asked_for_wins() -> None:
    assert audit_size(20, asked_for=5, tested=True, items=100) == 5
    assert audit_size(1000, asked_for=0, tested=False, items=2000) == 0
    assert audit_size(20, asked_for=19, tested=False, items=20) == 19


@pytest.mark.parametrize(
    ("wanted", "budget", "items", "words"),
    [
        (100, 100, 500, "give at most 99"),
        (101, 100, 500, "give at most 99"),
        (90, 100, 80, "larger than the 80 items"),
        (40, 2, 2, "the audit of 40 is larger than the 2 items"),  # all of which the budget labels
    ],
)
def test_impossible_audits_are_refused(wanted: int, budget: int, items: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        audit_size(budget, asked_for=wanted, tested=False, items=items)


@given(
    st.integers(0, 200),
    st.integers(0, 60),
    st.sets(st.integers(0, 199), max_size=60),
    st.integers(0, 10),
)
def test_a_draw_is_without_repeats_and_keeps_away_from_what_is_excluded(
    items: int, size: int, exclude: set[int], epoch: int
) -> None:
    pool = set(range(items)) - exclude
    if size > len(pool):
        with pytest.raises(SettingsError, match=f"got {len(pool)}: ask"):
            draw(items, size, 0, exclude, epoch)
        return
    rows = draw(items, size, 0, exclude, epoch)
    assert len(rows) == len(set(rows)) == size
    assert set(rows) <= pool
    assert rows == draw(items, size, 0, exclude, epoch)


def test_a_draw_depends_on_seed_and_epoch() -> None:
    assert draw(10_000, 20, 0) != draw(10_000, 20, 1)
    assert draw(10_000, 20, 0) != draw(10_000, 20, 0, epoch=1)


def test_every_subset_is_equally_likely() -> None:
    """2 of the 5 rows left: 10 subsets, over 2,000 seeds; a right draw fails once in 10,000."""
    counts = dict.fromkeys(combinations((0, 2, 3, 4, 6), 2), 0)
    for seed in range(2000):
        rows = draw(7, 2, seed, exclude={1, 5})
        counts[min(rows), max(rows)] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_the_sentence_before_a_run_gives_half_the_interval_of_scipy() -> None:
    said = expected_width(80, 800)
    for share in (0.5, 0.9):
        ends = binomtest(round(80 * share), 80).proportion_ci(method="wilson")
        assert f"{50 * (ends.high - ends.low):.0f}" in said
    assert said.startswith("80 of the 800 labels")


def policies(*choices: int) -> dict[str, np.ndarray]:
    """One policy an item that puts .7 on the choice, of three."""
    return {
        f"item-{at}": np.array([0.7 if k == choice else 0.15 for k in range(3)])
        for at, choice in enumerate(choices)
    }


def test_none_of_these_is_wrong_and_the_unclear_are_a_range() -> None:
    answers = {
        "item-0": 0,
        "item-1": "none",
        "item-2": "ambiguous",
        "item-3": "broken",
    }
    found = judge_audit(policies(0, 1, 2, 0, 1), answers)
    assert (found.n, found.correct, found.none_of_these, found.unknown) == (5, 1, 1, 3)
    assert found.accuracy == 0.5
    assert (found.worst, found.best) == (0.2, 0.8)
    low = binomtest(1, 5).proportion_ci(method="wilson").low
    high = binomtest(4, 5).proportion_ci(method="wilson").high
    assert found.interval == pytest.approx((low, high))


def test_calibration_counts_none_of_these_as_a_sure_mistake() -> None:
    answers = {"item-0": 0, "item-1": "none", "item-2": "ambiguous"}
    found = judge_audit(policies(0, 1, 2), answers)
    assert calibration(Tested(audited=found), set()).error == pytest.approx(0.2)


def test_an_audit_without_an_answer_knows_nothing() -> None:
    found = judge_audit(policies(0, 1), {})
    assert found.accuracy is None
    assert calibration(Tested(audited=found), set()) is None
    assert (found.worst, found.best) == (0.0, 1.0)
    low, high = found.interval
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(1.0, abs=1e-12)


@given(st.lists(st.sampled_from(["right", "wrong", "none", "ambiguous", "missing"]), min_size=1))
def test_the_interval_holds_whatever_the_unclear_answers_would_have_been(kinds: list[str]) -> None:
    answers: dict[str, Word] = {}
    for at, kind in enumerate(kinds):
        if kind in ("right", "wrong"):
            answers[f"item-{at}"] = 0 if kind == "right" else 1
        elif kind != "missing":
            answers[f"item-{at}"] = kind
    asked = policies(*[0] * len(kinds))
    found = judge_audit(asked, answers)
    for rest in (0, 1):
        all_known = {item: answers.get(item, rest) for item in asked}
        all_known = {
            item: rest if said == "ambiguous" else said for item, said in all_known.items()
        }
        whole: Audited = judge_audit(asked, all_known)
        assert found.interval[0] <= whole.interval[0] + 1e-12
        assert whole.interval[1] <= found.interval[1] + 1e-12
        assert whole.accuracy == pytest.approx(found.best if rest == 0 else found.worst)


def test_only_named_candidates_are_labels_of_an_audit() -> None:
    ids = [f"item-{n}" for n in range(5)]
    said: dict[str, Word] = {
        "item-4": 1,
        "item-2": "none",
        "item-0": 0,
        "item-1": 2,
    }
    assert Audit((4, 0, 3, 2), said).labels(ids) == [(4, 1), (0, 0)]


# What is measured, in facts ---------------------------------------------------------------------


ITEMS, ANSWERS = class_items(6)
DATA = Dataset("d", "csv:classes", tuple(ITEMS), ANSWERS, CLASSES)
EXAMPLES = cast("Examples", SimpleNamespace(bought=[(0, 1, 0), (1, 1, -1)]))


def audited() -> Audited:
    """Gold 0, 0, 1 and none of these, of which the model says 0, 1, 1, 2."""
    answers: dict[str, Word] = {
        "item-0": 0,
        "item-1": 0,
        "item-2": 1,
        "item-3": "none",
    }
    return judge_audit(policies(0, 1, 1, 2), answers)


def evaluation() -> Evaluation:
    gold, said = np.array([2, 2, 2]), np.array([2, 2, 0])
    return Evaluation(3, 2, 0, 0, 0.5, gold, said, np.array([0.9, 0.8, 0.6]))


def test_recall_of_the_audit_has_wilsons_interval() -> None:
    tested = Tested(audited=audited())
    assert source(tested) == "audit"
    rows = {row.name: row for row in class_rows(DATA, EXAMPLES, tested, set())}
    bread, sea, night = (rows[name] for name in CLASSES)
    assert (bread.bought, sea.bought) == (0, 2)
    assert (bread.test_n, bread.precision, bread.recall) == (2, 1.0, 0.5)
    ends = binomtest(1, 2).proportion_ci(method="wilson")
    assert (bread.low, bread.high) == pytest.approx((ends.low, ends.high))
    assert (sea.test_n, sea.precision, sea.recall) == (1, 0.5, 1.0)
    assert (night.test_n, night.precision, night.recall, night.low) == (0, 0.0, None, None)


def test_a_test_file_measures_the_classes_and_the_audit_the_calibration() -> None:
    tested = Tested(evaluation(), audited=audited())
    assert source(tested) == "test"
    assert class_rows(DATA, EXAMPLES, tested, set())[2].recall == pytest.approx(2 / 3)
    found = calibration(tested, set())
    assert (found.source, found.n) == ("audit", 4)
    alone = calibration(Tested(evaluation()), {"item-1"})
    assert (alone.source, alone.n) == ("test", 3)


def test_a_row_on_which_no_two_people_agree_tells_nothing_of_the_model() -> None:
    tested = Tested(audited=audited())
    assert calibration(tested, {"item-1"}).n == 3
    assert [row.test_n for row in class_rows(DATA, EXAMPLES, tested, {"item-1"})] == [1, 1, 0]
    (found,) = confusion_rows(DATA, tested, {"item-2"})
    assert (found.gold, found.predicted) == (CLASSES[0], CLASSES[1])
    assert not confusion_rows(DATA, tested, {"item-1"})
    assert len(confusion_rows(DATA, Tested(evaluation()), {"item-1"})) == 1, "of a test file"


def test_an_audited_row_that_a_second_look_could_not_ask_about_again_is_open() -> None:
    """Item 1 differs from the model and has one answer; item 0 agrees with it."""
    said: dict[str, list[Word]] = {f"item-{n}": [0] for n in range(2)}
    said |= {"item-2": [1] * 2}
    assert open_rows(said, audited()) == set(), "first answers count without a second look"
    assert open_rows(said, replace(audited(), second=cast("SecondLook", object()))) == {"item-1"}
    assert open_rows({"item-9": [0, 1]}, None) == {"item-9"}
