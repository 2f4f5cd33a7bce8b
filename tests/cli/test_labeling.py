"""Tables of labels: `predict --out`, `export --table` and `--labels`, and what `status` says."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import load_workbook

from stacksl.cli.entry import call
from stacksl.cli.printing import with_labels

from ..tables import write_table

COLUMNS = ["text", "topic", "label", "confidence", "source"]
TOPICS = {"beach": "sand wave shell tide", "forest": "moss fern pine root", "sky": "cloud sun star"}

FORMULA = '=HYPERLINK("http://127.0.0.1","sand") '


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run over 120 sentences, and its data."""
    folder = tmp_path_factory.mktemp("labeling")
    rows = []
    for n in range(120):
        topic, words = list(TOPICS.items())[n % 3]
        start = FORMULA * (n == 5)
        rows.append((f"{start}{words.split()[n % 3]} {words.split()[n // 3 % 3]} {n}", topic))
    write_table(folder / "data.csv", ("text", "topic"), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ("run", "data.csv", "--budget", "30", "--audit", "10", "--price", "0.5", "--quiet")
        assert call([*words, "--out", "runs/first"]) == 0
        yield folder


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def new(folder: Path) -> Path:
    """A file of two sentences and one row that cannot be read."""
    (folder / "new.csv").write_text(
        'n,question,color\n1,"sand, and =1+1",red\n2,,blue\n3,wave sand,\n', encoding="utf-8"
    )
    return folder / "new.csv"


def test_a_line_that_is_no_object_comes_back_in_a_column_of_its_own(stacksl, folder) -> None:
    lines = ['{"text": "wave sand", "n": 1}', '{"text": "a torn line', "[1, 2]", '{"text": "red"}']
    (folder / "torn.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("torn.csv", "torn.json"):
        said = stacksl.done("predict", "runs/first", "torn.jsonl", "--out", name)
        assert "row 2 has no prediction: bad JSON" in said.err
    written = table((folder / "torn.csv").read_text())
    assert [row["unreadable"] for row in written] == ["", lines[1], lines[2], ""]
    assert [bool(row["label"]) for row in written] == [True, False, False, True]
    rows = json.loads((folder / "torn.json").read_text())
    assert [row.get("unreadable") for row in rows] == [None, lines[1], [1, 2], None]
    (folder / "sound.jsonl").write_text(f"{lines[0]}\n{lines[3]}\n")
    stacksl.done("predict", "runs/first", "sound.jsonl", "--out", "sound.csv")
    assert "unreadable" not in (folder / "sound.csv").read_text()


def test_every_kind_of_file_has_the_same_rows(stacksl, folder, new) -> None:
    for kind in ("csv", "tsv", "jsonl", "json", "xlsx", "parquet"):
        assert (
            stacksl("predict", "runs/first", "new.csv", "--out", f"to.{kind}", "--quiet").code == 0
        )
    rows = table((folder / "to.csv").read_text(encoding="utf-8"))
    assert list(rows[0]) == ["n", "question", "color", "label", "confidence", "source"]
    assert [row["question"] for row in rows] == ["sand, and =1+1", "", "wave sand"]
    assert [row["source"] for row in rows] == ["model", "", "model"]
    assert rows[1]["label"] == rows[1]["confidence"] == ""
    assert 0.0 < float(rows[0]["confidence"]) <= 1.0
    labels = [row["label"] or None for row in rows]
    assert [r["label"] for r in json.loads((folder / "to.json").read_text())] == labels
    lines = (folder / "to.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == labels
    assert pq.read_table(folder / "to.parquet").column("label").to_pylist() == labels
    sheet = load_workbook(folder / "to.xlsx").worksheets[0]
    assert [cell.value for cell in sheet["D"]][1:] == labels
    assert sheet["B2"].data_type == "s"
    assert (folder / "to.tsv").read_text().count("\t") == 5 * 4


def test_only_rows_with_a_label_are_said_to_have_one(stacksl, folder, new) -> None:
    out = stacksl("predict", "runs/first", "new.csv", "--out", "said.csv", "--quiet").out
    assert out == "3 rows in said.csv, 1 of them without a label: 1 unusable\n"
    parts = stacksl("predict", "runs/first", "new*.csv", "--out", "parts", "--quiet").out
    assert parts == "new.csv  3 rows, 1 of them without a label: 1 unusable\n"
    assert with_labels(4, {"to a person": 2, "unusable": 0}, " in a.csv") == (
        "4 rows in a.csv, 2 of them without a label: 2 to a person"
    )


def test_a_named_column_has_the_ids(stacksl, folder, new) -> None:
    said = stacksl("predict", "runs/first", "new.csv", "--id-column", "n", "--quiet").out
    assert [json.loads(line)["id"] for line in said.splitlines()] == ["1", "3"]
    assert stacksl("predict", "runs/first", "new.csv", "--id-column", "nr").code == 2


def test_a_text_like_a_formula_is_a_text_in_a_workbook(stacksl, folder) -> None:
    texts = [
        "=1+1",
        FORMULA.strip(),
        "+1",
        "@sand",
        "-2",
        "_x0041_ _x000D_ _x005F_",
        "a\nb",
        "#REF!",
    ]
    (folder / "odd.json").write_text(json.dumps([{"=text": text} for text in texts]))
    column = ("--prompt-column", "=text")
    assert stacksl("predict", "runs/first", "odd.json", *column, "--out", "odd.xlsx").code == 0
    said = stacksl.done("export", "runs/first", "--table", "own.xlsx")
    assert re.search(r"^rows written (\S+) of \1$", said.err, re.MULTILINE)
    for name in ("odd.xlsx", "own.xlsx"):
        cells = [cell for row in load_workbook(folder / name).worksheets[0] for cell in row]
        assert "f" not in {cell.data_type for cell in cells}, "no formula"
    said = stacksl("predict", "runs/first", "odd.xlsx", *column, "--out", "again.json")
    assert said.code == 0, said.err
    assert [row["=text"] for row in json.loads((folder / "again.json").read_text())] == texts
    own = [row["text"] for row in table((folder / "data.csv").read_text())]
    assert stacksl("predict", "runs/first", "own.xlsx", "--out", "again.json").code == 0
    found = [row["text"] for row in json.loads((folder / "again.json").read_text())]
    assert sorted(found) == sorted(own)
    assert sum(text.startswith(FORMULA) for text in found) == 1


def test_numbers_that_a_format_does_not_have_are_written_so_that_others_read_them(
    stacksl, folder
) -> None:
    def forbidden(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    wide = pa.array([12345678901234567, 2, 3], pa.int64())
    columns = {"text": ["sand", "moss", "star"], "x": [float("nan"), float("inf"), 0.5], "n": wide}
    pq.write_table(pa.table(columns), folder / "numbers.parquet")
    for kind in ("json", "jsonl", "xlsx"):
        words = ("--prompt-column", "text", "--out", f"numbers.{kind}")
        done = stacksl("predict", "runs/first", "numbers.parquet", *words)
        assert done.code == 0, done.err
    rows = json.loads((folder / "numbers.json").read_text(), parse_constant=forbidden)
    assert [row["x"] for row in rows] == [None, None, 0.5]
    lines = (folder / "numbers.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=forbidden)["x"] for line in lines] == [None, None, 0.5]
    _, *sheet = load_workbook(folder / "numbers.xlsx").worksheets[0].values
    assert [row[1:3] for row in sheet] == [
        (None, "12345678901234567"), ("inf", 2), (0.5, 3)
    ]  # fmt: skip


def test_values_that_parquet_does_not_have_are_written_as_text(stacksl, folder) -> None:
    rows = [{"text": "sand", "n": 2**63, "meta": {}}, {"text": "moss", "n": 1, "meta": {}}]
    (folder / "wide.json").write_text(json.dumps(rows))
    words = ("--prompt-column", "text", "--out", "wide.parquet")
    done = stacksl("predict", "runs/first", "wide.json", *words)
    assert done.code == 0, done.err
    table = pq.read_table(folder / "wide.parquet").to_pydict()
    assert table["n"] == [str(2**63), "1"]
    assert table["meta"] == ["{}", "{}"]


def test_a_workbook_takes_characters_that_xml_has_not(stacksl, folder) -> None:
    (folder / "odd.json").write_text(json.dumps([{"text": "a\uffff\ufffe\x07 sand"}]))
    said = stacksl("predict", "runs/first", "odd.json", "--out", "odd.xlsx")
    assert said.code == 0, said.err
    assert (
        load_workbook(folder / "odd.xlsx").worksheets[0]["A2"].value == "a\ufffd\ufffd\ufffd sand"
    )


def test_from_stdin_to_stdout(folder, new, capfdbinary, monkeypatch) -> None:
    for lines, sources in (
        (new.read_bytes(), ["model", "", "model"]),
        (b"sand, and more\n\nwave\n", ["model", "model"]),  # plain lines
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        assert call(["predict", "runs/first", "-", "--out", "-", "--quiet"]) == 0
        rows = table(capfdbinary.readouterr().out.decode())
        assert [row["source"] for row in rows] == sources
    assert list(rows[0]) == ["text", "label", "confidence", "source"]
    assert [row["text"] for row in rows] == ["sand, and more", "wave"]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (b"", "standard input is empty"),
        (b" \n\n", "standard input is empty: items were expected"),
        (b"text\n", "standard input has a header but no rows"),
    ],
)
def test_standard_input_is_named_as_such(folder, capsys, monkeypatch, lines, sentence) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert call(["predict", "runs/first", "-", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith(f"stacksl: {sentence}")


@pytest.mark.parametrize("said", [True, False])
def test_a_first_row_in_doubt_is_asked_about_on_a_terminal(
    stacksl, folder, monkeypatch, said
) -> None:
    (folder / "rows.csv").write_text("N-1,sand\nN-2,wave\nN-3,dune\n")
    words = ("predict", "runs/first", "rows.csv", "--out", "to.csv", "--quiet")
    column = ("--prompt-column", "column 2")
    elsewhere = stacksl.refused(*words, *column)
    assert "--no-header" in elsewhere
    assert "sand" not in elsewhere
    monkeypatch.setattr("stacksl.cli.verbs.run.is_interactive", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: said)
    asked = stacksl(*words, *column)
    assert asked.code == (0 if said else 2), "no column of a header is called so"
    assert said or "there is no column 'column 2'" in asked.err
    assert not said or len(table((folder / "to.csv").read_text())) == 3


def test_columns_of_the_same_name_are_kept(stacksl, folder) -> None:
    (folder / "labeled.csv").write_text("text,label\nsand,unsure\nwave,\n")
    stacksl("predict", "runs/first", "labeled.csv", "--out", "more.csv", "--quiet")
    rows = table((folder / "more.csv").read_text())
    assert [row["label"] for row in rows] == ["unsure", ""]
    assert all(row["predicted_label"] and row["predicted_source"] == "model" for row in rows)
    (folder / "more.csv").write_text((folder / "more.csv").read_text().replace("model", "mine"))
    stacksl("predict", "runs/first", "more.csv", "--out", "twice.csv", "--quiet")
    header, *_ = (folder / "twice.csv").read_text().splitlines()
    assert len({*header.split(",")}) == len(header.split(",")) == 8, "no name twice"
    rows = table((folder / "twice.csv").read_text())
    assert {row["predicted_source"] for row in rows} == {"mine"}, "the column of the file"
    assert {row["predicted_predicted_source"] for row in rows} == {"model"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("new.csv", "--out", "a.doc"), "one of .csv, .tsv"),
        (("new.csv", "--out", "nowhere/a.csv"), "give another --out"),
    ],
)
def test_what_cannot_be_labeled(stacksl, new, words, expected) -> None:
    said = stacksl("predict", "runs/first", *words, "--quiet")
    assert said.code == 2
    assert expected in said.err


def test_the_own_items_with_the_bought_answers(stacksl, folder) -> None:
    said = stacksl.done("export", "runs/first", "--table", "own.csv")
    first, right = said.out.splitlines()
    assert first.split(None, 1) == ["Table", "own.csv, 120 rows with labels"]
    words = " ".join(right.split())
    assert words.startswith("Right in the table Of the 120 labels in the exported table (30 from")
    told = json.loads(stacksl.done("export", "runs/first", "--table", "own.csv", "--json").out)
    assert words.endswith(told["table"]["right"]["sentence"])
    assert stacksl.done("status", "runs/first").out.count(right.split(None, 4)[4]) == 1
    rows = table((folder / "own.csv").read_text())
    assert list(rows[0]) == COLUMNS
    human = [row for row in rows if row["source"] == "human"]
    assert (len(rows), len(human)) == (120, 30)
    assert all(row["label"] == row["topic"] for row in human)
    assert {row["source"] for row in rows} == {"human", "model"}


def test_bought_labels_for_other_programs(stacksl, folder) -> None:
    said = stacksl.done("export", "runs/first", "--labels", "labels.json")
    assert len(json.loads((folder / "labels.json").read_text())) == 30
    told = stacksl("run", "labels.json", "--dry-run").out
    assert "answers: 30 of 30" in told
    said = stacksl.refused("export", "runs/first", "--labels", "runs")
    assert "expected a file whose name ends in one of" in said


def test_the_file_that_was_read_is_not_replaced(stacksl, new, folder) -> None:
    """Neither by the labels of its rows, nor by the table of a run that began with it."""
    for words in (
        ("predict", "runs/first", "new.csv", "--out", "./new.csv"),
        ("predict", "runs/first", "new.csv", "--out", "data.csv"),
        ("export", "runs/first", "--table", "data.csv"),
        ("export", "runs/first", "--labels", "data.csv"),
    ):
        before = (folder / words[-1]).read_bytes()
        assert "expected a new file for the labels" in stacksl.refused(*words)
        assert (folder / words[-1]).read_bytes() == before


def test_nothing_to_write_is_one_sentence(stacksl, folder) -> None:
    assert "give --table FILE" in stacksl.refused("export", "runs/first")
