"""A workbook (.xlsx), as any program saves it, to rows of cells."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from stacksl.errors import DataError

LARGEST = 200_000_000  # bytes that a workbook may unpack to
_PARTS = 2_000  # files in it
_ROWS = 1_048_576  # of a sheet
_ESCAPE = re.compile("_x(005F|000D)_")  # an underscore, a carriage return; openpyxl reads others

Row = tuple[int, list[str]]


class Cell(str):
    """The text of a cell, with the `value` that it holds, a number or a date, and its `style`."""

    __slots__ = ("style", "value")
    value: Any
    style: str


class Formula(str):
    """The text of a formula."""

    __slots__ = ()


def sheets_of(path: Path) -> Iterator[tuple[str, list[Row]]]:
    """The sheets of a workbook: title, and the rows that have text.

    A number is given as it is written: `2`, never `2.0`. A formula is given as its text.

    Raises:
        DataError: the file is no workbook that can be read, or unpacks to more than `LARGEST`.
    """
    from openpyxl import load_workbook

    with reading_workbook(path), path.open("rb") as file:
        book = load_workbook(file, read_only=True, keep_links=False)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # the file's own may lie
            yield sheet.title, list(_filled(path, sheet.iter_rows()))


def table_of_sheet(path: Path, worksheet: str | None) -> list[Row]:
    """The rows of a workbook's sheet: of the one that is named, else of the only one with rows.

    Raises:
        DataError: as `sheets_of`; none has rows, or several have and none of them is named so.
    """
    rows_by_title = dict(sheets_of(path))
    titles = [title for title, rows in rows_by_title.items() if rows]
    if worksheet not in rows_by_title and len(titles) > 1:
        names = ", ".join(f"'{title}'" for title in titles)
        absent = "" if worksheet is None else f" and none called '{worksheet}'"
        raise DataError(
            f"'{path}' has {len(titles)} worksheets with rows ({names}){absent}: say which with"
            " --worksheet"
        )
    title = worksheet if worksheet in rows_by_title else "".join(titles)
    return _with_values(path, title, rows_by_title.get(title, []))


def _with_values(path: Path, title: str, rows: list[Row]) -> list[Row]:
    """The rows of a sheet, in which a formula is the value that the workbook has of it.

    Raises:
        DataError: the workbook has no value of a formula.
    """
    from openpyxl import load_workbook

    if not any(isinstance(cell, Formula) for _, cells in rows for cell in cells):
        return rows
    with reading_workbook(path), path.open("rb") as file:
        book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
        book[title].reset_dimensions()
        saved_rows = dict(enumerate(book[title].iter_rows(), 1))
    for number, cells in rows:
        for column, formula in enumerate(cells):
            if not isinstance(formula, Formula):
                continue
            saved_cell = saved_rows[number][column]
            if saved_cell.value is None and saved_cell.data_type != "str":  # that is an empty text
                raise DataError(
                    f"the sheet '{title}' of '{path}' has formulas without values, the first in row"
                    f" {number}: open it in the spreadsheet program and save it again"
                )
            cells[column] = _text(saved_cell)
    return [(number, cells) for number, cells in rows if any(map(str.strip, cells))]


@contextmanager
def reading_workbook(path: Path) -> Iterator[None]:
    """Turn any error of reading a workbook into one sentence, without the library's warnings.

    Raises:
        DataError: the file is no workbook that can be read, or unpacks to more than `LARGEST`.
    """
    _expect_workbook(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of extensions that it leaves out, such as validations
            yield
    except (DataError, MemoryError):
        raise
    except Exception as fault:  # a parser of others on bytes of others: any error is possible
        raise DataError(
            f"'{path}' cannot be read as a workbook ({type(fault).__name__}): open it in the "
            "spreadsheet program and save it again as .xlsx, or as 'CSV UTF-8'"
        ) from None


def _expect_workbook(path: Path) -> None:
    """Look at the file's table of contents before anything of it is unpacked."""
    try:
        with ZipFile(path) as archive:
            parts = archive.infolist()
    except (BadZipFile, OSError, ValueError, NotImplementedError):
        raise DataError(
            f"'{path}' is a damaged workbook: take the file as it was sent, or save it again"
        ) from None
    size = sum(part.file_size for part in parts)
    if size > LARGEST or len(parts) > _PARTS:
        raise DataError(
            f"'{path}' unpacks to {size / 1e6:,.0f} MB in {len(parts):,} parts, at most "
            f"{LARGEST / 1e6:,.0f} MB in {_PARTS:,} are read: save the sheet with the rows as 'CSV "
            "UTF-8', export the table as .csv or .parquet, or copy the rows into a new workbook"
        )
    if "xl/workbook.xml" not in {part.filename for part in parts}:
        raise DataError(
            f"'{path}' is an archive that is no .xlsx workbook: if it is .zip, unpack it and name "
            "the file in it; if it is .ods or .xlsb, save it as .xlsx, or as 'CSV UTF-8'"
        )


def _filled(path: Path, rows: Iterator[Sequence[Any]]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        if number > _ROWS:
            raise DataError(
                f"'{path}' has more than {_ROWS:,} rows, many perhaps empty: delete rows "
                "below the last one that is filled and save it again"
            )
        cells = [_text(cell) for cell in row]
        if any(cell.strip() for cell in cells):
            yield number, cells


def _text(cell: Any) -> str:
    """The cell as a person sees it."""
    value = cell.value
    if value is None:
        return ""
    if cell.data_type == "f":
        return Formula((value if isinstance(value, str) else getattr(value, "text", None)) or "=")
    if isinstance(value, bool):
        copy = Cell(str(value).upper())
    elif isinstance(value, float):
        copy = Cell(f"{value:.15g}")
    elif isinstance(value, int) and abs(value) < 10**15:  # a workbook rounds longer ones
        copy = Cell(value)
    elif isinstance(value, datetime | date | time):
        copy = Cell(value.isoformat().removesuffix("T00:00:00"))
    elif isinstance(value, timedelta) or cell.data_type == "e":
        copy = Cell(value)
    else:
        return _ESCAPE.sub(lambda match: "_" if match[1] == "005F" else "", str(value))
    copy.value, copy.style = value, cell.number_format
    return copy
