"""`stacksl topics`: from a file to a workbook, which a person edits, to the classes of a run."""

from __future__ import annotations

import io
import json
import random
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from openpyxl import Workbook, load_workbook

from stacksl.api import prepare
from stacksl.errors import DataError
from stacksl.models.topics import characteristic, find_topics

from ..tables import write_table

WORDS = {
    "bread": "flour dough oven crust loaf yeast knead bake",
    "sea": "wave salt tide harbour ship anchor sail gull",
    "night": "star moon dark lamp sleep owl dream shadow",
}
WAY = ("--features", "hashing", "--quiet")


def write(path: Path, rows: int = 90) -> Path:
    rng, table = random.Random(0), []
    for n in range(rows):
        topic = list(WORDS)[n % 3]
        words = " ".join(rng.choices(WORDS[topic].split(), k=5))
        table.append((f"T{n}", f"=the {words} of {n}", topic))
    return write_table(path, ("ticket_id", "text", "topic"), table)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "texts.csv")


def test_topics_are_written_edited_and_begin_a_run(stacksl, file) -> None:
    said = stacksl.done("topics", file, "--about", "4", *WAY)
    assert "4 topics of 90 rows, in topics.xlsx" in said.out
    assert f"stacksl run {file} --classes topics.xlsx --labeler file --annotators" in said.out
    book = load_workbook("topics.xlsx")
    assert book.sheetnames == ["Topics", "Rows", "How to edit"]
    header, *lines = book["Topics"].iter_rows(values_only=True)
    assert header[:4] == ("name", "words", "size", "example 1")
    sizes = [line[2] for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 90
    topic = {word: name for name, words in WORDS.items() for word in words.split()}
    rows = list(book["Rows"].iter_rows(min_row=2, values_only=True))
    assert [row[0] for row in rows] == [f"T{n}" for n in range(90)]
    for name, words, size, *examples in lines:
        own = [text for _, text, of in rows if of == name]
        assert len(own) == size
        assert set(examples) <= set(own)
        assert "the" not in words.split(", "), "words of all topics name none"
        assert len({topic[word] for word in words.split(", ") if word in topic}) == 1
    sheet = book["Topics"]
    for row in sheet.iter_rows(min_row=2):
        row[0].value = topic[row[1].value.split(",")[0]]
    book.save("topics.xlsx")
    settings = {"classes": "topics.xlsx", "labeler": "file", "features": "hashing", "budget": 12}
    sources = prepare(str(file), settings=settings).spec.sources
    assert set(sources.classes.names) == set(WORDS)
    assert sorted(map(len, sources.classes.examples)) == [6, 6, 12]
    assert len(sources.excluded) == 24, "no label of an example is bought"
    people = ["--labeler", "file", "--features", "hashing", "--budget", "12", "--dry-run"]
    told = stacksl("run", str(file), "--classes", "topics.xlsx", *people).out
    assert "12 at most, of 66 rows, without 24 rows with the text of an example of a class" in told


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_the_command_after_standard_input_names_a_file_to_save(
    kind: str, stacksl, file, monkeypatch
) -> None:
    payload = file.read_text()
    if kind == "txt":
        payload = "".join(f"{line.split(',')[1]}\n" for line in payload.splitlines()[1:])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(payload.encode())))
    said = stacksl.done("topics", "-", "--about", "3", *WAY).out
    assert f"Then save the rows that you piped in as texts.{kind} and run:\n" in said
    Path(f"texts.{kind}").write_text(payload)
    words = shlex.split(said.splitlines()[-1].replace("NAMES", "anna"))[1:]
    told = stacksl.told(*words, "--features", "hashing", "--budget", "12", "--dry-run")
    assert told["data"]["items"] == 90


def test_a_first_text_is_not_taken_for_a_header(stacksl, file) -> None:
    file.write_text("lost my card\ntop up failed\nwhere is my money\n", encoding="utf-8")
    words = ("topics", file, "--about", "2")
    told = stacksl.refused(*words, *WAY)
    assert "--no-header" in told
    assert "lost" not in told
    assert stacksl.told(*words, "--no-header", *WAY)["rows"] == 3


