"""Sheets as workbooks: what goes out, and what programs and people make of it."""

from __future__ import annotations

import contextlib
import datetime
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

from stacksl.data import Classes
from stacksl.data import workbooks as reading
from stacksl.errors import DataError
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Sheet, SheetRow, new_key
from stacksl.labelers.sheets.writing import write_sheet

QUESTIONS = [
    ("Which vessel?\nThe first line; \"quoted\", and 'so'", ("vein", "artery", "node")),
    ("=cmd|'/c calc'!A0", ("aorta", "=vena", "B")),
    ("מה השעה? 😀 _x0041_ \0\ufffe", ("שלוש", "ארבע")),
    ("007", ("007", "3-4", "TRUE")),
]


class Book:
    """A workbook that was given out, and a colleague who changes and saves it."""

    def __init__(self, folder: Path, questions: list[tuple[str, tuple[str, ...]]]) -> None:
        rng = np.random.default_rng(0)
        keys: list[str] = []
        for number in range(len(questions)):
            keys.append(new_key(number, rng, keys))
        self.rows = [
            SheetRow(key, *question) for key, question in zip(keys, questions, strict=True)
        ]
        self.path = folder / "0001.xlsx"
        write_sheet(self.path, self.rows)

    def saved(self, change: Callable[[Any], None]) -> Path:
        """The file after `change` was made to its first sheet."""
        book = openpyxl.load_workbook(self.path)
        change(book.worksheets[0])
        path = self.path.with_name("back.xlsx")
        book.save(path)
        return path

    def answered(self, *answers: object) -> Path:
        def fill(sheet: Any) -> None:
            for row, answer in enumerate(answers, 2):
                sheet.cell(row, 4).value = answer

        return self.saved(fill)

    def read(self, path: Path) -> Sheet:
        return read_sheet(path, {r.key: r for r in self.rows})


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path, QUESTIONS)


def positions(sheet: Sheet) -> list[int | None]:
    assert sheet.faults == ()
    return [reply.position for reply in sheet.replies]


# What goes out -----------------------------------------------------------------------------------


def test_cells_are_texts_that_no_program_runs_or_rewrites(book: Book) -> None:
    sheet = openpyxl.load_workbook(book.path)["Questions"]
    prompts = [sheet.cell(row, 2) for row in range(2, 6)]
    assert [cell.data_type for cell in prompts] == ["s"] * 4
    assert all(cell.number_format == "@" and cell.quotePrefix for cell in prompts)
    assert prompts[1].value == "=cmd|'/c calc'!A0", "whole, without an apostrophe"
    assert "␀" in str(prompts[2].value)
    assert sheet.cell(2, 4).number_format == "@", "what is typed becomes no number and no date"


def test_rows_can_be_chosen_filtered_and_sorted_but_keys_not_typed_over(book: Book) -> None:
    whole = openpyxl.load_workbook(book.path)
    sheet = whole["Questions"]
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:E5")
    assert not sheet.protection.sheet, "a protected sheet could not be sorted"
    keys, *choices = sheet.data_validations.dataValidation
    assert (keys.type, keys.formula1, str(keys.sqref)) == ("custom", "FALSE", "A2:A5")
    assert keys.showErrorMessage
    assert not any(choice.showErrorMessage for choice in choices), "other words may be typed"
    offered = {str(c.sqref): list_of(whole, c.formula1) for c in choices}
    assert offered["D2"] == ["A) vein", "B) artery", "C) node", "none", "ambiguous", "broken"]
    assert offered["D3"][2:] == ["C) B", "[none]", "[ambiguous]", "[broken]"]
    assert whole["Lists"].sheet_state == "hidden"
    assert whole["How to answer"]["A1"].value == "How to answer"


def list_of(book: Any, place: str) -> list[str]:
    name, _, cells = place.partition("!")
    return [cell.value for (cell,) in book[name.strip("'")][cells.replace("$", "")]]


def test_every_choice_offered_is_the_option_it_names(tmp_path: Path) -> None:
    questions = [*QUESTIONS, ("?", tuple(f"class {n}" for n in range(300)))]
    questions += [("?", ("none", "2", "A")), ("?", ("3", "4", "1")), ("?", ("b", "a"))]
    book = Book(tmp_path, questions)
    whole = openpyxl.load_workbook(book.path)
    for choice in whole["Questions"].data_validations.dataValidation[1:]:
        row = int(str(choice.sqref)[1:]) - 2
        options = list_of(whole, choice.formula1)
        for position in (0, len(options) - 4):
            answers = [None] * len(questions)
            answers[row] = options[position]
            assert positions(book.read(book.answered(*answers))) == [position]


def test_classes_have_a_sheet_and_the_list_is_longer_than_a_validation_may_hold(tmp_path) -> None:
    names = tuple(f"a class with a long name, number {n}" for n in range(150))
    classes = Classes(names, ("what it means", *[""] * 149))
    write_sheet(tmp_path / "a.xlsx", [SheetRow("k2k2-h", "?", names)], classes=classes)
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    assert "in the sheet Classes" in book["Questions"]["C2"].value
    table = list(book["Classes"].iter_rows(values_only=True))
    assert table[:2] == [("number", "name", "description"), ("1", names[0], "what it means")]
    assert len(table) == 151
    assert [file.name for file in tmp_path.iterdir()] == ["a.xlsx"]


