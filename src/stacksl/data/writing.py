"""Tables to files, written atomically."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from stacksl.data.tables import csv_style
from stacksl.data.workbooks import Cell
from stacksl.errors import DataError, SettingsError
from stacksl.files.atomic import replace_file

Rows = Sequence[Mapping[str, Any]]
Progress = Callable[[int, int], None] | None
_ESCAPED = re.compile("_(?=x[0-9A-Fa-f]{4}_)")  # such a text means one character in a workbook
_NO_XML = dict.fromkeys({*range(32), 0xFFFE, 0xFFFF} - {9, 10, 13}, "\ufffd")
_CELL, _ROWS = 32_767, 1_048_575  # characters and rows that a workbook takes
_DIGITS = 10**15  # a larger number loses digits in a spreadsheet, and is written as text


def expect_other(path: str | Path, sources: Iterable[str]) -> None:
    """Refuse to write over one of the files that were read, the `sources`.

    Raises:
        SettingsError: `path` is one of them.
    """
    target = Path(path)
    if target.is_file() and any(Path(file).is_file() and target.samefile(file) for file in sources):
        raise SettingsError(
            f"expected a new file for the labels, got '{path}', from which rows were read: give"
            " another name, so that your own table stays as it is"
        )


def kind_of_table(path: str | Path) -> str:
    """The key of `TABLES` that a file's name ends in.

    Raises:
        SettingsError: it ends in none of them.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in TABLES:
        endings = ", ".join(f".{name}" for name in TABLES)
        raise SettingsError(
            f"expected a file whose name ends in one of {endings}, got '{Path(path).name}'"
        )
    return kind


def write_table(
    path: str | Path,
    columns: Sequence[str],
    rows: Rows,
    progress: Progress = None,
    *,
    like: str | Path | None = None,
) -> None:
    """Write `rows` under `columns` to a file of its name's kind; `progress` counts a workbook's.

    A CSV file has the delimiter of the CSV file `like`, from which the rows were read, and its
    mark.

    Raises:
        DataError: the file cannot be written; nothing is left half-written.
        SettingsError: the name ends in no known kind.
    """
    kind = kind_of_table(path)
    if kind == "xlsx":
        payload = _workbook(columns, rows, progress)
    elif kind == "csv" and like is not None:
        delimiter, mark = csv_style(Path(like))
        payload = mark + _delimited(delimiter, columns, rows)
    else:
        payload = TABLES[kind](columns, rows)
    try:
        replace_file(Path(path), payload)
    except OSError as error:
        raise DataError(
            f"cannot write '{path}': {error.strerror or error}; give another --out"
        ) from None


def _delimited(delimiter: str, columns: Sequence[str], rows: Rows) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow([getattr(name, "header", name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return stream.getvalue().encode(errors="replace")


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, list | tuple | Mapping):
        return _as_json(value)
    return str(value)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN or an infinity, which JSON does not have
        finite = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
        return json.dumps(finite, ensure_ascii=False)


def cell_text(text: str) -> str:
    """A text as a workbook has to hold it, so that it is read again as it is."""
    return _ESCAPED.sub("_x005F_", text.translate(_NO_XML))


def _workbook(columns: Sequence[str], rows: Rows, progress: Progress = None) -> bytes:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    sheet = book.create_sheet("Labels")
    sheet.freeze_panes = "A2"

    def cell(value: Any) -> Any:
        if isinstance(value, int | float) and abs(value) < _DIGITS:
            return value
        if isinstance(value, date) and value.year >= 1900 and not getattr(value, "tzinfo", None):
            return value  # of a Parquet file; a workbook has no older dates and no time zones
        if isinstance(value, Cell):
            typed_cell = WriteOnlyCell(sheet, value.value)
            typed_cell.number_format = value.style
            return typed_cell
        if not (text := _cell(value)):
            return None  # a spreadsheet counts an empty text
        text_cell = WriteOnlyCell(sheet, cell_text(text.encode(errors="replace").decode()))
        text_cell.data_type = "s"  # a text is never a formula
        return text_cell

    if len(rows) > _ROWS or any(
        len(cell_text(_cell(v))) > _CELL for row in rows for v in row.values()
    ):
        raise DataError(
            f"a workbook takes at most {_ROWS:,} rows and {_CELL:,} characters a cell, and these"
            " are more: give the file a name that ends in .csv"
        )
    sheet.append([cell(getattr(name, "header", name)) for name in columns])
    for number, row in enumerate(rows, 2):
        sheet.append([cell(row.get(name)) for name in columns])
        if progress and (number % 1000 == 0 or number > len(rows)):
            progress(number - 1, len(rows))
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _parquet(columns: Sequence[str], rows: Rows) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(name: str) -> Any:
        values = [row.get(name) for row in rows]
        for type in (getattr(name, "type", None), None):
            with suppress(pa.ArrowException, UnicodeEncodeError, OverflowError):
                array = pa.array(values, type)
                if "struct<>" not in str(array.type):  # Parquet has none without fields
                    return array
        # of mixed types, of numbers that are too large, or of objects that are empty
        texts = (None if v is None else _cell(v) for v in values)
        return pa.array([None if t is None else t.encode(errors="replace").decode() for t in texts])

    stream = io.BytesIO()
    pq.write_table(pa.table({name: column(name) for name in columns}), stream)
    return stream.getvalue()


TABLES: dict[str, Callable[[Sequence[str], Rows], bytes]] = {
    "csv": partial(_delimited, ","),
    "tsv": partial(_delimited, "\t"),
    "jsonl": lambda _, rows: "".join(f"{_as_json(row)}\n" for row in rows).encode(errors="replace"),
    "json": lambda _, rows: _as_json(list(rows)).encode(errors="replace"),
    "xlsx": _workbook,
    "parquet": _parquet,
}
"""The kinds of table that can be written, by the end of the file's name: columns, rows to bytes."""
