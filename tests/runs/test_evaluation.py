"""Evaluation: no row is dropped in silence, and the numbers are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.errors import DataError
from stacksl.models import evaluation
from stacksl.models.metrics import wilson

from ..tables import write_table
from .conftest import CLASSES, class_items, pair_items

KEYS = {"run", "n", "accuracy", "macro_f1", "interval"}


def write(path: Path, rows: list[list[str]]) -> Path:
    return write_table(path, ("text", "topic"), rows)


def rows_of(count: int, seed: int) -> list[list[str]]:
    items, answers = class_items(count, seed)
    return [[item.prompt, CLASSES[answers[item.id]]] for item in items]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("evaluation")
    data = write(folder / "train.csv", rows_of(60, 0))
    return run(data, budget=15, out=folder / "run")


def test_the_numbers_agree_with_the_predictions(trained, tmp_path) -> None:
    rows = rows_of(40, 5)
    told = trained.evaluate(write(tmp_path / "t.csv", rows))
    said = [row["choice"] for row in trained.predict(tmp_path / "t.csv")]
    right = sum(a == b[1] for a, b in zip(said, rows, strict=True))
    assert told.keys() >= KEYS
    assert (told["n"], told["correct"], told["accuracy"]) == (40, right, right / 40)
    assert told["interval"] == list(wilson(right, 40))
    assert (told["unusable"], told["unknown_classes"]) == (0, 0)


def test_unusable_rows_and_unknown_classes_count_as_wrong(trained, tmp_path) -> None:
    rows = rows_of(40, 5)
    clean = trained.evaluate(write(tmp_path / "t.csv", rows))
    worse = [*rows, ["", "sea"], ["   ", "bread"], ["a word", "weather"], ["a word", "Sea"]]
    why = r"^2 rows of w count as wrong, .* \(row-000043; 'Sea' in row-000044, did you mean 'sea'\?"
    with pytest.warns(UserWarning, match=why):
        told = trained.evaluate(write(tmp_path / "w.csv", worse))
    assert (told["n"], told["unusable"], told["unknown_classes"]) == (44, 2, 2)
    assert told["correct"] == clean["correct"]
    assert told["accuracy"] == clean["correct"] / 44


def test_a_file_with_nothing_usable_is_a_sentence(trained, tmp_path) -> None:
    with pytest.raises(DataError, match="none is left"):
        trained.evaluate(write(tmp_path / "w.csv", [["", "sea"], ["", "bread"]]))


def class_items_of(trained: Run) -> tuple[list[Item], dict[str, int]]:
    """Items with the classes in the order of the model."""
    items, answers = class_items(4, 5)
    names = trained.model.classes or ()
    gold = {name: names.index(CLASSES[index]) for name, index in answers.items()}
    return [Item(item.id, item.prompt, names) for item in items], gold


def test_another_label_set_is_refused_and_never_scored(trained, classes) -> None:
    assert trained.model.classes != CLASSES, "files sort their classes"
    with pytest.raises(DataError, match="should be the 3 classes of the data"):
        trained.evaluate(*class_items(10))
    with pytest.raises(DataError, match="should be the 3 classes of the data"):
        trained.evaluate(*pair_items(10))
    other = replace(trained.read(*class_items_of(trained)), classes=CLASSES)
    with pytest.raises(DataError, match="should be the model's 3 classes in their order"):
        evaluation.evaluate(trained.model, other)
    with pytest.raises(DataError, match="'q' should be the 3 classes of the model"):
        list(trained.model.predict([Item("q", "a text", CLASSES)]))
    assert classes.run.evaluate(*class_items(10))["n"] == 10
