"""Sheets of questions, and the list of classes beside them, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stacksl.data import Classes
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


def write_sheet(
    path: Path,
    rows: Sequence[Asked],
    classes: Classes | None = None,
    listed_in: str = "classes.csv",
    *,
    mode: int = 0o600,
    howto: str = "",
) -> tuple[Path, ...]:
    """Write a file of questions: `key, prompt, options, answer, note`, the last two empty.

    A name that ends in `.xlsx` makes a `workbook`, `.json` tasks of Label Studio, with the
    labeling configuration beside them. Any other makes CSV: UTF-8 with a byte-order
    mark and CRLF between rows, in cells that are safe to open (`guarded`). A text too long for a
    cell of Excel is shortened; the whole text is in `KEY.txt` beside the sheet.

    Args:
        path: the file; an existing one may hold answers and is not changed.
        rows: the questions, each with a key of its own.
        classes: what rows with more than 26 options refer to; without it such rows list them in
            the cell, numbered.
        listed_in: the file beside CSV that lists such classes: `number, name, description`.
        mode: permission bits of the files.
        howto: the instructions, for a workbook.

    Returns:
        The files written, the sheet first.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    if path.suffix == ".json":
        write_file(path.parent / CONFIG_FILE, CONFIG, mode, replace=True)
        write_file(path, tasks(rows), mode)
        return (path,)
    book = path.suffix == ".xlsx"
    where = None if classes is None else f"sheet {CLASSES}" if book else f"file {listed_in}"
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
        needed = classes is not None and (many or any(classes.descriptions))
        write_file(path, workbook(shown, _numbered(classes if needed else None), howto), mode)
        return (path, *texts)
    if classes is not None and len(classes.names) > LETTERED:
        table = [(n, guarded(visible(a)), guarded(visible(b))) for n, a, b in _numbered(classes)]
        write_file(path.parent / listed_in, _MARK + _table(table), mode)
    write_file(path, _MARK + _table([COLUMNS, *((*cells, "", "") for cells in lines)]), mode)
    return (path, *texts)


def _numbered(classes: Classes | None) -> list[tuple[str, str, str]]:
    """The classes as a table: `number, name, description`."""
    if classes is None:
        return []
    pairs = zip(classes.names, classes.descriptions, strict=True)
    rows = [(str(number), name, said or "") for number, (name, said) in enumerate(pairs, 1)]
    return [("number", "name", "description"), *rows]


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


def _table(rows: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerows(rows)
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
