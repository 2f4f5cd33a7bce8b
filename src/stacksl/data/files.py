"""Files to text and CSV records: what kind of file it is, and faults that concern all of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import IO, cast

from stacksl.data.columns import names_columns
from stacksl.errors import DataError

DELIMITERS = ",;\t"
HEAD = 1 << 16  # bytes that decide the kind of a file
_LOOKED_AT = 1 << 22  # bytes that decide its encoding
_GENERIC = frozenset({"train", "test", "dev", "val", "valid", "data", "items"})

_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
}
_KNOWN = "CSV, TSV, JSONL, JSON, Parquet, .xlsx or lines of a .txt file, text perhaps gzipped"
WORKBOOK, _OLD_WORKBOOK = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
MARK = b"\xef\xbb\xbf"  # of UTF-8
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16
_FIELD_LIMIT = 1 << 27  # characters; a longer CSV field is refused
_END = "\x1e\x1eend"  # no delimiter in it, which would split it in two


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report a system error while `path` is read as a `DataError` of one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'{_near(path)}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(
            f"the gzip file '{path}' is truncated or damaged: fetch or compress it again"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"the text of '{path}' is damaged UTF-16: save it as UTF-8") from None
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read ({error.strerror or error}): name a file that you may read"
        ) from None


def _near(path: Path) -> str:
    if any(part.startswith("hf:") for part in path.parts):
        return (
            ": save a data set of the Hugging Face hub as CSV, Parquet or JSON lines first, with"
            " the library datasets, or load it in Python and give it to stacksl.run"
        )
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f": the folder '{path.parent}' does not exist either"
    matches = get_close_matches(path.name, names, n=1)
    return f": did you mean '{matches[0]}'?" if matches else ""


def absolute_path(path: Path) -> str:
    """The absolute `path` without links, but of a pipe as it was given: it is no link's target."""
    target = path.resolve()
    is_pipe = os.path.exists(path) and not os.path.exists(target)  # False for too long a name
    return str(path.absolute() if is_pipe else target)


def stem(path: Path) -> str:
    """The file's name without its endings: `pool.jsonl.gz` is `pool`.

    A generic name follows that of its folder: `banking77/train.csv` is `banking77-train`.
    """
    name = path.name.removesuffix(".gz")
    name = Path(name).stem or name
    folder = path.resolve().parent.name
    return f"{folder}-{name}" if name.lower() in _GENERIC and folder else name


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if is_packed else path.open("rb")


def head_of(path: Path, formats: str = _KNOWN) -> bytes:
    """The first `HEAD` bytes of `path`, decompressed; `formats` are those to name.

    Raises:
        DataError: the file is missing, a folder, unreadable, empty or binary.
    """
    with reading(path):
        if path.is_dir():
            raise DataError(f"'{path}' is a folder: give one file ({formats})")
        if path.exists() and not path.is_file():
            raise DataError(f"'{path}' is a pipe or a device: save it as a file, it is read twice")
        with _open(path) as stream:
            head = stream.read(HEAD)
    if not head.removeprefix(MARK).strip():
        raise DataError(f"the file '{path}' is empty: items were expected ({formats})")
    if head.startswith((b"PAR1", WORKBOOK, *WIDE_MARKS)):
        return head
    if head.startswith(_OLD_WORKBOOK):
        raise DataError(f"'{path}' is an old (.xls) or encrypted workbook: save it as .xlsx")
    if b"\0" in head:
        raise DataError(f"the file '{path}' is binary, not text: items were expected ({formats})")
    return head


