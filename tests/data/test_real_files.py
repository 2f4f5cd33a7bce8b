"""The official files run through unchanged; expected values were counted on the raw files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from stacksl.data import read
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


@pytest.mark.parametrize("split", ["train", "test"])
def test_items_that_name_their_answers_by_id_are_refused(shared_data: Path, split: str) -> None:
    with pytest.raises(DataError, match="no column looks like the label"):
        read(shared_data / "medquad_faq" / f"{split}.jsonl.gz")
