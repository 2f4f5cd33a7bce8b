"""Sheets of questions, with files of the classes and the instructions, written atomically.

A sheet is CSV, or a workbook (.xlsx) with a list of answers to choose from in each row.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from stacksl.data import Classes
from stacksl.data.writing import cell_text
from stacksl.errors import DataError
from stacksl.files.atomic import replace_file
from stacksl.labelers.sheets.cells import (
    LETTERED,
    class_cells,
    has_letters,
    is_taken,
    question_cells,
    sign,
    visible,
)
from stacksl.labelers.sheets.rows import COLUMNS, SheetRow

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

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
    list_name = None if classes is None else f"sheet {CLASSES}" if book else f"file {listed_in}"
    lines = [question_cells(row, list_name, guard=not book) for row in rows]
    if book:
        options, table = [row.options for row in rows], list[tuple[str, str, str]]()
        is_long = any(len(texts) > LETTERED for texts in options)
        if classes is not None and (is_long or any(classes.descriptions)):
            table = class_cells(classes, guard=False)
        write_file(path, workbook(lines, options, table), mode)
        return
    if classes is not None and len(classes.names) > LETTERED:
        class_table = _table(class_cells(classes, guard=True))
        write_file(path.parent / listed_in, _MARK + class_table, mode)
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
    heading = "\nSheets that newer ones replace\n" if replaced else ""
    text = HOWTO + heading + "".join(lines)
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


# A workbook ------------------------------------------------------------------------------------

QUESTIONS, CLASSES, LISTS, ANSWERING = "Questions", "Classes", "Lists", "How to answer"

_WIDTHS = (10, 70, 44, 26, 30)  # of the columns, in characters
_LINE, _TALLEST = 15, 400  # height of a line and of the tallest row, in points
_LONG = 200  # characters from which a choice is the option's letter or number alone
_TEXT = "@"  # the number format of a text: what is typed is neither a number nor a date
_EPOCH = (1980, 1, 1, 0, 0, 0)


def workbook(
    rows: Sequence[tuple[str, str, str]],
    options: Sequence[tuple[str, ...]],
    classes: Sequence[Sequence[str]],
) -> bytes:
    """The workbook of the questions; the same bytes for the same rows.

    The first sheet has a row for each question: `key, prompt, options, answer, note`, the last two
    empty. Its header is frozen; a choice list in `answer` offers the options and the words, and
    anything else may be typed. The cells of `key` cannot be typed over, yet all rows can be sorted
    and filtered, which a protected sheet would not let. A table of `classes` that is not empty gets
    a sheet of its own.
    """
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.worksheets[0]
    sheet.title = QUESTIONS
    fill(sheet, [COLUMNS, *((*row, "", "") for row in rows)], _WIDTHS)
    _mark(sheet, len(rows) + 1)
    if classes:
        fill(book.create_sheet(CLASSES), classes, (10, 40, 70))
    fill(
        book.create_sheet(ANSWERING), [(line,) for line in HOWTO.splitlines()], (100,), header=False
    )
    _choices(book, sheet, options)
    return packed(book)


def fill(
    sheet: Worksheet, table: Sequence[Sequence[str]], widths: Sequence[int], *, header: bool = True
) -> None:
    """Write texts, wrapped, below a header that stays in view."""
    from openpyxl.styles import Alignment, Font, PatternFill
    from openpyxl.utils import get_column_letter

    for number, row in enumerate(table, 1):
        for column, text in enumerate(row, 1):
            _put(sheet, number, column, text).alignment = Alignment(wrap_text=True, vertical="top")
        lines = max(map(_lines, row, widths))
        sheet.row_dimensions[number].height = min(_LINE * lines, _TALLEST)
    for column, width in enumerate(widths, 1):
        sheet.column_dimensions[get_column_letter(column)].width = width
    if header:
        for cell in sheet[1]:
            cell.font, cell.fill = Font(bold=True), PatternFill("solid", fgColor="DDE3EA")
        sheet.freeze_panes = "A2"


def _lines(text: str, width: int) -> int:
    """The lines that a wrapped text takes, some too many rather than too few."""
    return sum(1 + len(line) // max(width - 6, 1) for line in text.split("\n"))


def _put(sheet: Worksheet, row: int, column: int, text: str) -> Any:
    """Write a cell that stays a text: no number, no date, never run as a formula."""
    cell: Any = sheet.cell(row, column)
    cell.number_format = _TEXT
    if text:
        cell.value = cell_text(visible(text))
        cell.data_type = "s"
        cell.quotePrefix = True
    return cell


def _mark(sheet: Worksheet, last_row: int) -> None:
    """Mark the columns that are to be left alone, and prepare filters."""
    from openpyxl.styles import Font, PatternFill
    from openpyxl.worksheet.datavalidation import DataValidation

    for (cell,) in sheet.iter_rows(min_row=2, max_row=last_row, max_col=1):
        cell.fill, cell.font = PatternFill("solid", fgColor="EEEEEE"), Font(color="666666")
    for (cell,) in sheet.iter_rows(min_row=2, max_row=last_row, min_col=4, max_col=4):
        cell.fill = PatternFill("solid", fgColor="FFF8E0")
    sheet.auto_filter.ref = f"A1:E{last_row}"
    keep = DataValidation("custom", formula1="FALSE", allow_blank=False)
    keep.errorTitle, keep.error = "key", "The key names the question: leave it as it is."
    keep.showErrorMessage = True
    keep.add(f"A2:A{last_row}")
    sheet.add_data_validation(keep)


def _choices(book: Workbook, sheet: Worksheet, options: Sequence[tuple[str, ...]]) -> None:
    """A choice list for each row; rows with the same options share one, in a hidden sheet."""
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    lists = book.create_sheet(LISTS)
    lists.sheet_state = "hidden"
    rules: dict[tuple[str, ...], DataValidation] = {}
    for row, row_options in enumerate(options, 2):
        if row_options not in rules:
            column = len(rules) + 1
            for number, text in enumerate(offered(row_options), 1):
                _put(lists, number, column, text)
            letter = get_column_letter(column)
            cell_range = f"'{LISTS}'!${letter}$1:${letter}${number}"
            rules[row_options] = DataValidation("list", formula1=cell_range, allow_blank=True)
            sheet.add_data_validation(rules[row_options])
        rules[row_options].add(f"D{row}")


def offered(options: tuple[str, ...]) -> list[str]:
    """What can be chosen: `A) text` of few options, the names of many; then the words.

    Of a long text, or one of several lines, the letter or number alone.
    """
    taken, choices = is_taken(options), list[str]()
    for position, text in enumerate(map(visible, options)):
        mark = f"{sign(position, options)})"
        if len(text) > _LONG or "\n" in text:
            choices.append(mark)
        else:
            choices.append(f"{mark} {text}" if taken or has_letters(options) else text)
    words = ("none", "ambiguous", "broken")
    return [*choices, *(f"[{word}]" if taken else word for word in words)]


def packed(book: Workbook) -> bytes:
    """The workbook's file without times of day, so that the same rows give the same bytes."""
    from openpyxl.writer.excel import save_workbook

    dated_file, packed_file = io.BytesIO(), io.BytesIO()
    save_workbook(book, dated_file)
    with ZipFile(dated_file) as old, ZipFile(packed_file, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb">\d{4}-\d\d-\d\dT[\d:]+Z<", b">2000-01-01T00:00:00Z<", content)
            new.writestr(ZipInfo(name, _EPOCH), content, ZIP_DEFLATED)
    return packed_file.getvalue()
