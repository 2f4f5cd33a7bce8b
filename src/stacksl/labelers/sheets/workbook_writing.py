"""A sheet of questions as a workbook (.xlsx), with a list of answers to choose from in each row."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from stacksl.data.writing import cell_text
from stacksl.labelers.sheets.cells import has_letters, is_taken, sign, visible
from stacksl.labelers.sheets.rows import COLUMNS

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

QUESTIONS, CLASSES, LISTS, HOWTO = "Questions", "Classes", "Lists", "How to answer"

_WIDTHS = (10, 70, 44, 26, 30)  # of the columns, in characters
_LINE, _TALLEST = 15, 400  # height of a line and of the tallest row, in points
_LONG = 200  # characters from which a choice is the option's letter or number alone
_TEXT = "@"  # the number format of a text: what is typed is neither a number nor a date
_EPOCH = (1980, 1, 1, 0, 0, 0)

Cells = tuple[str, str, str, tuple[str, ...]]  # key, prompt, options as shown, options


def workbook(rows: Sequence[Cells], classes: Sequence[Sequence[str]], howto: str) -> bytes:
    """The workbook of the questions; the same bytes for the same rows.

    The first sheet has a row for each question: `key, prompt, options, answer, note`, the last two
    empty. Its header is frozen; a choice list in `answer` offers the options and the words, and
    anything else may be typed. The cells of `key` cannot be typed over, yet all rows can be sorted
    and filtered, which a protected sheet would not let.

    Args:
        rows: of each question the key, the prompt and the options as the cells show them, and
            the options.
        classes: a table of the classes, if the rows refer to them, else empty.
        howto: the instructions, for a sheet of their own.
    """
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.worksheets[0]
    sheet.title = QUESTIONS
    fill(sheet, [COLUMNS, *((*row[:3], "", "") for row in rows)], _WIDTHS)
    _mark(sheet, len(rows) + 1)
    if classes:
        fill(book.create_sheet(CLASSES), classes, (10, 40, 70))
    fill(book.create_sheet(HOWTO), [(line,) for line in howto.splitlines()], (100,), header=False)
    _choices(book, sheet, [row[3] for row in rows])
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


def _mark(sheet: Worksheet, last: int) -> None:
    """Mark the columns that are to be left alone, and prepare filters."""
    from openpyxl.styles import Font, PatternFill
    from openpyxl.worksheet.datavalidation import DataValidation

    for (cell,) in sheet.iter_rows(min_row=2, max_row=last, max_col=1):
        cell.fill, cell.font = PatternFill("solid", fgColor="EEEEEE"), Font(color="666666")
    for (cell,) in sheet.iter_rows(min_row=2, max_row=last, min_col=4, max_col=4):
        cell.fill = PatternFill("solid", fgColor="FFF8E0")
    sheet.auto_filter.ref = f"A1:E{last}"
    keep = DataValidation("custom", formula1="FALSE", allow_blank=False)
    keep.errorTitle, keep.error = "key", "The key names the question: leave it as it is."
    keep.showErrorMessage = True
    keep.add(f"A2:A{last}")
    sheet.add_data_validation(keep)


def _choices(book: Workbook, sheet: Worksheet, options: Sequence[tuple[str, ...]]) -> None:
    """A choice list for each row; rows with the same options share one, in a hidden sheet."""
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    lists = book.create_sheet(LISTS)
    lists.sheet_state = "hidden"
    shared: dict[tuple[str, ...], DataValidation] = {}
    for row, row_options in enumerate(options, 2):
        if row_options not in shared:
            column = len(shared) + 1
            for number, text in enumerate(offered(row_options), 1):
                _put(lists, number, column, text)
            letter = get_column_letter(column)
            place = f"'{LISTS}'!${letter}$1:${letter}${number}"
            shared[row_options] = DataValidation("list", formula1=place, allow_blank=True)
            sheet.add_data_validation(shared[row_options])
        shared[row_options].add(f"D{row}")


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

    dated, packed = io.BytesIO(), io.BytesIO()
    save_workbook(book, dated)
    with ZipFile(dated) as old, ZipFile(packed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb">\d{4}-\d\d-\d\dT[\d:]+Z<", b">2000-01-01T00:00:00Z<", content)
            new.writestr(ZipInfo(name, _EPOCH), content, ZIP_DEFLATED)
    return packed.getvalue()
