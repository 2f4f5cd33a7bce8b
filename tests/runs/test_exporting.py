"""Bought labels in the formats of other programs: who, when, price, and nothing private."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.api.labeling import bought_answers, export_rows
from stacksl.cli.entry import call
from stacksl.data import read

from .people_cases import begin, play


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of two people, which no test changes."""
    people = {"annotators": "anna,ben", "price": "0.5", "audit": 5}
    return play(begin(tmp_path_factory.mktemp("people"), **people))


def write_labels(made: Run, path: Path, *, names: bool = False) -> int:
    return export_rows(made, path, lambda: bought_answers(made, names=names)[1]).left_out


def test_who_when_and_price_are_in_every_format(done: Run, tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.jsonl"):
        assert write_labels(done, tmp_path / name) == 0
        assert b"anna" not in (tmp_path / name).read_bytes()
        assert str(tmp_path).encode() not in (tmp_path / name).read_bytes()
    table = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    people = {("annotator 1", 0.5), ("annotator 2", 0.5)}
    assert {(row["labeler"], row["price"]) for row in table} == people
    kept = ("label", "labeler", "time", "price", "purpose")
    wanted = sorted([tuple(row[k] for k in kept) for row in table])
    answers = json.loads((tmp_path / "a.json").read_text())
    assert sorted([tuple(each[k] for k in kept) for each in answers]) == wanted
    assert write_labels(done, tmp_path / "named.jsonl", names=True) == 0
    assert b'"anna"' in (tmp_path / "named.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("encoding", "delimiter", "mark"),
    [
        ("utf-8", ",", b""),
        ("utf-8-sig", ";", b"\xef\xbb\xbf"),
        ("cp1252", ";", b"\xef\xbb\xbf"),
        ("utf-16", "\t", b"\xef\xbb\xbf"),
    ],
)
def test_a_csv_table_has_the_delimiter_and_the_mark_of_its_file(
    encoding: str, delimiter: str, mark: bytes, tmp_path: Path
) -> None:
    """A spreadsheet that reads semicolons would show a table with commas as one column."""
    rows = [
        ("text", "topic"),
        *((f"Caf\u00e9 {n}, {'ab'[n % 2] * 5}", "ab"[n % 2]) for n in range(40)),
    ]
    file, table, new = (tmp_path / name for name in ("a.csv", "table.csv", "new.csv"))
    text = "".join(f'"{text}"{delimiter}{topic}\n' for text, topic in rows)
    file.write_bytes(text.encode(encoding))
    with warnings.catch_warnings(action="ignore"):
        made = run(file, budget=10, audit=0, features="hashing", out=tmp_path / "run")
        export_rows(made, table, lambda: made.table())
        assert call(["predict", str(made.path), str(file), "--out", str(new), "--quiet"]) == 0
    for written in (table.read_bytes(), new.read_bytes()):
        first = delimiter.join(("text", "topic", "label", "confidence", "source"))
        assert written.startswith(mark + first.encode() + b"\n")
        assert "Caf\u00e9 0".encode() in written


def test_an_export_is_read_again_with_the_same_labels(done: Run, tmp_path: Path) -> None:
    write_labels(done, tmp_path / "a.json")
    wanted = {row["item"]: row["label"] for row in done.labels().rows}
    columns = {"id": "item"}
    again = read(tmp_path / "a.json", columns=columns)
    assert {i: again.classes[k] for i, k in again.answers.items()} == wanted  # type: ignore[index]
    more = run(tmp_path / "a.json", budget=10, audit=0, out=tmp_path / "more", columns=columns)
    bought_again = {row["item"]: row["label"] for row in more.labels().rows}
    assert bought_again
    assert all(wanted[item] == label for item, label in bought_again.items())
