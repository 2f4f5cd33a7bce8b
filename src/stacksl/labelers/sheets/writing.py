"""Sheets of questions, and the list of classes beside them, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stacksl.data.exchange.label_studio import CONFIG
from stacksl.errors import DataError
from stacksl.files.atomic import replace_file
from stacksl.labelers.sheets.cells import guarded, is_too_long, shortened, visible
from stacksl.labelers.sheets.options import listed, pointed
from stacksl.labelers.sheets.rows import COLUMNS, Asked
from stacksl.labelers.sheets.signs import LETTERED
from stacksl.labelers.sheets.tasks import CONFIG_FILE, tasks
from stacksl.labelers.sheets.workbook_writing import CLASSES, workbook

_MARK = "\ufeff"  # tells Excel that the file is UTF-8


class ClassList(NamedTuple):
    """The classes of a run with fixed classes: in every sheet the same, in this order.

    Attributes:
        file: name of the file of `write_classes` beside the sheets, which CSV sheets refer to.
        names: the classes' names; the first has number 1.
        descriptions: what each of them means; empty where nothing is said.
    """

    file: str
    names: tuple[str, ...]
    descriptions: tuple[str, ...]


def write_sheet(
    path: Path,
    rows: Sequence[Asked],
    *,
    mode: int = 0o600,
    classes: ClassList | None = None,
    howto: str = "",
    separator: str = ",",
) -> tuple[Path, ...]:
    """Write a file of questions: `key, prompt, options, answer, note`, the last two empty.

    A name that ends in `.xlsx` makes a `workbook`, `.json` tasks of Label Studio, with the
    labeling configuration beside them. Any other makes CSV: UTF-8 with a byte-order
    mark and CRLF between rows, in cells that are safe to open (`guarded`). A text too long for a
    cell of Excel is shortened; the whole text is in `KEY.txt` beside the sheet.

    Args:
        path: the file; an existing one may hold answers and is not changed.
        rows: the questions, each with a key of its own.
        mode: permission bits of the files.
        classes: what rows with more than 26 options refer to; without it such rows list them in
            the cell, numbered.
        howto: the instructions, for a workbook.
        separator: between cells of CSV; `;` opens better where the decimal sign is a comma.

    Returns:
        The files written, the sheet first.

    Raises:
        DataError: the file is there with another content, or cannot be written.
        ValueError: two rows have one key.
    """
    if len({row.key for row in rows}) < len(rows):
        raise ValueError("two rows of a sheet have the same key")
    if path.suffix == ".json":
        write_file(path.parent / CONFIG_FILE, CONFIG, mode, replace=True)
        write_file(path, tasks(rows), mode)
        return (path,)
    book = path.suffix == ".xlsx"
    where = None if classes is None else f"sheet {CLASSES}" if book else f"file {classes.file}"
    texts: dict[Path, str] = {}
    lines = []
    for row in rows:
        cells, whole = _cells(row, where, str if book else guarded)
        lines.append(cells)
        if whole is not None:
            texts[path.parent / f"{row.key}.txt"] = whole
    for place, text in texts.items():
        write_file(place, _MARK + text, mode)
    if book:
        shown = [(*cells, row.options) for cells, row in zip(lines, rows, strict=True)]
        many = any(len(row.options) > LETTERED for row in rows)
        listed_in = classes if classes is not None and (many or any(classes.descriptions)) else None
        pairs = [] if listed_in is None else list(zip(*listed_in[1:], strict=True))
        write_file(path, workbook(shown, pairs, howto), mode)
    else:
        table = [COLUMNS, *((*cells, "", "") for cells in lines)]
        write_file(path, _MARK + _table(table, separator), mode)
    return (path, *texts)


def write_classes(folder: Path, classes: ClassList, mode: int = 0o600) -> None:
    """Write the classes that CSV sheets refer to: `number, name, description`.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    rows = [
        (str(number), guarded(visible(name)), guarded(visible(said)))
        for number, (name, said) in enumerate(zip(*classes[1:], strict=True), 1)
    ]
    table = [("number", "name", "description"), *rows]
    write_file(folder / classes.file, _MARK + _table(table, ","), mode)


def _cells(
    row: Asked, where: str | None, safe: Callable[[str], str]
) -> tuple[tuple[str, str, str], str | None]:
    """The row's cells, and the whole text where a cell is too short for it."""
    if where is not None and len(row.options) > LETTERED:
        options = pointed(row.options, where)
    else:
        options = listed(row.options)
    prompt = visible(row.prompt)
    cell, shown = safe(prompt), safe(options)
    whole = None
    if is_too_long(cell) or is_too_long(shown):
        whole = f"{prompt}\n\n{options}\n"
        words = f"[... all of it is in the file {row.key}.txt beside this sheet]"
        cell, shown = (shortened(c, words) if is_too_long(c) else c for c in (cell, shown))
    return (row.key, cell, shown), whole


def _table(rows: Iterable[Sequence[str]], separator: str) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return stream.getvalue()


def write_file(path: Path, content: str | bytes, mode: int, *, replace: bool = False) -> None:
    """Write a text as UTF-8, or bytes; a crash leaves all of the file or none.

    A file of the same content is left as it is; one of another content only `replace` takes away.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    payload = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not replace:
            if path.read_bytes() != payload:
                raise DataError(f"'{path}' is there already and may hold answers: move it away")
            path.chmod(mode)
            return
        replace_file(path, payload, mode)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
