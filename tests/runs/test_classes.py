"""A class that is added in the middle of a run, from the sheets of people to the final model."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.errors import RunError, SettingsError
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Head
from stacksl.runs import classes as growing
from stacksl.runs.adding import prospect
from stacksl.runs.checkpoints import heads, latest

from .conftest import CLASSES, class_items, pair_items

NEW = "night"
Saying = Callable[[str, int], str]


def topic_of(prompt: str) -> str:
    items, answers = class_items(60)
    gold = {item.prompt: CLASSES[answers[item.id]] for item in items}
    return gold[prompt]


def named_or_not(topic: str, n: int) -> str:
    """What a colleague writes who misses a class: every other time by its name."""
    if topic != NEW:
        return topic
    return f"[none]: {' NIGHT ' if n % 2 else 'something else'}"


def begin(folder: Path, **settings: object) -> Run:
    """A run over three topics that has been given only two of them as classes."""
    items, _ = class_items(60)
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows([item.id, item.prompt] for item in items)
    (folder / "classes.txt").write_text("bread\nsea\n", encoding="utf-8")
    plan = {"labeler": "file", "mode": "pool", "batch": 16, "audit": 0, "budget": 44, **settings}
    return run(folder / "data.csv", out=folder / "r", classes=str(folder / "classes.txt"), **plan)


def fill(sheet: Path, saying: Saying = named_or_not) -> Path:
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for n, row in enumerate(rows):
        row["answer"] = saying(topic_of(row["prompt"]), n)
        if row["answer"] == NEW and NEW not in row["options"]:
            row["answer"] = f"[none]: {NEW}"  # a sheet from before the class was added
    copy = sheet.parents[2] / "answers" / sheet.name
    copy.parent.mkdir(exist_ok=True)
    with copy.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return copy


def sheets(made: Run) -> list[Path]:
    return [Path(str(each["file"])) for each in made.status()["sheets"] or []]


def answer(made: Run, saying: Saying = named_or_not) -> None:
    """Every open sheet, once."""
    made.answer(*[fill(sheet, saying) for sheet in sheets(made)])


def to_the_end(made: Run, saying: Saying) -> None:
    for _ in range(30):
        if made.status()["state"] != "waiting":
            break
        answer(made, saying)
    assert made.status()["state"] == "finished"


def straight(topic: str, n: int) -> str:
    return topic


def verify(made: Run) -> None:
    with Ledger.open(made.path / "ledger.db", readonly=True) as ledger:
        ledger.verify(Head(*mark) for mark in heads(made.path / "checkpoints"))


def events(made: Run) -> list[str]:
    with made.ledger as ledger:
        return [row.event for row in ledger.rows()]


def said(made: Run) -> dict[str, int]:
    with made.ledger as ledger:
        return ledger.said()


def test_answers_that_name_the_class_are_learnt_for_nothing(tmp_path: Path) -> None:
    made = begin(tmp_path)
    answer(made)
    before, none = made.status(), said(made)["none"]
    assert none >= 2
    expected = prospect(made.folder, NEW)
    found = made.add_class(NEW)
    after = made.status()
    assert found == expected
    assert found.classes == 3
    assert 0 < found.mapped < none
    assert found.mapped + len(found.again) == none
    assert after["answered"] == before["answered"] + found.mapped
    assert after["spent"] == before["spent"]
    assert said(made)["none"] == none - found.mapped
    with made.ledger as ledger:
        rows = [row for row in ledger.rows() if row.event in ("class_added", "corrected")]
        assert dict(rows[0].payload) == {"name": NEW, "size": 3}
        assert [row.payload["index"] for row in rows[1:]] == [2] * found.mapped
    verify(made)
    made.replay()


def test_a_run_with_a_class_more_ends_and_predicts_it(tmp_path: Path) -> None:
    made = begin(tmp_path)
    answer(made)
    made.add_class("night", description="what is seen in the dark")
    to_the_end(made, straight)
    assert made.model.classes == ("bread", "sea", "night")
    items, answers = class_items(40, seed=5)
    result = made.evaluate(items, answers)
    assert result["unknown_classes"] == 0
    assert result["accuracy"] > 0.8
    assert {row["choice"] for row in made.predict(items)} == set(CLASSES)
    verify(made)
    told = made.replay()
    assert told["labels"] == made.status()["answered"]
