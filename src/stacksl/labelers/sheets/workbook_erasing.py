"""Removal of questions from a workbook that was given out, and the search for their texts."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.errors import DataError
from stacksl.labelers.sheets.workbook_reading import expect_workbook
from stacksl.labelers.sheets.workbook_writing import packed

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet


def texts_in(path: Path) -> Iterator[str]:
    """The text of every cell, in hidden sheets too.

    Raises:
        DataError: the file cannot be read as a workbook.
    """
    for sheet in _opened(path).worksheets:
        for row in sheet.iter_rows(values_only=True):
            yield from (str(value) for value in row if value is not None)


def without_rows(path: Path, keys: Collection[str]) -> bytes | None:
    """The workbook with the rows of `keys` empty, and without choices that were theirs alone.

    Texts are written anew from the cells that are left, so none stays in a table of shared texts.
    None where no row has one of the keys.

    Raises:
        DataError: the file cannot be read as a workbook.
    """
    book = _opened(path)
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


def _opened(path: Path) -> Workbook:
    from openpyxl import load_workbook

    expect_workbook(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that it leaves out
        try:
            return load_workbook(path, keep_links=False)
        except Exception as fault:  # a parser of others on bytes of others: any error is possible
            raise DataError(
                f"'{path}' cannot be read as a workbook ({type(fault).__name__})"
            ) from None


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
