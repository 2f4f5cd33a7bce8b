"""Files and hubs to (items, answers), and back."""

from stacksl.data.checking import check, overlap
from stacksl.data.classes import Bank, Classes, read_bank, read_classes, write_classes
from stacksl.data.dataset import Dataset, Rejected
from stacksl.data.reading import read
from stacksl.data.sample import sample
from stacksl.data.writing import write, write_rejected

__all__ = [
    "Bank",
    "Classes",
    "Dataset",
    "Rejected",
    "check",
    "overlap",
    "read",
    "read_bank",
    "read_classes",
    "sample",
    "write",
    "write_classes",
    "write_rejected",
]
