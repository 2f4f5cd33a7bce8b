"""Removal of questions from sheets that were given out, which people may have filled in since."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from stacksl.data.workbooks import reading_workbook
from stacksl.errors import DataError
from stacksl.files.atomic import write_atomic
from stacksl.labelers.sheets.writing import packed

_WIDE: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # by the mark of a file


def sheets_in(folder: Path) -> list[Path]:
    """The files in a folder that may be sheets, or copies of them under any name."""
    files = sorted(folder.iterdir()) if folder.is_dir() else ()
    return [path for path in files if path.suffix.lower() in (".csv", ".tsv", ".xlsx")]


def erase_rows(folder: Path, keys: Collection[str]) -> list[str]:
    """Remove the rows with one of the `keys` from every sheet in a folder.

    A sheet keeps its encoding, its separator and all other rows. Gives the names of the sheets that
    cannot be read, which are left as they are.
    """
    unread_names = []
    for path in sheets_in(folder) if keys else ():
        without = _without_rows if path.suffix.lower() == ".xlsx" else _without_lines
        try:
            payload = without(path, keys)
        except (DataError, csv.Error):
            unread_names.append(path.name)
        else:
            if payload is not None:
                write_atomic(path, payload, mode=path.stat().st_mode & 0o777)
    return unread_names


def _without_lines(path: Path, keys: Collection[str]) -> bytes | None:
    """A sheet as text without the rows of `keys`, every other byte as it is; None without any."""
    payload = path.read_bytes()
    # keys are ASCII, and Latin-1 gives every byte back as it was
    encoding = _WIDE.get(payload[:2], "latin-1")
    # cut at line feeds alone: other breaks belong to cells
    lines = io.StringIO(payload.decode(encoding, "surrogatepass"), newline="\n").readlines()
    head = lines[0] if lines else ""
    lines_left: list[str] = []
    start = 0
    reader = csv.reader(lines, delimiter=max(",;\t", key=head.count))
    for row in reader:
        if not any(cell.strip(' "\r\n').lower() in keys for cell in row):
            lines_left += lines[start : reader.line_num]
        start = reader.line_num
    if any(line.lstrip(' "').lower().startswith(tuple(keys)) for line in lines_left):
        raise DataError(f"'{path}' has an open quotation")  # it runs over a row with a key
    return None if lines_left == lines else "".join(lines_left).encode(encoding, "surrogatepass")


def _without_rows(path: Path, keys: Collection[str]) -> bytes | None:
    """A workbook with the rows of `keys` empty, and without choices that were theirs alone.

    Texts are written again from the cells that are left, so none stays in a table of shared texts.
    None where no row has one of the keys.
    """
    from openpyxl import load_workbook

    with reading_workbook(path):
        book = load_workbook(path, keep_links=False)
    cleared_cells: list[Any] = []
    for sheet in book.worksheets:
        cells = [cell for row in sheet.iter_rows() for cell in row if isinstance(cell.value, str)]
        rows = {cell.row for cell in cells if str(cell.value).strip().lower() in keys}
        cleared_cells += [cell for number in rows for cell in sheet[number]]
        choices = sheet.data_validations.dataValidation
        for choice in [rule for rule in choices if rule.type == "list"]:
            areas = choice.sqref.ranges
            if not {row for area in areas for row in range(area.min_row, area.max_row + 1)} <= rows:
                continue
            choices.remove(choice)
            name, _, cell_range = str(choice.formula1).partition("!")
            if name.strip("'") in book.sheetnames:
                choice_cells: Any = book[name.strip("'")][cell_range.replace("$", "")]
                cleared_cells += [cell for row in choice_cells for cell in row]
    for cell in cleared_cells:
        cell.value, cell.comment, cell.hyperlink = None, None, None
    return packed(book) if cleared_cells else None