# What comes back ---------------------------------------------------------------------------------


def test_answers_as_programs_keep_them(book: Book) -> None:
    assert positions(book.read(book.answered("A) vein", "3", "ארבע", "007"))) == [0, 2, 1, 0]
    assert positions(book.read(book.answered(2, 2.0, 1, 7.0))) == [1, 1, 0, 0], "numbers"
    assert positions(book.read(book.answered("b", None, None, True))) == [1, 2], "a truth value"


def test_rows_may_be_sorted_deleted_and_filtered_and_the_sheet_renamed(book: Book) -> None:
    def change(sheet: Any) -> None:
        sheet.cell(2, 4).value, sheet.cell(4, 4).value = "C", "none: noon"
        rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]
        for number, row in enumerate(reversed(rows), 2):
            for column, value in enumerate(row, 1):
                sheet.cell(number, column).value = value
                sheet.cell(number, column).data_type = "s"
        sheet.delete_rows(2)
        sheet.row_dimensions[3].hidden = True
        sheet.title = "Antworten"
        sheet["F1"], sheet["F3"] = "my thoughts", "hard!"
        sheet.parent.move_sheet(sheet, 2)

    noon, node = book.read(book.saved(change)).replies
    assert (noon.kind, noon.text, node.position) == ("none", "noon", 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("=A2", "that the spreadsheet made of what was typed: write the option's letter A to C"),
        (datetime.datetime(2026, 3, 4), "is a date, a number"),
        ("#N/A", "or an error that the spreadsheet made"),
        (1e300, "is a date, a number"),
    ],
)
def test_a_cell_that_is_no_answer_is_a_sentence(book: Book, answer: object, says: str) -> None:
    (fault,) = book.read(book.answered(answer)).faults
    assert (fault.row, fault.column) == (2, "answer")
    assert says in fault.sentence


def test_merged_cells_answer_their_first_row_and_a_row_without_a_key_is_a_sentence(book) -> None:
    def change(sheet: Any) -> None:
        sheet["D2"], sheet["D4"], sheet["D5"] = "A", "A", "A"
        sheet.merge_cells("D2:D3")
        sheet.merge_cells("A4:A5")

    read = book.read(book.saved(change))
    assert [reply.row for reply in read.replies] == [2, 4]
    assert [(f.row, f.column) for f in read.faults] == [(5, "key")]
    assert "the cell holds no key" in read.faults[0].sentence
    assert read.empty == 1


def test_a_copied_sheet_is_a_sentence(book: Book) -> None:
    path = book.saved(lambda sheet: sheet.parent.copy_worksheet(sheet))
    with pytest.raises(DataError, match=r"has 2 sheets with the columns .* delete the copies"):
        book.read(path)
    path = book.saved(lambda sheet: sheet.parent.remove(sheet))
    with pytest.raises(DataError, match=r"has 0 sheets .* take the file that was given out"):
        book.read(path)


def test_empty_rows_without_end_are_a_sentence(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_ROWS", 50)
    below = book.saved(lambda sheet: sheet.cell(60, 7, ""))
    with pytest.raises(DataError, match=r"more than 50 rows.*below the last one that is filled"):
        book.read(below)
    far = book.path.with_name("far.xlsx")
    changed(book.path, far, lambda part: part.replace(b'<row r="5"', b'<row r="99999999999"'))
    with pytest.raises(DataError, match="more than 50 rows"):
        book.read(far)


def test_a_bomb_is_not_unpacked(book: Book, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"")
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as part:
            for _ in range(201):
                part.write(b" " * 1_000_000)
    with pytest.raises(
        DataError, match="unpacks to 201 MB in 2 parts, at most 200 MB.*: save the sheet"
    ):
        book.read(bomb)


def changed(path: Path, to: Path, change: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)))


def test_damage_is_a_sentence(book: Book, tmp_path: Path) -> None:
    path, whole = tmp_path / "damaged.xlsx", book.path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 40):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(DataError):  # no other error may leave
            book.read(path)
    for length in (4, 100, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="is a damaged workbook"):
            book.read(path)


def test_a_workbook_of_another_kind_is_named(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "a.ods"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
    with pytest.raises(
        DataError, match=r"no \.xlsx workbook: if it is \.zip, unpack it .*save it as \.xlsx"
    ):
        book.read(path)


def test_carriage_returns_and_inline_strings_are_read(book: Book) -> None:
    """Excel writes a carriage return as _x000D_; other programs write texts into the cells."""
    path = book.path.with_name("other.xlsx")
    source = book.answered("vein_x000D_")
    inline = b'<c r="D3" t="inlineStr"><is><t xml:space="preserve"> =vena </t></is></c>'

    changed(source, path, lambda part: re.sub(rb'<c r="D3"[^>]*?(/>|></c>)', inline, part))
    assert positions(book.read(path)) == [0, 1]
