"""How good the final model is, in facts: recall with intervals, from the test file or the audit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from scipy.stats import binomtest

from stacksl.data import Dataset
from stacksl.ledger.purchases import Word
from stacksl.models.audit import Audited, judge_audit
from stacksl.models.evaluation import Evaluation, Tested
from stacksl.report.quality import SecondLook
from stacksl.runs.finish.facts import calibration, class_rows, confusion_rows, open_rows, source
from stacksl.runs.loop.game import Examples

from .conftest import CLASSES, class_items
from .test_audit import policies

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
