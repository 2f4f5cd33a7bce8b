"""Questions to people as files a spreadsheet opens, and their answers back."""

from stacksl.labelers.sheets.keys import is_key, new_key
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Asked, Fault, Reply, Said, Sheet
from stacksl.labelers.sheets.tasks import without_tasks
from stacksl.labelers.sheets.workbook_erasing import texts_in, without_rows
from stacksl.labelers.sheets.writing import HOWTO, write_howto, write_sheet

__all__ = [
    "HOWTO",
    "Asked",
    "Fault",
    "Reply",
    "Said",
    "Sheet",
    "is_key",
    "new_key",
    "read_sheet",
    "texts_in",
    "without_rows",
    "without_tasks",
    "write_howto",
    "write_sheet",
]
