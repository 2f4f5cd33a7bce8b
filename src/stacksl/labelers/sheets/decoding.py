"""A file as a spreadsheet saved it, to rows of cells: encoding, separator, header."""

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

Line = tuple[int, Mapping[str, str], bool]  # row as shown, cells, whether it has too many

_NEEDED = ("key", "answer")
_READ = (*_NEEDED, "note", "prompt")
_WORKBOOKS = {b"PK\x03\x04": "a workbook (.xlsx or .ods)", b"\xd0\xcf\x11\xe0": "a workbook (.xls)"}
_SAVE_AS = "open it in the spreadsheet program and save it as 'CSV UTF-8'"


def lines_of(path: Path) -> Iterator[Line]:
    """The rows below the header with their cells by the column's name, in small letters.

    A row's number counts as spreadsheets do: the header is row 1 and line breaks in cells do not
    count. Rows without any text are left out, but counted.

    Raises:
        DataError: the file cannot be read, is no CSV, or has no column `key` or `answer`.
    """
    text = _text(path)
    separator, text = _separator(path, text)
    with long_fields():
        rows = _records(path, text, separator)
        filled = ((number, cells) for number, cells in rows if _has_text(cells))
        _, header = next(filled)
        names = [_name(cell) for cell in header]
        for number, cells in filled:
            found = {n: c for n, c in zip(names, cells, strict=False) if n in _READ}
            yield number, found, _has_text(cells[len(names) :])


# --- bytes to text ---------------------------------------------------------------------------


def _text(path: Path) -> str:
    """The file's text: UTF-8, UTF-16 with a byte-order mark, or cp1252."""
    if path.is_dir():
        raise DataError(f"'{path}' is a folder: give the files of answers in it")
    with reading(path):
        data = path.read_bytes()
    for magic, kind in _WORKBOOKS.items():
        if data.startswith(magic):
            raise DataError(f"'{path}' is {kind}, a CSV file was expected: {_SAVE_AS}")
    if data.startswith(WIDE_MARKS):
        return _decoded(path, data, "utf-16")
    if b"\0" in data:
        raise DataError(f"'{path}' is not text, a CSV file was expected: {_SAVE_AS}")
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
        "given out was expected (key, prompt, options, answer, note)"
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
