"""The benchmark's ways to learn of unlabelled questions."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stacksl.lm import Lesson
from stacksl.types import Item

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TEXTS = ["Which vitamin is lacking in scurvy?", "def median(values): the middle of them", "C"]


@pytest.fixture
def unlabelled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("_unlabelled")


def question(number: int) -> Item:
    return Item(f"q{number}", f"# Add {number} numbers.\ndef", ("sum(", "median(", "sort("))


def task_of(unlabelled: ModuleType, count: int) -> Any:
    items = [question(n) for n in range(count)]
    return unlabelled.Task(items, np.zeros(count, np.int64), [], np.zeros(0, np.int64), [], 0.0)


@dataclass
class Refits:
    """Stands for `refitted`: what was learnt, and models right as often as their weight says."""

    sure: dict[float, float]
    learnt: list[list[Lesson]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, lessons: list[Lesson], key: int, more: Any, *_: Any) -> tuple[None, Any]:
        self.learnt.append(lessons)
        self.settings.append(more)
        return None, Sure(self.sure[more.get("kl_weight", 0)])


@dataclass
class Sure:
    """A model that answers this share of questions rightly, and is as sure of each."""

    share: float

    def scores(self, items: list[Item]) -> dict[str, Any]:
        right = [n < self.share * len(items) for n in range(len(items))]
        return {"pmi": [np.array([3.0, 0.0, 0.0] if yes else [0.0, 3.0, 0.0]) for yes in right]}


def test_a_weight_is_judged_on_labels_that_neither_it_nor_its_teacher_learnt(
    unlabelled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    refits = Refits({0: 0.5, 0.25: 0.7, 0.5: 1.0, 1: 0.6})
    monkeypatch.setattr(unlabelled, "refitted", refits)
    task = task_of(unlabelled, 90)
    lessons = [Lesson(item, 0, (0, 1, 2), (0.0, 0.0, 0.0)) for item in task.items[:30]]

    losses = unlabelled.losses_of_weights(task, lessons, {"epochs": 2}, 0, 1.0)

    assert sorted(losses, key=losses.get) == [0.5, 0.25, 1, 0]
    held = {each.item.id for each in lessons[2::3]}
    assert all(not held & {each.item.id for each in own} for own in refits.learnt)
    teacher, plain, *students = refits.learnt
    assert (len(teacher), len(plain)) == (16, 20)
    assert {len(own) for own in students} == {60}
    assert all(sum(each.label is None for each in own) == 40 for own in students)
    assert [more.get("kl_weight") for more in refits.settings] == [None, None, 0.25, 0.5, 1]
    assert all(more["epochs"] == 2 for more in refits.settings)


def test_pretraining_reads_each_token_once_and_learns(
    unlabelled: ModuleType, make_model: Any
) -> None:
    model = make_model("qwen3")

    def tokens(text: str) -> dict[str, list[int]]:
        return {"input_ids": [5 + ord(each) % 90 for each in text]}

    rows = [torch.tensor([tokens(text)["input_ids"]]) for text in TEXTS]
    with torch.no_grad():
        each = [float(model(input_ids=row, labels=row).loss) for row in rows[:2]]
    sizes = [row.shape[1] - 1 for row in rows]
    wanted = np.average(each, weights=sizes[:2])  # of one letter there is nothing to predict
    first = unlabelled.read_on(model, tokens, TEXTS, 1e-2, 0)
    assert first == [pytest.approx(wanted, rel=1e-4)]
    assert unlabelled.read_on(model, tokens, TEXTS, 1e-2, 0)[0] < first[0]


def test_a_pretrained_base_scores_anew(unlabelled: ModuleType) -> None:
    task = task_of(unlabelled, 5)
    same, _ = unlabelled.pretrained(task, 0.0, 0)
    base = unlabelled.model_of({}, 0).scores(task.items)["pmi"]
    np.testing.assert_array_equal(same.pool, base)
    other, folder = unlabelled.pretrained(task, 1e-3, 0)
    assert np.abs(np.array(other.pool) - base).max() > 1e-2
    model = unlabelled.model_of({"model": folder.name}, 1)
    np.testing.assert_array_equal(model.scores(task.items)["pmi"], other.pool)
