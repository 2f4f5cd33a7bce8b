"""Sheets of questions, and the list of classes beside them, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from stacksl.errors import DataError
from stacksl.files.atomic import replace_file
from stacksl.labelers.sheets.cells import guarded, is_too_long, shortened, visible
from stacksl.labelers.sheets.options import listed, pointed
from stacksl.labelers.sheets.rows import COLUMNS, Asked
from stacksl.labelers.sheets.signs import LETTERED

_MARK = "\ufeff"  # tells Excel that the file is UTF-8


def write_sheet(
    path: Path,
    rows: Sequence[Asked],
    *,
    mode: int = 0o600,
    classes: str | None = None,
    separator: str = ",",
) -> tuple[Path, ...]:
    """Write a file of questions: `key, prompt, options, answer, note`, the last two empty.

    UTF-8 with a byte-order mark and CRLF between rows. Cells are safe to open (`guarded`). A text
    too long for a cell of Excel is shortened; the whole text is in `KEY.txt` beside the sheet.

    Args:
        path: the file; an existing one may hold answers and is not changed.
        rows: the questions, each with a key of its own.
        mode: permission bits of the files.
        classes: name of the file of `write_classes` that lists the options of rows with more than
            26 of them; without it such rows list them in the cell, numbered.
        separator: between cells; `;` opens better where the decimal sign is a comma.

    Returns:
        The files written, the sheet first.

    Raises:
        DataError: the file is there with another content, or cannot be written.
        ValueError: two rows have one key.
    """
    if len({row.key for row in rows}) < len(rows):
        raise ValueError("two rows of a sheet have the same key")
    texts: dict[Path, str] = {}
    lines = []
    for row in rows:
        cells, whole = _cells(row, classes)
        lines.append(cells)
        if whole is not None:
            texts[path.parent / f"{row.key}.txt"] = whole
    for place, text in texts.items():
        write_file(place, text, mode)
    write_file(path, _table([COLUMNS, *lines], separator), mode)
    return (path, *texts)


def write_classes(
    path: Path,
    names: Sequence[str],
    descriptions: Sequence[str | None],
    order: Sequence[int],
    mode: int = 0o600,
) -> None:
    """Write the classes that rows with many options point to: `number, name, description`.

    Args:
        path: the file, beside the sheets that name it.
        names: the candidates' names, in their own order.
        descriptions: what each of them means; None or an empty text where nothing is said.
        order: indices into `names` in the order of the sheets' options; the first has number 1.
        mode: permission bits of the file.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    rows = [
        (str(number), guarded(visible(names[n])), guarded(visible(descriptions[n] or "")))
        for number, n in enumerate(order, 1)
    ]
    write_file(path, _table([("number", "name", "description"), *rows], ","), mode)


def _cells(row: Asked, classes: str | None) -> tuple[tuple[str, ...], str | None]:
    """The row's cells, and the whole text where a cell is too short for it."""
    if classes is not None and len(row.options) > LETTERED:
        options = pointed(row.options, classes)
    else:
        options = listed(row.options)
    prompt = visible(row.prompt)
    cell, shown = guarded(prompt), guarded(options)
    whole = None
    if is_too_long(cell) or is_too_long(shown):
        whole = f"{prompt}\n\n{options}\n"
        words = f"[... all of it is in the file {row.key}.txt beside this sheet]"
        cell, shown = (shortened(c, words) if is_too_long(c) else c for c in (cell, shown))
    return (row.key, cell, shown, "", ""), whole


def _table(rows: Iterable[Sequence[str]], separator: str) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return stream.getvalue()


def write_file(path: Path, text: str, mode: int, *, replace: bool = False) -> None:
    """Write a text as UTF-8 with a byte-order mark; a crash leaves all of the file or none.

    A file of the same content is left as it is; one of another content only `replace` takes away.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    payload = (_MARK + text).encode()
    try:
        if path.exists() and not replace:
            if path.read_bytes() != payload:
                raise DataError(f"'{path}' is there already and may hold answers: move it away")
            path.chmod(mode)
            return
        replace_file(path, payload, mode)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
