"""What a sheet asks and what it returns, and the keys by which an answer finds its question."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stacksl.ledger.purchases import AnswerKind

COLUMNS = ("key", "prompt", "options", "answer", "note")


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One row: the question that one person is to answer.

    Attributes:
        key: the row's name in files, of `new_key`.
        prompt: the text of the item. A returned row with a quite different prompt is a fault: a
            column was sorted alone, or the file is that of another run.
        options: the candidates in the order in which they are shown.
        first: how many options its first file had, where more were added at the end since.
        classes: whether the options are the names of classes, which a message may quote.
    """

    key: str
    prompt: str
    options: tuple[str, ...]
    first: int | None = None
    classes: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, understood.

    Attributes:
        row: the row's number as the spreadsheet shows it; the header is row 1.
        key: the row's key.
        kind: a label, or what was answered instead of one.
        position: 0-based index into the options as shown; None unless `kind` is `label`.
        text: the right text of a none-of-these, where it was given.
        note: the content of the column `note`.
    """

    row: int
    key: str
    kind: AnswerKind
    position: int | None
    text: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One cell that was not understood. The sentence quotes no prompt, option or note.

    Attributes:
        row: the row's number as the spreadsheet shows it; the header is row 1.
        column: the column of the cell; `row` where the whole row is at fault.
        sentence: expected, got, what to do.
    """

    row: int
    column: str
    sentence: str

    def line(self, file: str) -> str:
        """The fault as a line for the user: `a.csv row 7, column answer: ...`."""
        location = (
            f"row {self.row}" if self.column == "row" else f"row {self.row}, column {self.column}"
        )
        return f"{file} {location}: {self.sentence}"


class Sheet(NamedTuple):
    """A file of answers: those understood, one a key, other cells, and how many keys are empty."""

    replies: tuple[Reply, ...]
    faults: tuple[Fault, ...]
    empty: int


if TYPE_CHECKING:
    import numpy as np


# A key is letter, digit, letter, digit, ..., a hyphen and a check letter, such as `k7f3-q`. It is
# no number, date, truth value or formula under any locale, since it begins with a letter, has a
# digit next to it, and goes on; it holds no letters or digits that look alike (0 o, 1 i l, 5 s).
#
# The check letter is the weighted sum of the others modulo 17: each letter or digit replaced by one
# other, and each two of one kind exchanged, gives another sum, because 17 is a prime.

_LETTERS = "acdfhjkmnpqrtvwxy"  # 17 of them
_DIGITS = "23456789"
_PAIR = len(_LETTERS) * len(_DIGITS)
_HYPHENS = dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")  # what a word processor makes of a hyphen
_SPARSE = 64  # times as many keys as rows, so that a key of another run is rarely one of this
has_form = re.compile(rf"([{_LETTERS}][{_DIGITS}]){{2,8}}-[{_LETTERS}]").fullmatch  # safe to quote


def new_key(number: int, rng: np.random.Generator, taken: Container[str] = ()) -> str:
    """A key that is not `taken`: no spreadsheet rewrites it, and no typing error makes it another.

    Args:
        number: how many keys the run has given out; more of them make longer keys.
        rng: where the key comes from.
        taken: the keys that the run has given out.
    """
    pairs = 2
    while _PAIR**pairs < _SPARSE * (number + 1):
        pairs += 1
    while True:
        codes = rng.integers(_PAIR, size=pairs).tolist()
        body = "".join(_LETTERS[n // len(_DIGITS)] + _DIGITS[n % len(_DIGITS)] for n in codes)
        key = f"{body}-{_check(body)}"
        if key not in taken:
            return key


def clean_key(cell: str) -> str:
    """The text of a cell as a key is written: small letters, a plain hyphen, no white space."""
    return "".join(cell.split()).translate(_HYPHENS).lower()


def _check(body: str) -> str:
    values = (_DIGITS.index(c) if n % 2 else _LETTERS.index(c) for n, c in enumerate(body))
    total = sum(weight * value for weight, value in enumerate(values, 1))
    return _LETTERS[total % len(_LETTERS)]
