"""The official files run through unchanged; expected values were counted on the raw files."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from stacksl.data import overlap, read
from stacksl.errors import DataError


def test_banking77_gives_its_77_intents(shared_data: Path) -> None:
    path = shared_data / "banking77" / "train.csv"
    train = read(path)
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert train.format == "csv:classes"
    assert train.columns == {"prompt": "text", "label": "category"}
    assert train.classes == tuple(sorted({row["category"] for row in rows}))
    assert len(train.classes) == 77
    assert all(item.candidates is train.classes for item in train.items)
    assert [i.prompt for i in train.items] == [row["text"].strip() for row in rows]
    assert [train.classes[train.answers[i.id]] for i in train.items] == [
        row["category"] for row in rows
    ]
    assert not train.rejected


def test_banking77_test_set_maps_to_the_classes_of_training(shared_data: Path) -> None:
    train = read(shared_data / "banking77" / "train.csv")
    test = read(
        shared_data / "banking77" / "test.csv",
        columns=train.columns,
        classes=train.classes,
        lenient=True,
    )
    assert test.classes is train.classes
    assert (len(test.items), len(test.answers), test.unknown) == (3080, 3080, {})
    assert overlap(train.items, test.items) == 7


@pytest.mark.parametrize(("split", "rows"), [("train_sample1000", 1000), ("dev", 1272)])
def test_medqa_official_files(shared_data: Path, split: str, rows: int) -> None:
    path = shared_data / "medqa" / "US" / "4_options" / f"{split}.jsonl"
    data = read(path)
    raw = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert data.format == "jsonl:options"
    assert data.total == rows == len(raw)
    for item in data.items:
        source = raw[int(item.id.removeprefix("row-")) - 1]
        assert item.candidates[data.answers[item.id]] == source["answer"].strip()
    assert {r.kind for r in data.rejected} <= {"equal options"}
    assert len(data.rejected) <= 1
    assert data.classes is None


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("dev/college_biology_dev.csv", 5),
        ("test/medical_genetics_test.csv", 100),
    ],
)
def test_mmlu_official_files(shared_data: Path, file: str, rows: int) -> None:
    path = shared_data / "mmlu" / file
    data = read(path)
    with path.open(newline="", encoding="utf-8") as stream:
        raw = list(csv.reader(stream))
    assert data.format == "csv:mmlu"
    assert len(data.items) == rows == len(raw)
    assert [data.answers[i.id] for i in data.items] == ["ABCD".index(r[-1]) for r in raw]
    assert [list(i.candidates) for i in data.items] == [[c.strip() for c in r[1:5]] for r in raw]


def test_three_rows_of_openbookqa_are_unusable(shared_data: Path) -> None:
    path = shared_data / "openbookqa" / "train.jsonl.gz"
    data = read(path)
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        raw = [json.loads(line) for line in stream]
    bad = {row["id"] for row in raw if len(set(row["candidates"])) < len(row["candidates"])}
    assert {r.id for r in data.rejected} == bad
    assert len(data.items) == len(raw) - len(bad) == 4954
    assert all(data.answers[r["id"]] == r["answer"] for r in raw if r["id"] not in bad)


@pytest.mark.parametrize("split", ["train", "test"])
def test_items_that_name_their_answers_by_id_are_refused(shared_data: Path, split: str) -> None:
    with pytest.raises(DataError, match="no column looks like the label"):
        read(shared_data / "medquad_faq" / f"{split}.jsonl.gz")
