"""Sheets as they are written: keys, cells, files."""

from __future__ import annotations

import csv
import io
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.data import Classes
from stacksl.errors import DataError
from stacksl.labelers.sheets.cells import LIMIT, guarded, is_too_long, plain, shortened, visible
from stacksl.labelers.sheets.rows import (
    _DIGITS,
    _LETTERS,
    SheetRow,
    _check,
    clean_key,
    has_form,
    new_key,
)
from stacksl.labelers.sheets.writing import HOWTO, write_howto, write_sheet

if TYPE_CHECKING:
    from tests.sheets.conftest import Desk


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_sheet_is_what_excel_expects(desk: Desk) -> None:
    data = desk.path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbfkey,prompt,options,answer,note\r\n")
    assert data.endswith(b",,\r\n")
    assert data.count(b"\r\n") == 1 + len(desk.rows)  # line breaks in cells are LF alone
    assert [row[0] for row in desk.table()[1:]] == desk.keys
    assert [plain(row[1]) for row in desk.table()[1:]] == [row.prompt for row in desk.rows]
    assert desk.table()[2][1].startswith("'=")
    assert desk.table()[1][2] == "A) vein\nB) artery\nC) node"


def test_files_have_the_mode_and_nothing_else_is_left(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        rows = [SheetRow("k2k2-h", "x" * 40_000, ("a b", "c d"))]
        write_sheet(tmp_path / "a.csv", rows, mode=0o640)
        names = tuple(f"class {n}" for n in range(27))
        many = SheetRow("k2k2-j", "?", names)
        write_sheet(tmp_path / "b.csv", [many], Classes(names, ("",) * 27), mode=0o604)
        howto = write_howto(tmp_path, {})
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a.csv") == 0o640
    assert mode_of(tmp_path / "classes.csv") == 0o604
    assert mode_of(howto) == 0o600
    listed = {tmp_path / "b.csv", tmp_path / "classes.csv"}
    assert set(tmp_path.iterdir()) == {tmp_path / "a.csv", *listed, howto}


def test_a_sheet_with_answers_is_not_overwritten(desk: Desk) -> None:
    write_sheet(desk.path, desk.rows)  # the same again: nothing to do
    path = desk.send(desk.filled({2: "B"}))
    path.replace(desk.path)
    with pytest.raises(DataError, match="exists already and may hold answers: move it away"):
        write_sheet(desk.path, desk.rows)
    assert desk.table()[1][3] == "B"


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write '.*a.csv': No space left on device"):
        write_sheet(tmp_path / "a.csv", [SheetRow("k2k2-h", "?", ("a b", "c d"))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prompt", ["word " * 8_000, "line\n" * 300, "=😀" * 20_000])
def test_a_text_too_long_for_a_cell_is_cut_and_says_so(tmp_path: Path, prompt: str) -> None:
    row = SheetRow("k2k2-h", prompt, ("the one", "the other"))
    write_sheet(tmp_path / "a.csv", [row])
    text = (tmp_path / "a.csv").read_text(encoding="utf-8-sig")
    assert "the text is longer than a cell" in text
    cell = text.split('"')[1]
    assert not is_too_long(cell)
    assert plain(cell)[:500] == prompt[:500]


def test_many_options_are_in_the_cell_or_in_the_file_of_classes(tmp_path: Path) -> None:
    names = [f"class {n}" for n in range(40)]
    said = ("", "-1, or less", *[""] * 38)
    row = SheetRow("k2k2-h", "?", tuple(names))
    write_sheet(tmp_path / "a.csv", [row])
    assert "\n2) class 1\n" in (tmp_path / "a.csv").read_text(encoding="utf-8-sig")
    write_sheet(tmp_path / "b.csv", [row], Classes(tuple(names), said), "classes-b.csv")
    text = (tmp_path / "b.csv").read_text(encoding="utf-8-sig")
    assert "number (1 to 40) or name of one of the classes in the file classes-b.csv" in text
    assert "class 7" not in text
    lines = (tmp_path / "classes-b.csv").read_bytes().decode("utf-8-sig").split("\r\n")
    assert lines[:3] == ["number,name,description", "1,class 0,", '2,class 1,"\'-1, or less"']


def test_options_that_read_like_answers_are_pointed_out(tmp_path: Path) -> None:
    rows = [
        SheetRow("k2k2-h", "?", ("none", "some")),
        SheetRow("k2k2-j", "?", ("3", "4")),
        SheetRow("k2k2-k", "?", ("B", "A")),
    ]
    write_sheet(tmp_path / "a.csv", rows)
    text = (tmp_path / "a.csv").read_text(encoding="utf-8-sig")
    assert text.count("that text alone") == 1
    assert "A) none\nB) some\n(the text of some option" in text
    assert "A) 3\nB) 4" in text
    assert "1) B\n2) A" in text


def test_the_howto_says_what_is_read(tmp_path: Path) -> None:
    path = write_howto(tmp_path, {})
    path.write_text("an older one", encoding="utf-8")
    text = write_howto(tmp_path, {}).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    assert text == HOWTO
    assert "Each row is one question." in text


# A key survives spreadsheets and hands: no value, no look-alikes, each slip found ---------------


keys = st.builds(
    lambda number, seed: new_key(number, np.random.default_rng(seed)),
    st.integers(0, 10**6),
    st.integers(0, 2**32),
)


def is_key(text: str) -> bool:
    """Whether a key with this text can have been given out."""
    return bool(has_form(text)) and _check(text[:-2]) == text[-1]


@given(keys)
def test_a_key_is_no_value_of_a_spreadsheet(key: str) -> None:
    assert re.fullmatch(r"([a-z][2-9]){2,8}-[a-z]", key)
    with pytest.raises(ValueError):
        float(key)
    assert guarded(key) == key  # neither formula nor number, date or truth value
    assert not set(key) & set("0o1il5s2z8b6g9e") - set(_DIGITS)


@given(keys, st.data())
def test_one_wrong_sign_is_found(key: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([n for n, sign in enumerate(key) if sign != "-"]))
    alphabet = _DIGITS if key[place].isdigit() else _LETTERS
    other = data.draw(st.sampled_from([sign for sign in alphabet if sign != key[place]]))
    assert is_key(key)
    assert not is_key(key[:place] + other + key[place + 1 :])


@given(keys, st.data())
def test_two_signs_exchanged_are_found(key: str, data: st.DataObject) -> None:
    places = st.sampled_from(range(len(key)))
    one, two = sorted((data.draw(places), data.draw(places)))
    signs = list(key)
    signs[one], signs[two] = signs[two], signs[one]
    assert is_key("".join(signs)) == ("".join(signs) == key)


def test_keys_of_a_run_differ_and_grow() -> None:
    rng, taken = np.random.default_rng(3), set[str]()
    for number in range(20_000):
        taken.add(new_key(number, rng, taken))
    assert len(taken) == 20_000
    assert {len(key) for key in taken} == {6, 8}
    assert len(new_key(10**6, rng)) == 10


@pytest.mark.parametrize("cell", [" {} ", "{}\n", "\u00a0{}"])
def test_a_key_is_read_through_capitals_dashes_and_spaces(cell: str) -> None:
    key = new_key(0, np.random.default_rng(1))
    assert clean_key(cell.format(key.upper().replace("-", "–"))) == key
    assert not is_key(cell.format(key))


# Cells are shown as they stand, run nothing, and come back as the text they were made of --------


SIGNS = tuple("=+-@＝＋－＠")
texts = st.text() | st.text(alphabet="=+-@'\t\r\n \u00a0\ufeff;,\"1a|")


@given(texts)
def test_a_guard_is_undone_exactly(text: str) -> None:
    assert plain(guarded(text)) == text


@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from(",;\t"))
def test_no_cell_begins_a_formula_under_another_separator(cells: list[str], separator: str) -> None:
    """Torn at every separator and line break, as a program does that expects another."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow(["k", *(guarded(visible(text)) for text in cells)])
    for line in stream.getvalue().splitlines():
        for piece in line.split(separator):
            assert not piece.lstrip('\ufeff "').startswith(SIGNS), piece


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        " =1",
        "\ufeff=1",
        "\t=1",
        "\tx",
        "\rx",
        "＝1",
        "'=1",
        "007",
        "1e5",
        "3-4",
        "03.04.",
        "4 March",
        "Mar-04",
        "12:30",
        "50 %",
        "TRUE",
        "wahr",
    ],
)
def test_what_a_spreadsheet_would_run_or_rewrite_has_an_apostrophe(text: str) -> None:
    assert guarded(text).startswith("'")
    assert plain(guarded(text)) == text


@pytest.mark.parametrize(
    "text", ["a=b", "Room 12", "it's", "'quoted'", "x - y", "maybe", "1st of 3"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert guarded(text) == plain(text) == text


@given(st.text().map(visible))
def test_visible_text_is_utf8_and_stays(text: str) -> None:
    assert visible("a\0b\x1bc\x7f\x85\ud800\r\nb\rc\td") == "a␀b␛c␡\ufffd\ufffd\nb\nc\td"
    text.encode()
    assert visible(text) == text
    assert not any(ord(c) < 32 and c not in "\t\n" for c in text)


@pytest.mark.parametrize(
    ("cell", "long"),
    [("x" * LIMIT, False), ("x" * (LIMIT + 1), True), ("😀" * 16_384, True), ("\n" * 254, True)],
)
def test_a_cell_too_long_for_excel_is_cut_within_its_limits(cell: str, long: bool) -> None:
    assert is_too_long(cell) == long
    cut = shortened(cell)
    assert (cut != cell) == long
    assert not is_too_long(cut)
    assert cell.startswith(cut.rpartition("\n[... ")[0] if long else cut)
