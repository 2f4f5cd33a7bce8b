"""Files and data frames as rows with named values."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count, islice, starmap
from pathlib import Path
from typing import Any, NamedTuple

from stacksl.data.columns import Column, names_columns
from stacksl.data.dataset import AS_USUAL, Layout
from stacksl.data.files import (
    DELIMITERS,
    MARK,
    container_of,
    csv_records,
    encoding_of,
    head_of,
    open_text,
    reading,
)
from stacksl.data.values import is_long, is_utf8, named
from stacksl.data.workbooks import table_of_sheet
from stacksl.errors import DataError, HeaderInDoubt

LOOK = 1000  # first rows, which decide what the columns mean
UNREADABLE = "unreadable"  # the column of what is no JSON object: a table given back keeps it
_NO_DELIMITER = "\x1f"


class Row(NamedTuple):
    """One row: its values by column, or (`fault`) why it cannot be parsed."""

    number: int
    values: Mapping[str, Any]
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A stream of rows. `head` are the first of them; `rows` starts with these again."""

    container: str
    columns: tuple[str, ...]
    head: tuple[Row, ...]
    rows: Iterable[Row]


@contextmanager
def open_table(
    path: Path,
    container: str,
    head: bytes,
    layout: Layout = AS_USUAL,
    known_columns: Collection[str] = (),
) -> Iterator[Table]:
    """The file at `path` as a `Table` while the context lasts; `head` are its first bytes.

    A first row that has one of the `known_columns` is a header.

    Raises:
        DataError: the file as a whole cannot be parsed.
    """
    if container == "parquet":
        with reading(path), _open_parquet(path) as table:
            yield table
        return
    if container == "xlsx":
        records = _rectangle(table_of_sheet(path, layout.worksheet))
        yield table_from(container, *_named_rows(path, records, layout, known_columns))
        return
    with open_text(path) as stream:
        if container in ("csv", "tsv"):
            delimiter = delimiter_of(path, head, "\t" if container == "tsv" else ",")
            records = (pair for pair in csv_records(path, stream, delimiter) if pair[1])
            yield table_from(container, *_named_rows(path, records, layout, known_columns))
        elif container == "lines":
            texts = filter(None, map(str.strip, stream))
            rows = (Row(number, {"text": text}) for number, text in enumerate(texts, 1))
            yield table_from(container, ["text"], rows)
        else:
            json_rows = _json_rows(path, stream) if container == "json" else _jsonl_rows(stream)
            yield table_from(container, None, json_rows)


