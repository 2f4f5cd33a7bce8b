"""A sheet that comes back gives its answers whatever a program did to it, or names the cell."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stacksl.errors import DataError
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Reply, SheetRow, new_key
from stacksl.labelers.sheets.writing import write_sheet

if TYPE_CHECKING:
    from tests.sheets.conftest import Desk

GIVEN = {2: "B", 3: "'=vena", 4: "none: חמש"}


def replies(desk: Desk) -> tuple[Reply, ...]:
    a, b, c = desk.keys
    return (
        Reply(2, a, "label", 1, None, None),
        Reply(3, b, "label", 1, None, None),
        Reply(4, c, "none", None, "חמש", None),
    )


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("quoting", "end"),
    [
        (csv.QUOTE_MINIMAL, "\r\n"),
        (csv.QUOTE_ALL, "\r\n"),
        (csv.QUOTE_MINIMAL, "\n"),
        (csv.QUOTE_ALL, "\r"),
    ],
)
def test_every_way_a_program_saves_it(
    desk: Desk, separator: str, encoding: str, quoting: int, end: str
) -> None:
    table = desk.filled(GIVEN)
    path = desk.send(table, separator=separator, encoding=encoding, quoting=quoting, end=end)
    sheet = read_sheet(path, desk.known)
    assert sheet.replies == replies(desk)
    assert not sheet.faults
    assert sheet.empty == 0


def test_rows_and_columns_in_any_order(desk: Desk) -> None:
    header, *rows = desk.filled(GIVEN)
    rows = [[*row[:4], "'-5?"] for row in reversed(rows)]
    table = [[*header, "mine"], *([*row, "x"] for row in rows)]
    table = [[row[n] for n in (5, 4, 3, 0)] for row in table]
    table[0] = ["mine", " Note", "ANSWER ", "\ufeffKey"]
    sheet = read_sheet(desk.send(table, encoding="utf-8"), desk.known)
    assert [r.key for r in sheet.replies] == desk.keys[::-1]
    assert [(r.row, r.note) for r in sheet.replies] == [(2, "-5?"), (3, "-5?"), (4, "-5?")]
    assert {(r.key, r.kind, r.position) for r in sheet.replies} == {
        (r.key, r.kind, r.position) for r in replies(desk)
    }


def test_empty_rows_and_answers_and_a_missing_last_line_break(desk: Desk) -> None:
    table = desk.filled({2: " \t", 4: "A"})
    table.insert(1, [""] * 5)
    table.insert(3, [])
    path = desk.send([*table, [], ["", "", "", "", ""]])
    path.write_bytes(path.read_bytes().rstrip(b"\r\n,"))
    assert path.read_bytes().endswith(b",A")
    sheet = read_sheet(path, desk.known)
    assert [(r.row, r.key, r.position) for r in sheet.replies] == [(6, desk.keys[2], 0)]
    assert sheet.empty == 2


def test_rows_count_as_the_spreadsheet_shows_them(desk: Desk) -> None:
    """Line breaks in the first prompt do not move the third row."""
    (fault,) = read_sheet(desk.send(desk.filled({4: "Z"})), desk.known).faults
    assert fault.line("a.csv") == (
        "a.csv row 4, column answer: the answer 'Z' is not understood: write a letter A to B, "
        "the text of an option, none, ambiguous or broken"
    )


def test_a_row_twice_with_one_answer_is_one_reply(desk: Desk) -> None:
    table = desk.filled({2: "B"})
    again = [*table[1][:3], "2", "sure"]
    sheet = read_sheet(desk.send([*table, again, table[1]]), desk.known)
    assert [(r.key, r.position, r.note) for r in sheet.replies] == [(desk.keys[0], 1, "sure")]
    assert not sheet.faults
    assert sheet.empty == 2


def test_two_answers_for_one_key_are_faults_of_both_rows(desk: Desk) -> None:
    table = desk.filled({2: "B", 3: "A"})
    again = [*table[1][:3], "C", ""]
    sheet = read_sheet(desk.send([*table, again]), desk.known)
    assert [r.key for r in sheet.replies] == [desk.keys[1]]
    assert [(f.row, f.column) for f in sheet.faults] == [(2, "answer"), (5, "answer")]
    assert all(
        f"{desk.keys[0]} has different answers in the rows 2, 5" in f.sentence for f in sheet.faults
    )


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "the cell holds no key"),
        ("vessel one", "the cell holds no key"),
        ("{mistyped}", "was not given out by this run: copy it again"),
        ("{foreign}", "was not given out by this run"),
    ],
)
def test_a_key_that_is_not_ours_is_a_fault_and_never_another_rows(
    desk: Desk, key: str, says: str
) -> None:
    own = desk.keys[0]
    body = "a" + own[1:] if own[0] != "a" else "c" + own[1:]
    key = key.format(mistyped=body, foreign=new_key(0, np.random.default_rng(5)))
    table = desk.filled({2: "B"})
    table[1][0] = key
    sheet = read_sheet(desk.send(table), desk.known)
    assert not sheet.replies
    (fault,) = sheet.faults
    assert (fault.row, fault.column) == (2, "key")
    assert says in fault.sentence
    assert "vessel" not in fault.sentence


@pytest.mark.parametrize("answers", [{}, {2: "A", 3: "B", 4: "A"}])
def test_a_sheet_of_another_run_is_one_fault(desk: Desk, answers: dict[int, str]) -> None:
    known = {new_key(0, np.random.default_rng(5)): desk.rows[0]}
    sheet = read_sheet(desk.send(desk.filled(answers)), known)
    assert not sheet.replies
    assert [(f.row, f.column) for f in sheet.faults] == [(1, "key")]
    assert "this run knows none of the keys: take the file of this run" in sheet.faults[0].sentence


def test_a_column_sorted_alone_is_found(desk: Desk) -> None:
    rows = [SheetRow(key, f"prompt number {n}", ("yes", "no")) for n, key in enumerate(desk.keys)]
    known = {row.key: row for row in rows}
    table = [["key", "prompt", "answer"], *([r.key, r.prompt, "A"] for r in rows)]
    table[1][1], table[2][1] = table[2][1], table[1][1]
    sheet = read_sheet(desk.send(table), known)
    assert [r.key for r in sheet.replies] == [rows[2].key]
    assert [(f.row, f.column) for f in sheet.faults] == [(2, "prompt"), (3, "prompt")]
    assert "number" not in "".join(f.sentence for f in sheet.faults)
    table[1][1], table[2][1] = "Prompt: number 0 (typo mended)", ""  # their own business
    assert len(read_sheet(desk.send(table), known).replies) == 3


def test_a_row_of_another_run_under_a_key_of_this_one_is_found(desk: Desk) -> None:
    table = desk.filled({2: "B", 3: "B"})
    table[1][1] = "Where does the river end, in Rome or in the sea?"
    sheet = read_sheet(desk.send(table), desk.known)
    assert [r.key for r in sheet.replies] == [desk.keys[1]]
    assert [(f.row, f.column) for f in sheet.faults] == [(2, "prompt")]
    assert "is the file from another run" in sheet.faults[0].sentence
    assert "river" not in sheet.faults[0].sentence


def test_a_row_torn_by_its_own_commas_is_a_fault(desk: Desk) -> None:
    path = desk.path.with_name("hand.csv")
    path.write_text(f"key,answer,note\n{desk.keys[0]},B,well, maybe\n{desk.keys[1]},A\n")
    sheet = read_sheet(path, desk.known)
    assert [(f.row, f.column) for f in sheet.faults] == [(2, "row")]
    assert sheet.faults[0].line("h.csv").startswith("h.csv row 2: the row has more cells")
    assert [r.key for r in sheet.replies] == [desk.keys[1]]


def test_faults_quote_no_text(desk: Desk) -> None:
    canary = "canary-7319"
    table = desk.filled({2: canary, 3: f"none: {canary}", 4: f"B) {canary}"})
    for row in table[1:]:
        row[1], row[2], row[4] = canary, canary, canary
    table.append([canary, canary, canary, "A", canary])
    unread = {key: replace(shown, prompt="") for key, shown in desk.known.items()}
    for known, columns in ((unread, "answer answer key"), (desk.known, "prompt prompt answer key")):
        sheet = read_sheet(desk.send(table), known)
        assert [f.column for f in sheet.faults] == columns.split()
        assert canary not in "".join(f.sentence for f in sheet.faults)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04rest", "is a damaged workbook"),
        (b"\xd0\xcf\x11\xe0rest", "is an old (.xls) or encrypted workbook"),
        (b"", "is empty: items were expected (.xlsx or CSV)"),
        (b"\xef\xbb\xbf\r\n\r\n", "is empty"),
        (b"some,thing\r\n", "has no column 'key' and 'answer' in its first row"),
        (b"key,prompt,note\r\n", "has no column 'answer'"),
        (b"prompt;Answer\r\nsecret;B\r\n", "has no column 'key'"),
        (b"key,answer,Answer \r\nx,A,B\r\n", "has the column 'answer' twice"),
        (b'key,answer\r\nk2k2-h,"A\r\n', "near line 2"),
        (b'key,answer\r\nk2k2-h,A\r\nx,"A" or B\r\n', "near line 3"),
        (b"k\0e\0y\0", "is binary, not text"),
        (b"\xff\xfek\0e", "is damaged UTF-16: save it as UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(DataError) as fault:
        read_sheet(path, {"k2k2-h": SheetRow("k2k2-h", "", ("a", "b"))})
    assert says in str(fault.value)
    assert str(path) in str(fault.value)
    assert "secret" not in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    "data", [b"key,answer\r\nk2k2-h,\xe9\x81\r\n", b"\xef\xbb\xbfkey,answer\r\nk2k2-h,\xe9\r\n"]
)
def test_a_cell_in_no_known_encoding_is_a_fault(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    sheet = read_sheet(tmp_path / "a.csv", {"k2k2-h": SheetRow("k2k2-h", "", ("a", "b"))})
    assert [(fault.row, fault.column) for fault in sheet.faults] == [(2, "answer")]


@pytest.mark.parametrize(
    ("cell", "position", "fault"),
    [
        ("A", 0, None),
        ("bread", 0, None),
        ("C", 2, None),
        ("B)", 1, None),
        ("b", 1, None),
        ("B", 1, None),
        ("D", None, "not understood"),
    ],
)
def test_an_option_that_was_added_changes_no_older_answer(
    tmp_path: Path, cell: str, position: int | None, fault: str | None
) -> None:
    row = SheetRow("k2k2-h", "what is it about?", ("bread", "sea"))
    write_sheet(tmp_path / "a.csv", [row])
    text = (tmp_path / "a.csv").read_text(encoding="utf-8-sig").replace(",,", f",{cell},")
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    now = replace(row, options=(*row.options, "B"), first=2)
    sheet = read_sheet(tmp_path / "a.csv", {row.key: now})
    assert [reply.position for reply in sheet.replies] == ([] if fault else [position])
    assert len(sheet.faults) == (fault is not None)
    assert all(str(fault) in each.sentence for each in sheet.faults)
