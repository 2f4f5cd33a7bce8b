"""A workbook (.xlsx) that people filled in, to rows of cells, as any program saves it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from stacksl.errors import DataError

LARGEST = 200_000_000  # bytes that a workbook may unpack to
_PARTS = 2_000  # files in it
_ROWS = 100_000  # rows of a sheet that are read
_COLUMNS = 64  # columns that are read: those of a sheet of ours are the first five
_MERGED = re.compile(rb"mergeCell\s[^>]*ref=[\"'][A-Z]+(\d{1,7}):[A-Z]+(\d{1,7})[\"']")

Row = tuple[int, list[str]]


def sheets_of(path: Path) -> Iterator[tuple[list[Row], frozenset[int]]]:
    """The sheets of a workbook, each as its rows that have text and the rows with merged cells.

    A number is given as it is written: `2`, never `2.0`. A formula is given as its text.

    Raises:
        DataError: the file is no workbook that can be read, or unpacks to more than `LARGEST`.
    """
    with reading_workbook(path):
        yield from _sheets(path)


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
    """Look at the file's table of contents before anything of it is unpacked.

    Raises:
        DataError: it is no workbook, or unpacks to more than `LARGEST`.
    """
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
            f"{LARGEST / 1e6:,.0f} MB in {_PARTS:,} are read: copy the rows into the sheet that "
            "was given out, or save that sheet alone as 'CSV UTF-8'"
        )
    if "xl/workbook.xml" not in {part.filename for part in parts}:
        raise DataError(
            f"'{path}' is no .xlsx workbook (it may be .ods or .xlsb): save it as .xlsx, or as "
            "'CSV UTF-8'"
        )


def _sheets(path: Path) -> Iterator[tuple[list[Row], frozenset[int]]]:
    from openpyxl import load_workbook

    with path.open("rb") as file, ZipFile(path) as archive:
        book = load_workbook(file, read_only=True, keep_links=False)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # the file's own may lie
            rows = sheet.iter_rows(max_col=_COLUMNS)
            yield list(_filled(path, rows)), _merged(archive, sheet._worksheet_path)  # type: ignore[attr-defined]


def _filled(path: Path, rows: Iterator[Sequence[Any]]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        if number > _ROWS:
            raise DataError(
                f"'{path}' has more than {_ROWS:,} rows, many perhaps empty: delete rows "
                "below the last question and save it again"
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
        return value if isinstance(value, str) else "=" + str(getattr(value, "text", "") or "")
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime | date | time):
        return value.isoformat().removesuffix("T00:00:00")
    return str(value).replace("_x000D_", "")  # a carriage return; openpyxl reads other escapes


def _merged(archive: ZipFile, part: str) -> frozenset[int]:
    """The rows with merged cells, of which all but the first are empty for a program."""
    rows: set[int] = set()
    content = archive.read(part)
    for found in _MERGED.finditer(content):
        first, last = (int(number) for number in found.groups())
        rows.update(range(first, min(last, _ROWS) + 1))
    return frozenset(rows)
