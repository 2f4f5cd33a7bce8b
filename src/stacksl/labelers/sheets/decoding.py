"""A file of answers to rows of cells: a workbook, or text with separators."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from stacksl.data.files import (
    DELIMITERS,
    WIDE_MARKS,
    CsvFault,
    csv_records,
    long_fields,
    reading,
)
from stacksl.errors import DataError
from stacksl.labelers.sheets.workbook_reading import sheets_of

Line = tuple[int, Mapping[str, str], str | None]  # row as shown, cells, why none is to be used

_NEEDED = ("key", "answer")
_READ = (*_NEEDED, "note", "prompt")
_WORKBOOK, _OLD = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_SAVE_AS = "open it in the spreadsheet program and save it as .xlsx or as 'CSV UTF-8'"
_HEADER = "(key, prompt, options, answer, note)"
_TOO_MANY = "the row has more cells than the header: put a text that holds the separator in quotes"
_MERGED = "cells of the row are merged: unmerge them, so that each row has its own answer"


def lines_of(path: Path) -> Iterator[Line]:
    """The rows below the header with their cells by the column's name, in small letters.

    A row's number counts as spreadsheets do: the header is row 1 and line breaks in cells do not
    count. Rows without any text are left out, but counted.

    Raises:
        DataError: the file cannot be read, is no table, or has no column `key` or `answer`.
    """
    data = _bytes(path)
    if data.startswith(_WORKBOOK):
        yield from _of_workbook(path)
    else:
        yield from _of_csv(path, data)


def _of_csv(path: Path, data: bytes) -> Iterator[Line]:
    separator, text = _separator(path, _text(path, data))
    with long_fields():
        rows = _records(path, text, separator)
        filled = ((number, cells) for number, cells in rows if _has_text(cells))
        _, header = next(filled)
        names = [_name(cell) for cell in header]
        for number, cells in filled:
            yield (
                number,
                _named(names, cells),
                _TOO_MANY if _has_text(cells[len(names) :]) else None,
            )


def _of_workbook(path: Path) -> Iterator[Line]:
    """The rows of the one sheet with our header; sheets may have been renamed."""
    found = []
    for rows, merged in sheets_of(path):
        names = [_name(cell) for cell in rows[0][1]] if rows else []
        if set(_NEEDED) <= set(names):
            _refuse_twice(path, names)
            found.append((names, rows[1:], merged))
    if len(found) != 1:
        raise DataError(
            f"'{path}' has {len(found)} sheets with the columns 'key' and 'answer' in their first "
            f"row, one was expected {_HEADER}: "
            + ("delete the copies" if found else "take the file that was given out")
        )
    names, rows, merged = found[0]
    for number, cells in rows:
        yield number, _named(names, cells), _MERGED if number in merged else None


def _named(names: list[str], cells: list[str]) -> dict[str, str]:
    return {name: cell for name, cell in zip(names, cells, strict=False) if name in _READ}


# --- bytes to text ---------------------------------------------------------------------------


def _bytes(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"'{path}' is a folder: give the files of answers in it")
    with reading(path):
        return path.read_bytes()


def _text(path: Path, data: bytes) -> str:
    """The file's text: UTF-8, UTF-16 with a byte-order mark, or cp1252."""
    if data.startswith(_OLD):
        raise DataError(f"'{path}' is an old (.xls) or encrypted workbook: {_SAVE_AS}")
    if data.startswith(WIDE_MARKS):
        return _decoded(path, data, "utf-16")
    if b"\0" in data:
        raise DataError(f"'{path}' is neither a workbook nor text: {_SAVE_AS}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _decoded(path, data, "cp1252")


def _decoded(path: Path, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise DataError(
            f"the text of '{path}' is neither UTF-8 nor UTF-16 nor cp1252: {_SAVE_AS}"
        ) from None


# --- text to records -------------------------------------------------------------------------


def _separator(path: Path, text: str) -> tuple[str, str]:
    """The separator under which the first row is our header, and the text from the header on."""
    first, _, rest = text.partition("\n")
    said = first.strip('"\r')
    if len(said) == 5 and said[:4].lower() == "sep=":  # as Excel reads it: not a row
        text = rest
    best: list[str] = []
    for separator in DELIMITERS:
        names = _header(path, text, separator)
        if set(_NEEDED) <= set(names):
            _refuse_twice(path, names)
            return separator, text
        best = max(best, names, key=lambda n: (len(set(_READ) & set(n)), len(n)))
    missing = " and ".join(f"'{name}'" for name in _NEEDED if name not in best)
    raise DataError(
        f"'{path}' has no column {missing} in its first row: the header of the file that was "
        f"given out was expected {_HEADER}"
    )


def _header(path: Path, text: str, separator: str) -> list[str]:
    with long_fields():
        try:
            rows = (row for _, row in _records(path, text, separator))
            return [_name(cell) for cell in next(filter(_has_text, rows), [])]
        except DataError:
            return []  # quotes that make sense under another separator alone


def _name(cell: str) -> str:
    return cell.replace("\ufeff", "").strip().casefold()


def _refuse_twice(path: Path, names: list[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1 and name in _READ]
    if twice:
        raise DataError(f"'{path}' has the column '{twice[0]}' twice: delete one of them")


def _has_text(cells: list[str]) -> bool:
    return any(cell.strip() for cell in cells)


def _records(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with their numbers. An unbalanced quote is an error: it may hide other rows."""
    number = 0
    try:
        records = csv_records(io.StringIO(text, newline=""), separator, strict=True)
        for number, (_, record) in enumerate(records, 1):
            yield number, record
    except CsvFault:
        raise DataError(
            f"row {number + 1} of '{path}' is not valid CSV, a quote in it or after it never "
            f"closes or closes too early: {_SAVE_AS}"
        ) from None
