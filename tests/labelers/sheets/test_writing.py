"""The files that go out: as a spreadsheet expects, whole, private, never over somebody's work."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stacksl.data import Classes
from stacksl.errors import DataError
from stacksl.labelers.sheets.cells import is_too_long, plain
from stacksl.labelers.sheets.rows import Asked
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
        rows = [Asked("k2k2-h", "x" * 40_000, ("a b", "c d"))]
        files = write_sheet(tmp_path / "a.csv", rows, mode=0o640)
        names = tuple(f"class {n}" for n in range(27))
        many = Asked("k2k2-j", "?", names)
        write_sheet(tmp_path / "b.csv", [many], Classes(names, ("",) * 27), mode=0o604)
        howto = write_howto(tmp_path, {})
    finally:
        os.umask(before)
    assert files == (tmp_path / "a.csv", tmp_path / "k2k2-h.txt")
    assert [mode_of(f) for f in files] == [0o640, 0o640]
    assert mode_of(tmp_path / "classes.csv") == 0o604
    assert mode_of(howto) == 0o600
    listed = {tmp_path / "b.csv", tmp_path / "classes.csv"}
    assert set(tmp_path.iterdir()) == {*files, *listed, howto}


def test_a_sheet_with_answers_is_not_overwritten(desk: Desk) -> None:
    write_sheet(desk.path, desk.rows)  # the same again: nothing to do
    path = desk.send(desk.filled({2: "B"}))
    path.replace(desk.path)
    with pytest.raises(DataError, match="is there already and may hold answers: move it away"):
        write_sheet(desk.path, desk.rows)
    assert desk.table()[1][3] == "B"


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write '.*a.csv': No space left on device"):
        write_sheet(tmp_path / "a.csv", [Asked("k2k2-h", "?", ("a b", "c d"))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prompt", ["word " * 8_000, "line\n" * 300, "=😀" * 20_000])
def test_a_text_too_long_for_a_cell_goes_on_beside_the_sheet(tmp_path: Path, prompt: str) -> None:
    row = Asked("k2k2-h", prompt, ("the one", "the other"))
    sheet, beside = write_sheet(tmp_path / "a.csv", [row])
    assert beside.read_text(encoding="utf-8-sig") == f"{prompt}\n\nA) the one\nB) the other\n"
    text = sheet.read_text(encoding="utf-8-sig")
    assert "all of it is in the file k2k2-h.txt beside this sheet" in text
    cell = text.split('"')[1]
    assert not is_too_long(cell)
    assert plain(cell)[:500] == prompt[:500]


def test_many_options_are_in_the_cell_or_in_the_file_of_classes(tmp_path: Path) -> None:
    names = [f"class {n}" for n in range(40)]
    said = ("", "-1, or less", *[""] * 38)
    row = Asked("k2k2-h", "?", tuple(names))
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
        Asked("k2k2-h", "?", ("none", "some")),
        Asked("k2k2-j", "?", ("3", "4")),
        Asked("k2k2-k", "?", ("B", "A")),
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
    assert write_howto(tmp_path, {}).read_bytes().decode("utf-8-sig").replace("\r\n", "\n") == HOWTO