def _rectangle(rows: Sequence[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a sheet as wide as the last cell with text, which may be to the right."""
    widths = [max(n for n, cell in enumerate(cells, 1) if cell.strip()) for _, cells in rows]
    width = max(widths, default=0)
    for number, cells in rows:
        yield number, [*cells[:width], *[""] * (width - len(cells))]


def table_from(container: str, columns: Sequence[str] | None, rows: Iterable[Row]) -> Table:
    """The table of these rows; its columns are those of the first rows where they are None."""
    head = tuple(islice(rows, LOOK))
    if columns is None:
        columns = tuple(dict.fromkeys(n for row in head if not row.fault for n in row.values))
    all_rows = rows if isinstance(rows, list) else chain(head, rows)  # a list starts again
    return Table(container, tuple(columns), head, all_rows)


# --- CSV and workbooks -------------------------------------------------------------------------


def delimiter_of(path: Path, head: bytes, preferred: str) -> str:
    """The delimiter under which most of the first rows have as many fields as the first one."""
    lines = head.decode(encoding_of(path), errors="replace").splitlines(keepends=True)
    best, score = _NO_DELIMITER, (0.0, 0)
    for delimiter in (preferred, *(d for d in DELIMITERS if d != preferred)):
        rows = list(islice(filter(None, csv.reader(lines, delimiter=delimiter)), 50))
        width = len(rows[0]) if rows else 0
        sample = rows[1:-1] if len(rows) > 2 else rows[1:]  # the last one may be cut
        agreement = sum(len(r) == width for r in sample) / len(sample) if sample else 1.0
        if width > 1 and (agreement, width) > score:
            best, score = delimiter, (agreement, width)
    return best


def csv_style(path: Path) -> tuple[str, bytes]:
    """The delimiter of a CSV file, and the mark that makes a spreadsheet read it as UTF-8.

    It is a comma and no mark if the file has none, is of another kind, or is gone.
    """
    with suppress(DataError):
        head = head_of(path)
        if container_of(path, head) == "csv":
            delimiter = delimiter_of(path, head, ",")
            marked = head.startswith(MARK) or encoding_of(path) != "utf-8-sig"
            return delimiter if delimiter in DELIMITERS else ",", MARK if marked else b""
    return ",", b""


def _named_rows(
    path: Path, records: Iterator[tuple[int, list[str]]], layout: Layout, columns: Collection[str]
) -> tuple[tuple[str, ...], Iterator[Row]]:
    """The names in the first record, or those of a file of lettered options, and the rows.

    Without a header the columns are called by their numbers.
    """
    head = list(islice(records, 50))
    if not head:
        raise DataError(f"the file '{path}' holds no row: a header and items were expected")
    names = _lettered_names(head)
    if names is None:
        header, (_, cells) = layout.header, head[0]
        if header is None and not (header := not {*columns}.isdisjoint(map(_name, cells))):
            below = [{r[n].strip() for _, r in head[1:] if n < len(r)} for n in range(len(cells))]
            usual = names_columns([c for c, b in zip(cells, below, strict=True) if c not in b])
            header = usual or not layout.headless
            if header and _like_rows(cells, below, usual=usual):
                raise HeaderInDoubt(
                    f"the first row of '{path}' looks like a row, not like a header: put a header"
                    " on top, such as text,label, delete a title that stands above it, or give"
                    " --no-header (--header if it is one)"
                )
        if not header:
            width = max(len(cells) for _, cells in head)
            names = tuple(f"column {n}" for n in range(1, 1 + width))
        else:
            names = _header(path, head.pop(0)[1])
    return names, _numbered(names, chain(head, records))


def _like_rows(cells: Sequence[str], below: Sequence[set[str]], *, usual: bool) -> bool:
    """Whether a first row holds an item: a long text or, without `usual` names, cells as below."""
    pairs = zip(map(str.strip, cells), below, strict=True)
    matches = (_is_cell(name, texts, alone=len(cells) == 1) for name, texts in pairs if name)
    return any(map(is_long, cells)) or (not usual and any(matches))


def _is_cell(name: str, below: set[str], *, alone: bool) -> bool:
    """Whether a name is in its own column, or is written as the cells there or in three words.

    One word is compared with them only if its column is `alone`; a number with all of them.
    """
    form, *other_forms = (
        re.sub(r"\d+", "0", re.sub(r"[^\W\d]+", "a", text)) for text in (name, *below)
    )
    if alone or " " in name:
        return form in other_forms or len(name.split()) > 2 or (alone and form != "a")
    return name in below or ("0" in form and len(below) > 1 and {*other_forms} == {form})


def _numbered(names: tuple[str, ...], records: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    width = len(names)
    for number, (line, record) in enumerate(records, 1):
        fault = None
        if (found := len(record)) != width:
            fault = f"wrong number of fields: {found} from line {line}, {width} expected"
        further = (f"column {n}" for n in count(width + 1))  # a table given back loses no cell
        yield Row(number, dict(zip(chain(names, further), record, strict=False)), fault)


def _name(cell: str) -> Column:
    """The name of a column of which `cell` is the header."""
    name = Column(" ".join(cell.split()))
    name.header = cell
    return name


def _header(path: Path, cells: list[str]) -> tuple[str, ...]:
    names = tuple(map(_name, cells))
    if not all(map(is_utf8, names)):
        raise DataError(f"the header of '{path}' is not UTF-8: save the file as UTF-8")
    repeated = [n for n in dict.fromkeys(names) if n and names.count(n) > 1]
    if repeated:
        name = named(repeated[0], names)
        raise DataError(f"the column '{name}' is twice in '{path}': rename one of them")
    # columns without a name (a saved row index) stay apart from each other
    return tuple(name or f"column {i}" for i, name in enumerate(names, 1))


def _lettered_names(head: list[tuple[int, list[str]]]) -> tuple[str, ...] | None:
    """Column names for a file without a header whose rows end in the letter of an option."""
    widths = {len(record) for _, record in head}
    if len(widths) != 1 or (width := widths.pop()) < 4:
        return None
    letters = [chr(ord("A") + i) for i in range(width - 2)]
    if len(letters) > 26 or not all(record[-1].strip() in letters for _, record in head):
        return None
    return ("question", *letters, "answer")


# --- JSON --------------------------------------------------------------------------------------


def _jsonl_rows(stream: Any) -> Iterator[Row]:
    lines = (line for line in stream if line.strip())
    for number, line in enumerate(lines, 1):
        try:
            yield _json_row(number, json.loads(line))
        except (ValueError, RecursionError) as error:
            fault = f"bad JSON: {error}".replace("\n", " ")
            yield Row(number, {UNREADABLE: line.rstrip("\r\n")}, fault)


def _json_rows(path: Path, stream: Any) -> Iterator[Row]:
    try:
        values = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{path}' is not valid JSON: {error}") from None
    if not isinstance(values, list):
        raise DataError(f"'{path}' holds one JSON {type(values).__name__}: a list was expected")
    return (_json_row(number, value) for number, value in enumerate(values, 1))


def _json_row(number: int, value: object) -> Row:
    if not isinstance(value, dict):
        fault = f"bad JSON: an object was expected, not {type(value).__name__}"
        return Row(number, {UNREADABLE: value}, fault)
    if not all(map(is_utf8, value)):
        return Row(number, {UNREADABLE: value}, "bad encoding: a key is not UTF-8")
    return Row(number, value)


# --- Parquet -----------------------------------------------------------------------------------


@contextmanager
def _open_parquet(path: Path) -> Iterator[Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=1024))
            rows = starmap(Row, enumerate(chain.from_iterable(batches), 1))
            names = [Column(field.name) for field in file.schema_arrow]
            for name, field in zip(names, file.schema_arrow, strict=True):
                name.type = field.type
            yield table_from("parquet", names, rows)
    except pa.ArrowException as error:
        reason = str(error).split(". ")[0].splitlines()[0]
        raise DataError(f"the Parquet file '{path}' is truncated or damaged: {reason}") from None


# --- data frames -------------------------------------------------------------------------------


def table_of(frame: Any) -> Table | None:
    """The table of a data frame of pandas or polars, or of a `datasets.Dataset`; else None.

    The index of pandas, unless it counts the rows, is the column `id` of a frame that has none.
    """
    columns = getattr(frame, "column_names", None)
    if isinstance(columns, list) and hasattr(frame, "features"):
        return table_from("memory", columns, list(_rows(frame)))
    columns = getattr(frame, "columns", None)
    if columns is None or not (hasattr(frame, "to_dicts") or hasattr(frame, "to_dict")):
        return None
    names = [str(name) for name in columns]
    is_polars = hasattr(frame, "to_dicts")
    records = frame.to_dicts() if is_polars else frame.to_dict("records")
    index: Any = getattr(frame, "index", None)
    index_is_id = "id" not in names and index is not None and type(index).__name__ != "RangeIndex"
    if index_is_id and index.is_unique:
        names.append("id")
        records = [{**row, "id": str(key)} for key, row in zip(index, records, strict=True)]
    rows = [Row(n, {str(k): v for k, v in record.items()}) for n, record in enumerate(records, 1)]
    return table_from("memory", names, rows)


def _rows(loaded: Any) -> Iterator[Row]:
    """The rows of a `datasets.Dataset`, with the names of classes in place of their numbers."""
    names = {
        column: feature.names
        for column, feature in loaded.features.items()
        if hasattr(feature, "names") and isinstance(feature.names, list)
    }
    for number, values in enumerate(loaded, 1):
        row = dict(values)
        for column, class_names in names.items():
            index = row.get(column)
            # the hub marks a hidden label by -1
            row[column] = class_names[index] if isinstance(index, int) and index >= 0 else None
        yield Row(number, row)
