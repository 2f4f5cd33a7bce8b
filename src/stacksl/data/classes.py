"""Files of what can be chosen: classes with descriptions, and banks of answers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stacksl.data.columns import find
from stacksl.data.files import container_of, head_of, reading
from stacksl.data.tables import open_table
from stacksl.data.values import RowFault, one_line, text
from stacksl.errors import DataError


@dataclass(frozen=True, slots=True)
class Classes:
    """A fixed label set, in the order of its file.

    Attributes:
        names: two or more different texts.
        descriptions: of each, empty where there is none.
    """

    names: tuple[str, ...]
    descriptions: tuple[str, ...]


def read_classes(path: str | Path) -> Classes:
    """The classes in a text file: `name`, or `name, description`, one a line.

    A tab separates them where the file has any, else the first comma outside quotes;
    empty lines are passed over, and so is a first line `name` or `name, description`.

    Raises:
        DataError: the file cannot be read, holds fewer than two classes, one of them twice, or a
            line that begins with a separator.
    """
    place = Path(path)
    found: dict[str, tuple[int, str]] = {}
    for line, name, description in _lines(_text(place)):
        if not name:
            raise DataError(f"line {line} of {place} has no class before its separator: add it")
        if name in found:
            raise DataError(
                f"line {line} of {place} repeats the class of line {found[name][0]}: give each"
                " class once"
            )
        found[name] = (line, description)
    if len(found) < 2:
        raise DataError(
            f"{place} should hold two classes or more, one a line, but has {len(found)}"
        )
    return Classes(tuple(found), tuple(description for _, description in found.values()))


@dataclass(frozen=True, slots=True)
class Bank:
    """Answers that all items share, too many to be given whole to each.

    Attributes:
        texts: two or more different texts, in the order of the file.
        places: text, and id where the file has ids, to the place in `texts`.
    """

    texts: tuple[str, ...]
    places: Mapping[str, int]


def read_bank(path: str | Path) -> Bank:
    """The answers in a CSV, JSONL or Parquet file: a column of texts, and ids if it has any.

    A text that is there twice is one answer, which both ids name. A text wins over an equal id.

    Raises:
        DataError: the file cannot be read, has no column of texts, fewer than two answers, or one
            id for two texts.
    """
    place = Path(path)
    head = head_of(place)
    texts: dict[str, int] = {}
    ids: dict[str, int] = {}
    with open_table(place, container_of(place, head), head) as table:
        column = _answers_of(table.columns, place)
        named = next((c for c in (*_IDS, find("id", table.columns)) if c in table.columns), None)
        for row in table.rows:
            if row.fault is not None:
                raise DataError(f"row {row.number} of the bank {place} is unusable: {row.fault}")
            try:
                answer = text(row.values.get(column), "the answer")
                name = text(row.values.get(named), "the id") if named else ""
            except RowFault as fault:
                raise DataError(f"row {row.number} of the bank {place}: {fault}") from None
            if not answer:
                continue
            at = texts.setdefault(answer, len(texts))
            if name and ids.setdefault(name, at) != at:
                raise DataError(
                    f"row {row.number} of the bank {place} gives another answer the id of an"
                    " earlier row: give each answer an id of its own"
                )
    if len(texts) < 2:
        raise DataError(
            f"the bank {place} should hold two different answers or more, but has {len(texts)}"
        )
    return Bank(tuple(texts), {**ids, **texts})


_TEXTS = ("text", "answer", "answers", "response", "content", "candidate", "document")
_IDS = ("answer_bank_id", "answer_id", "bank_id")


def _answers_of(columns: Iterable[str], place: Path) -> str:
    """The column of the answers' texts: by name, or the only one."""
    known = list(columns)
    found = [name for name in _TEXTS if name in known] or (known if len(known) == 1 else [])
    if not found:
        raise DataError(
            f"the bank {place} should have a column 'text' or 'answer', but none of its"
            f" {len(known)} columns is called so: rename the column that holds the answers"
        )
    return found[0]


def write_classes(classes: Classes) -> str:
    """The text that `read_classes` reads again."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_HEADER)
    for name, description in zip(classes.names, classes.descriptions, strict=True):
        writer.writerow([name, description])
    return buffer.getvalue()


def _text(path: Path) -> str:
    with reading(path):
        raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"the file of classes {path} is not UTF-8: save it as UTF-8") from None


def _lines(text: str) -> Iterable[tuple[int, str, str]]:
    """(line, name, description) of the lines that are not empty."""
    separator = "\t" if "\t" in text else ","
    if "\0" in text:
        raise DataError("a file of classes is text, but this one holds NUL characters")
    rows = csv.reader(text.splitlines(), delimiter=separator, skipinitialspace=True)
    for number, row in enumerate(rows, start=1):
        cells = [one_line(cell) for cell in row]
        if not any(cells):
            continue
        if number == 1 and [cell.casefold() for cell in cells] in (_HEADER, _HEADER[:1]):
            continue
        yield number, cells[0], (", " if separator == "," else " ").join(cells[1:]).strip()


_HEADER = ["name", "description"]
