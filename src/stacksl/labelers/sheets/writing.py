"""Sheets of questions, with the classes and the instructions beside them, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from stacksl.data import Classes
from stacksl.errors import DataError
from stacksl.files.atomic import replace_file
from stacksl.labelers.sheets.cells import (
    LETTERED,
    bare_numbers,
    guarded,
    is_too_long,
    shortened,
    sign,
    visible,
)
from stacksl.labelers.sheets.meaning import is_taken
from stacksl.labelers.sheets.rows import COLUMNS, Asked
from stacksl.labelers.sheets.workbook_writing import CLASSES, workbook

_MARK = "\ufeff"  # tells Excel that the file is UTF-8

HOWTO = """\
How to answer
=============

Open the file in a spreadsheet program. Each row is one question. Choose an answer from the list
in the column "answer" (.xlsx), or type it; leave the columns "key", "prompt" and "options" as they
are. You may answer some rows now and the rest later, filter, sort or delete whole rows, and send
the file back as often as you like.

What to write into "answer"
  B               the letter before the option
  2               its number, where the first option is 1 (the letter B is number 2)
  the text        of the option, as it stands
  none            none of the options is right
  none: the text  none is right, and this would be
  ambiguous or ?  more than one is right, or it cannot be decided
  broken          the question is damaged or makes no sense

Leave the answer empty where you do not know yet. Remarks go into the column "note".

Lists of more than 26 options, and options that are single letters, have numbers instead of
letters. Where the cell names a sheet or a file of classes, the numbers and names are there.

Where an option's whole text is a letter, a number or a word such as none, that text means that
option. To mean the letter write B) with the bracket, to mean the word write [none].

Saving
  Save the file in the format in which you got it (LibreOffice: "Keep Current Format"). .xlsx and
  CSV are both read, whichever you were given; .ods and .xls are not. CSV may have commas,
  semicolons or tabs between the cells.

CSV files only: if all columns are in one when you open the file, import it instead (in Excel Data,
From Text/CSV; choose UTF-8 and the comma). An apostrophe (') before a text that begins with
= + - or @, or looks like a number or a date, keeps the spreadsheet from changing it. It is not
part of the text.
"""


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

    A name that ends in `.xlsx` makes a `workbook`. Any other makes CSV: UTF-8 with a byte-order
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


@lru_cache(maxsize=64)
def listed(options: tuple[str, ...]) -> str:
    """All options, a line each: `A) text`; lines of one option after its first are set in."""
    lines = [
        f"{sign(n, options)}) " + visible(text).replace("\n", "\n   ")
        for n, text in enumerate(options)
    ]
    return "\n".join([*lines, *_warning(options)])


@lru_cache(maxsize=64)
def pointed(options: tuple[str, ...], where: str) -> str:
    """Where the options are listed, in place of a list that is too long for a cell."""
    ways = f"number (1 to {len(options)}) or name" if bare_numbers(options) else "name"
    return "\n".join([f"{ways} of one of the classes in the {where}", *_warning(options)])


def _warning(options: tuple[str, ...]) -> list[str]:
    """A line for options whose text is the letter or number of another, or a word like `none`."""
    if not is_taken(options):
        return []
    return [
        "(the text of some option is a letter, a number or a word such as none: that text alone "
        f"means that option; write {sign(0, options)}) for the first option, [none] for none)"
    ]


def write_howto(folder: Path, *, mode: int = 0o600) -> Path:
    """Write `HOWTO.txt` into the folder of the sheets, and return its path.

    Raises:
        DataError: it cannot be written.
    """
    path = folder / "HOWTO.txt"
    write_file(path, _MARK + HOWTO.replace("\n", "\r\n"), mode, replace=True)
    return path


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
