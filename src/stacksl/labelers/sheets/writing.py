"""Sheets of questions, with files of the classes and the instructions, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stacksl.data import Classes
from stacksl.errors import DataError
from stacksl.files.atomic import replace_file
from stacksl.labelers.sheets.cells import LETTERED, class_cells, question_cells
from stacksl.labelers.sheets.rows import COLUMNS, SheetRow
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
    rows: Sequence[SheetRow],
    classes: Classes | None = None,
    listed_in: str = "classes.csv",
    *,
    mode: int = 0o600,
) -> None:
    """Write a file of questions: `key, prompt, options, answer, note`, the last two empty.

    A name that ends in `.xlsx` makes a `workbook`. Any other makes CSV: UTF-8 with a byte-order
    mark and CRLF between rows, in cells that are safe to open (`guarded`). A text too long for a
    cell of Excel is shortened.

    Args:
        path: the file; an existing one may hold answers and is not changed.
        rows: the questions, each with a key of its own.
        classes: what rows with more than 26 options refer to; without it such rows list them in
            the cell, numbered.
        listed_in: the file next to a CSV that lists such classes: `number, name, description`.
        mode: permission bits of the files.

    Raises:
        DataError: the file is there with another content, or cannot be written.
    """
    book = path.suffix == ".xlsx"
    where = None if classes is None else f"sheet {CLASSES}" if book else f"file {listed_in}"
    lines = [question_cells(row, where, guard=not book) for row in rows]
    if book:
        cells_and_options = [(*cells, row.options) for cells, row in zip(lines, rows, strict=True)]
        many = any(len(row.options) > LETTERED for row in rows)
        needed = classes is not None and (many or any(classes.descriptions))
        table = class_cells(classes, guard=False) if classes is not None and needed else []
        write_file(path, workbook(cells_and_options, table, HOWTO), mode)
        return
    if classes is not None and len(classes.names) > LETTERED:
        listed = _table(class_cells(classes, guard=True))
        write_file(path.parent / listed_in, _MARK + listed, mode)
    write_file(path, _MARK + _table([COLUMNS, *((*cells, "", "") for cells in lines)]), mode)


def _table(rows: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerows(rows)
    return stream.getvalue()


def write_howto(folder: Path, replaced: Mapping[str, str], *, mode: int = 0o600) -> Path:
    """Write `HOWTO.txt` into the folder of the sheets, and return its path.

    It names each sheet that is `replaced` by a newer one.

    Raises:
        DataError: it cannot be written.
    """
    path = folder / "HOWTO.txt"
    lines = (f"  {old}: fill in {new}, which has its open rows\n" for old, new in replaced.items())
    text = HOWTO + "\nSheets that newer ones replace\n" * bool(replaced) + "".join(lines)
    write_file(path, _MARK + text.replace("\n", "\r\n"), mode, replace=True)
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
                raise DataError(f"'{path}' exists already and may hold answers: move it away")
            path.chmod(mode)
            return
        replace_file(path, payload, mode)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
