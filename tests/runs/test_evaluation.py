"""Evaluation: no row is dropped in silence, and the numbers are what they say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stacksl import Item
from stacksl.api import Run, prepare, run
from stacksl.api.forecasting import forecast_of_data
from stacksl.cli.app import app as cli
from stacksl.errors import DataError
from stacksl.models import evaluation
from stacksl.models.audit import expected_width
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


def test_a_count_of_one_is_singular(tmp_path: Path) -> None:
    made = run(write(tmp_path / "a.csv", rows_of(60, 0)), budget=4, audit=1, out=tmp_path / "run")
    told = made.evaluate(write(tmp_path / "one.csv", rows_of(1, 5)))["stated"]["sentence"]
    assert re.search(
        r"[01] of 1 new row is right\. [01] of 1 row of the audit of \S+ is right\.", told
    )
    assert "With 1 audited row then and 1 now" in told
    assert expected_width(1, 4).startswith("1 of the 4 labels is kept for an audit")
    few = prepare(write(tmp_path / "few.csv", rows_of(9, 0)), settings={"budget": "all"})
    assert "got 9 items" in forecast_of_data(few.spec)["reason"]
    rows = [[*row, row[1] if n else CLASSES[-1]] for n, row in enumerate(rows_of(60, 0))]
    table = write_table(tmp_path / "column.csv", ("text", "topic", "gpt"), rows)
    given = {"model_labels": "gpt", "columns.label": "topic", "labeler": "oracle", "audit": 2}
    judged = run(table, budget=3, out=tmp_path / "judged", **given)
    page = (judged.path / "report.html").read_text(encoding="utf-8")
    assert "where people answered, the one label bought" in page


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


def test_an_unknown_class_is_told_once(trained, tmp_path) -> None:
    path = write(tmp_path / "w.csv", [*rows_of(40, 5), ["a word", "weather"]])
    told = CliRunner().invoke(cli, ["evaluate", str(trained.path), str(path)]).output
    assert "1 row of w counts as wrong, as the label is none of the classes (row-000041)" in told
    assert (told.count("label"), told.count("candidate")) == (1, 0)


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


def test_a_warning_of_the_command_is_a_line_without_a_place_in_the_code(trained, tmp_path) -> None:
    path = write(tmp_path / "w.csv", [*rows_of(40, 5), ["a word", "weather"]])
    done = CliRunner().invoke(cli, ["evaluate", str(trained.path), str(path), "--quiet"])
    assert "warning: 1 row of w count" in done.stderr
    assert "UserWarning" not in done.stderr
