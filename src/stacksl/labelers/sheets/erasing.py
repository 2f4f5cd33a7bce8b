"""Removal of questions from sheets that were given out, which people may have filled in since."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stacksl.data.workbooks import reading_workbook
from stacksl.errors import DataError
from stacksl.files.atomic import write_atomic
from stacksl.labelers.sheets.workbook_writing import packed

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

_WIDE: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # by the mark of a file


def erase_rows(folder: Path, keys: Collection[str]) -> list[str]:
    """Remove the rows with one of the `keys` from every sheet in a folder, and their long texts.

    A sheet keeps its encoding, its separator and all other rows. Gives the names of the sheets that
    cannot be read, which are left as they are.
    """
    unread = []
    for key in keys:
        (folder / f"{key}.txt").unlink(missing_ok=True)
    for path in sorted(folder.iterdir()) if keys and folder.is_dir() else ():
        kind = path.suffix.lower()
        if kind not in (".csv", ".tsv", ".xlsx"):
            continue
        try:
            left = _without_rows(path, keys) if kind == ".xlsx" else _without_lines(path, keys)
        except DataError:
            unread.append(path.name)
        else:
            if left is not None:
                write_atomic(path, left, mode=path.stat().st_mode & 0o777)
    return unread


def _without_lines(path: Path, keys: Collection[str]) -> bytes | None:
    """A sheet as text without the rows of `keys`, every other byte as it is; None without any.

    Raises:
        DataError: a quotation is torn, so that rows cannot be told apart.
    """
    payload = path.read_bytes()
    # keys are ASCII, and Latin-1 gives every byte back as it was
    encoding = _WIDE.get(payload[:2], "latin-1")
    # cut at line feeds alone: other breaks belong to cells
    lines = io.StringIO(payload.decode(encoding, "surrogatepass"), newline="\n").readlines()
    head = lines[0] if lines else ""
    kept: list[str] = []
    start = 0
    reader = csv.reader(lines, delimiter=max(",;\t", key=head.count))
    try:
        for row in reader:
            if not any(cell.strip(' "\r\n').lower() in keys for cell in row):
                kept += lines[start : reader.line_num]
            start = reader.line_num
    except csv.Error as fault:
        raise DataError(f"'{path}' has a torn quotation ({fault})") from None
    if any(line.lstrip(' "').lower().startswith(tuple(keys)) for line in kept):
        raise DataError(f"'{path}' has a torn quotation")  # it runs over a row with a key
    return None if kept == lines else "".join(kept).encode(encoding, "surrogatepass")


def _without_rows(path: Path, keys: Collection[str]) -> bytes | None:
    """A workbook with the rows of `keys` empty, and without choices that were theirs alone.

    Texts are written anew from the cells that are left, so none stays in a table of shared texts.
    None where no row has one of the keys.

    Raises:
        DataError: the file cannot be read as a workbook.
    """
    from openpyxl import load_workbook

    with reading_workbook(path):
        book = load_workbook(path, keep_links=False)
    found = False
    for sheet in book.worksheets:
        rows = {
            cell.row
            for row in sheet.iter_rows()
            for cell in row
            if isinstance(cell.value, str) and cell.value.strip().lower() in keys
        }
        for number in rows:
            _clear(row := sheet[number])
            found |= bool(row)
        _clear_choices(book, sheet, rows)
    return packed(book) if found else None


def _clear(cells: Any) -> None:
    for cell in cells:
        cell.value, cell.comment, cell.hyperlink = None, None, None


def _clear_choices(book: Workbook, sheet: Worksheet, rows: Collection[int]) -> None:
    """Empty the lists that only the given rows chose from."""
    kept = []
    for choice in sheet.data_validations.dataValidation:
        own = {row for area in choice.sqref.ranges for row in range(area.min_row, area.max_row + 1)}
        name, _, place = str(choice.formula1).partition("!")
        if choice.type != "list" or not own <= set(rows) or name.strip("'") not in book.sheetnames:
            kept.append(choice)
            continue
        for row in book[name.strip("'")][place.replace("$", "")]:
            _clear(row)
    sheet.data_validations.dataValidation = kept
