"""Files to (items, answers), and back."""

from stacksl.data.checking import check, columns_line, expect_classes, overlap, strange, unusable
from stacksl.data.classes import Classes, read_classes
from stacksl.data.dataset import Dataset, Layout, Rejected
from stacksl.data.reading import as_written, read, rows_of
from stacksl.data.sample import sample
from stacksl.data.tables import table_of
from stacksl.data.writing import TABLES, expect_other, kind_of_table, write_table

__all__ = [
    "TABLES",
    "Classes",
    "Dataset",
    "Layout",
    "Rejected",
    "as_written",
    "check",
    "columns_line",
    "expect_classes",
    "expect_other",
    "kind_of_table",
    "overlap",
    "read",
    "read_classes",
    "rows_of",
    "sample",
    "strange",
    "table_of",
    "unusable",
    "write_table",
]
