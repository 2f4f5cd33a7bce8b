"""Questions to people as files a spreadsheet opens, and their answers back."""

from stacksl.sheets.howto import write_howto
from stacksl.sheets.keys import is_key, new_key
from stacksl.sheets.reading import read_sheet
from stacksl.sheets.rows import Asked, Fault, Reply, Said, Sheet, Shown
from stacksl.sheets.writing import write_classes, write_sheet

__all__ = [
    "Asked",
    "Fault",
    "Reply",
    "Said",
    "Sheet",
    "Shown",
    "is_key",
    "new_key",
    "read_sheet",
    "write_classes",
    "write_howto",
    "write_sheet",
]