def container_of(path: Path, head: bytes, columns: Collection[str] = ()) -> str:
    """One of `csv`, `tsv`, `jsonl`, `json`, `parquet`, `xlsx`, `lines`: by content, then by name.

    Standard input and .txt files are lines with an item each, unless the first one has a tab, one
    of these `columns` or a usual name of one.
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(WORKBOOK):
        return "xlsx"
    by_name = _EXTENSIONS.get(Path(path.name.removesuffix(".gz")).suffix.lower())
    if by_name in ("parquet", "xlsx"):
        raise DataError(f"'{path}' is not a file of the kind that its name says")
    text = head.decode(encoding_of(path), errors="replace").encode().lstrip()
    if text.startswith(b"{") and (by_name is None or by_name == "json" or _is_object(text)):
        return "jsonl"
    if text.startswith(b"[") and by_name in (None, "json"):
        return "json"
    if by_name is not None:
        return "jsonl" if by_name == "json" else by_name
    line = text.split(b"\n", 1)[0]
    if b"\t" in line:
        return "tsv"
    cells = [cell.strip('" ') for cell in re.split("[,;]", line.decode(errors="replace").strip())]
    is_text = Path(path.name.removesuffix(".gz")).suffix.lower() in ("", ".txt")
    if is_text and not names_columns(cells) and not {*cells} & {*columns}:
        return "lines"
    if is_text or len(cells) > 1:
        return "csv"
    raise DataError(
        f"cannot tell what '{path}' holds by its name or its content: "
        f"{_KNOWN} was expected; say which with format="
    )


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text.split(b"\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        return False


def encoding_of(path: Path, *, mixed: bool = True) -> str:
    """UTF-8 or UTF-16 by its mark; cp1252 of a table where only ASCII is UTF-8; else UTF-8.

    Spreadsheet programs write all three. A file with other letters in UTF-8 is UTF-8 with damage,
    and so is JSON; one that is not `mixed`, as a single program wrote it, is then cp1252.
    """
    with reading(path), _open(path) as stream:
        start = stream.read(_LOOKED_AT)
    if start.startswith(WIDE_MARKS):
        return "utf-16"
    text = start.decode("utf-8-sig", errors="surrogateescape")
    text = text[: len(text) - 3 * (len(start) == _LOOKED_AT)]  # the last letter may be cut
    bad_byte = re.search("[\udc80-\udcff]", text)
    letters = mixed and re.search("[\x80-\udc7f\udd00-\U0010ffff]", text)
    is_utf8 = letters or start.startswith(MARK)
    if not bad_byte or is_utf8 or text.lstrip()[:1] in ("{", "["):
        return "utf-8-sig"
    try:
        start.decode("cp1252")
    except UnicodeDecodeError:
        return "utf-8-sig"
    return "cp1252"


@contextmanager
def open_text(path: Path, *, mixed: bool = True) -> Iterator[IO[str]]:
    """The file's text, decompressed; bytes that are not UTF-8 become lone surrogates.

    A surrogate marks the row that holds it, so that one bad byte costs one row and not the file.
    """
    with (
        reading(path),
        _open(path) as stream,
        io.TextIOWrapper(
            stream, encoding_of(path, mixed=mixed), errors="surrogateescape", newline=""
        ) as text,
    ):
        yield text


def csv_records(
    path: Path, lines: Iterable[str], delimiter: str, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV text, each with the number of the line on which it begins.

    The `lines` have their ends. A quote that closes before the end of its cell is a fault if
    `strict`, or if it opened on an earlier line, since the lines between may be rows.

    Raises:
        DataError: a quote never closes, or the text is no CSV.
    """
    csv.field_size_limit(max(_FIELD_LIMIT, csv.field_size_limit()))
    # Python's reader takes an open quote at the end for a closed one. A last line of our own shows
    # it: the line is not read as a record of its own.
    taken, start = list[str](), 1

    def noted() -> Iterator[str]:
        for line in chain(lines, ["\n", _END]):
            taken.append(line)
            yield line

    reader = csv.reader(noted(), delimiter=delimiter, strict=strict)
    try:
        for record in reader:
            if record == [_END]:
                return
            if record and _END in record[-1]:
                raise csv.Error("a quote opened there or after never closes")
            if len(taken) > 1:
                list(csv.reader(taken, delimiter=delimiter, strict=True))
            taken.clear()
            yield start, record
            start = reader.line_num + 1
    except csv.Error as error:
        why = "a quote closes inside a cell" if "expected after" in str(error) else error
        raise DataError(
            f"'{path}' is not valid CSV near line {start} ({why}): correct its quotes, or save it"
            " again in the spreadsheet program, as .xlsx or as 'CSV UTF-8'"
        ) from None
