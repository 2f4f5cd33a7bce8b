"""A file of classes: a name a line, each with a description if there is one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stacksl.data.files import reading
from stacksl.data.values import one_line
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