def test_the_command_that_comes_next_reads_the_file_as_it_was_read(stacksl, file) -> None:
    book = Workbook()
    for name in ("Our tickets", "Notes"):
        sheet = book.create_sheet(name)
        for line in file.read_text().splitlines():
            sheet.append(line.replace("ticket_id", "nr").replace("=", "").split(",")[:2])
    book.save("tickets.xlsx")
    words = ("tickets.xlsx", "--worksheet", "Our tickets", "--id-column", "nr", "--header")
    said = stacksl.done("topics", *words, "--about", "3", *WAY).out
    call = shlex.split(said.splitlines()[-1])
    assert call[2:] == [
        *("tickets.xlsx", "--classes", "topics.xlsx", "--labeler", "file"),
        *("--annotators", "NAMES", "--worksheet", "Our tickets", "--header", "--id-column", "nr"),
    ]
    assert stacksl(*call[1:], "--features", "hashing", "--dry-run").code == 0


def test_topics_as_json_are_the_same_each_time(stacksl, file) -> None:
    told = []
    for out in ("a.xlsx", "b.xlsx"):
        said = stacksl.done("topics", file, "--about", "3", "--out", out, "--json", *WAY)
        told.append(json.loads(said.out))
    assert told[0] == {**told[1], "file": "a.xlsx"}
    assert [each["size"] for each in told[0]["topics"]] == [30, 30, 30]
    assert Path("a.xlsx").read_bytes() == Path("b.xlsx").read_bytes()


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", [], "is empty: items were expected"),
        ("text\n", [], "has a header but no rows"),
        ("text\none\ntwo\n", ["--about", "3"], "3 different texts at least, but the 2 rows have 2"),
        ("text\nOne\none\none \n", ["--about", "2"], "the 3 rows have 1: give more rows, or a sma"),
        ("text\none\ntwo\n", ["--about", "2", "--out", "t.csv"], "'t.csv' is no .xlsx file"),
        ("text\none\ntwo\n", ["--about", "2", "--out", "no/t.xlsx"], "cannot write t.xlsx in no"),
        ("text\none\ntwo\n", ["--about", "2", "--features", "given"], "need features of texts"),
    ],
)
def test_what_cannot_be_grouped_is_refused_in_a_sentence(stacksl, file, text, words, said) -> None:
    file.write_text(text, encoding="utf-8")
    told = stacksl.refused(
        "topics", file, *WAY[2:], *words, *([] if "--features" in words else WAY[:2])
    )
    assert said in told
    assert not list(Path().rglob("*.xlsx"))


def test_an_edited_workbook_is_not_overwritten(stacksl, file) -> None:
    Path("topics.xlsx").write_bytes(b"edited")
    assert "'topics.xlsx' exists already" in stacksl.refused("topics", file, *WAY)
    assert "there is no file 'textz.csv'" in stacksl.refused("topics", "textz.csv", *WAY)
    assert Path("topics.xlsx").read_bytes() == b"edited"


def test_topics_without_words_have_names_of_their_own() -> None:
    vectors = np.eye(4, dtype=np.float32)
    found = find_topics(["1", "2", "3", "4"], vectors, 3)
    assert len({each.name for each in found}) == len(found) == 3
    assert all(each.name.startswith("topic ") for each in found)
    with pytest.raises(DataError, match="5 topics need 5 different texts"):
        find_topics(["1", "2", "3", "4"], vectors, 5)


def test_words_of_scripts_with_marks_are_whole() -> None:
    texts = ["पासवर्ड बदलें", "ฉันทำบัตรหาย", "Zoe\u0308 1a"]
    words = characteristic(texts, np.arange(3))
    assert [set(group) for group in words] == [{"पासवर्ड", "बदलें"}, {"ฉันทำบัตรหาย"}, {"zoe\u0308"}]
