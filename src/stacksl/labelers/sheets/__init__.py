"""Questions to people as files a spreadsheet opens, and their answers back."""

from stacksl.labelers.sheets.howto import HOWTO, write_howto
from stacksl.labelers.sheets.keys import is_key, new_key
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Asked, Fault, Reply, Said, Sheet, Shown
from stacksl.labelers.sheets.tasks import without_tasks
from stacksl.labelers.sheets.workbook_erasing import texts_in, without_rows
from stacksl.labelers.sheets.writing import ClassList, write_classes, write_sheet

__all__ = [
    "HOWTO",
    "Asked",
    "ClassList",
    "Fault",
    "Reply",
    "Said",
    "Sheet",
    "Shown",
    "is_key",
    "new_key",
    "read_sheet",
    "texts_in",
    "without_rows",
    "without_tasks",
    "write_classes",
    "write_howto",
    "write_sheet",
]
