"""JSONL and JSON: native, MedQA, options of other names, classes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stacksl.data import read, rows_of, write_table
from stacksl.errors import DataError

Make = Callable[[str, str | bytes], Path]


def lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def native(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"i{n}", "prompt": f"p{n}", "candidates": [f"a{n}", f"b{n}"], "answer": n % 2}
        for n in range(count)
    ]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x", "x.txt", "x.json"])
def test_native(make: Make, name: str) -> None:
    listed = name.endswith("json")
    raw = json.dumps(native(3), indent=1).encode() if listed else lines(native(3)).encode()
    data = read(make(name, gzip.compress(raw) if name.endswith("gz") else raw))
    assert data.format == ("json:options" if listed else "jsonl:options")
    assert [(i.id, i.prompt, i.candidates) for i in data.items] == [
        (f"i{n}", f"p{n}", (f"a{n}", f"b{n}")) for n in range(3)
    ]
    assert data.answers == {"i0": 0, "i1": 1, "i2": 0}
    assert data.classes is None
    assert data.columns == {r: r for r in ("prompt", "candidates", "id")} | {"label": "answer"}


def test_the_number_of_options_may_differ_and_answers_may_be_missing(make: Make) -> None:
    rows = [
        {"prompt": "p", "candidates": ["a", "b"]},
        {"prompt": "q", "candidates": ["a", "b", "c"], "answer": None},
        {"prompt": "r", "candidates": ["c", "d", "e", "f"], "answer": "f"},
    ]
    data = read(make("x.jsonl", lines(rows)))
    assert [len(i.candidates) for i in data.items] == [2, 3, 4]
    assert data.answers == {"row-000003": 3}
    assert data.unlabeled == 2


def test_answers_and_ids_may_begin_late(make: Make) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": f"p{n}", "candidates": ["a", "b", str(n)]} for n in range(1500)
    ]
    rows.append({"id": "late", "prompt": "q", "candidates": ["a", "b"], "answer": 1})
    data = read(make("x.jsonl", lines(rows)))
    assert data.answers == {"late": 1}
    assert data.unlabeled == 1500


@pytest.mark.parametrize("answer", [lambda n: f"b{n}", lambda n: 1, lambda n: "B"])
def test_a_column_called_label_has_the_answer_if_it_names_options(
    make: Make, answer: Callable[[int], Any]
) -> None:
    rows = [row | {"label": answer(n)} for n, row in enumerate(native(3))]
    for row in rows:
        del row["answer"]
    data = read(make("x.jsonl", lines(rows)))
    assert (data.columns["label"], data.answers) == ("label", {"i0": 1, "i1": 1, "i2": 1})
    rows[2]["label"] = "easy"  # of the item, and of no option
    other = read(make("x.jsonl", lines(rows)))
    assert (other.columns.get("label"), other.answers, other.unused) == (None, {}, ("label",))


def test_numbers_become_text_and_answers_as_text_are_compared_first(make: Make) -> None:
    rows = [
        {"id": 7, "prompt": 12, "candidates": [1, 2, 0], "answer": "0"},
        {"id": 8, "prompt": "q", "candidates": [1, 2, 0], "answer": 0},
        {"id": 9, "prompt": "r", "candidates": ["x", "y"], "answer": "1"},
    ]
    data = read(make("x.jsonl", lines(rows)))
    assert [i.id for i in data.items] == ["7", "8", "9"]
    assert data.items[0].candidates == ("1", "2", "0")
    assert data.items[0].prompt == "12"
    assert data.answers == {"7": 2, "8": 0, "9": 1}


@pytest.mark.parametrize("letters", ["ABCD", "ABCDE"])
def test_medqa_with_four_and_five_options(make: Make, letters: str) -> None:
    row = {
        "question": "q",
        "options": {letter: f"option {letter}" for letter in letters},
        "answer": "option C",
        "answer_idx": "C",
        "meta_info": "step1",
    }
    data = read(make("x.jsonl", lines([row, {**row, "answer_idx": letters[-1]}])))
    assert data.format == "jsonl:options"
    assert {len(i.candidates) for i in data.items} == {len(letters)}
    assert list(data.answers.values()) == [2, len(letters) - 1]


def test_choices_with_texts_and_keys(make: Make) -> None:
    rows = [
        {
            "id": "a",
            "question_stem": "q",
            "choices": {"text": ["x", "y"], "label": ["1", "2"]},
            "answerKey": "2",
        },
        {
            "id": "b",
            "question_stem": "r",
            "choices": {"text": ["u", "v"], "label": ["A", "B"]},
            "answerKey": "A",
        },
    ]
    data = read(make("x.jsonl", lines(rows)))
    assert data.format == "jsonl:options"
    assert data.answers == {"a": 1, "b": 0}


def test_the_same_options_everywhere_are_classes(make: Make) -> None:
    rows = [{"prompt": f"p{n}", "candidates": ["no", "yes"], "answer": n % 2} for n in range(4)]
    data = read(make("x.jsonl", lines(rows)))
    assert data.classes == ("no", "yes")
    assert all(i.candidates is data.classes for i in data.items)


def test_options_in_another_order_are_mapped_to_known_classes(make: Make) -> None:
    rows = [
        {"prompt": "p", "candidates": ["yes", "no"], "answer": 0},
        {"prompt": "q", "candidates": ["no", "yes"], "answer": 0},
    ]
    data = read(make("x.jsonl", lines(rows)), classes=("maybe", "no", "yes"))
    assert [data.answers[i.id] for i in data.items] == [2, 1]
    assert {i.candidates for i in data.items} == {("maybe", "no", "yes")}


def test_labels_of_mixed_types_are_texts(make: Make) -> None:
    rows = [{"text": f"t{n}", "label": n % 2 if n < 4 else str(n % 2)} for n in range(8)]
    data = read(make("x.jsonl", lines(rows)))
    assert (data.format, data.classes) == ("jsonl:classes", ("0", "1"))


def test_lists_of_labels_are_refused(make: Make) -> None:
    rows = [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": ["x"]}]
    with pytest.raises(DataError, match="multi-label"):
        read(make("x.jsonl", lines(rows)))


def test_format_and_columns_override(make: Make) -> None:
    rows = [{"q": "a", "prompt": "b", "opts": ["x", "y"], "right": 1}] * 2
    path = make("x.data", lines(rows))
    data = read(
        path,
        format="jsonl:options",
        columns={"prompt": "q", "candidates": "opts", "label": "right"},
    )
    assert [i.prompt for i in data.items] == ["a", "a"]
    assert list(data.answers.values()) == [1, 1]
    with pytest.raises(DataError, match="no column 'candidates'"):
        read(path, format="options")


def test_parquet_gives_the_same_items_as_jsonl(make: Make, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = native(3000)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    data = read(tmp_path / "x.parquet")
    same = read(make("x.jsonl", lines(rows)))
    assert data.format == "parquet:options"
    assert (data.items, data.answers) == (same.items, same.answers)


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    kinds = {"n": pa.int8(), "f": pa.float32(), "kind": pa.dictionary(pa.int32(), pa.string())}
    kinds |= {"price": pa.decimal128(10, 2), "at": pa.timestamp("ms", "UTC"), "none": pa.int16()}
    given = {"n": [1, None], "f": [0.1, 2.0], "kind": ["a", "b"], "price": [Decimal("1.10"), None]}
    given |= {"at": [datetime(2026, 1, 2, tzinfo=UTC)] * 2, "none": [None, None]}
    texts = {"text": pa.array(["one", "two"])}
    table = pa.table(texts | {name: pa.array(given[name], kinds[name]) for name in kinds})
    path, out = tmp_path / "x.parquet", tmp_path / "out.parquet"
    pq.write_table(table, path)
    columns, rows = rows_of(path, read(path, classes=("a", "b")))
    write_table(out, columns, [values for values, _ in rows])
    assert pq.read_table(out).equals(table)
    write_table(out, columns, [{**values, "n": 1000} for values, _ in rows])
    assert pq.read_table(out)["n"].to_pylist() == [1000, 1000], "of another file"
