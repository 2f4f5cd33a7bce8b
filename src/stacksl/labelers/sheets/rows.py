"""What a sheet asks and what it returns, as plain records."""

from __future__ import annotations

from dataclasses import dataclass

from stacksl.ledger.purchases import Said

COLUMNS = ("key", "prompt", "options", "answer", "note")


@dataclass(frozen=True, slots=True)
class Asked:
    """One row: the question that one person is to answer.

    Attributes:
        key: the row's name in files, of `new_key`.
        prompt: the text of the item. A returned row with a quite different prompt is a fault: a
            column was sorted alone, or the file is that of another run.
        options: the candidates in the order in which they are shown.
        first: how many options its first file had, where more were added at the end since.
    """

    key: str
    prompt: str
    options: tuple[str, ...]
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, understood.

    Attributes:
        row: the row's number as the spreadsheet shows it; the header is row 1.
        key: the row's key.
        said: a label, or what was said instead of one.
        position: 0-based index into the options as shown; None unless `said` is `label`.
        text: the right text of a none-of-these, where it was given.
        note: the content of the column `note`.
    """

    row: int
    key: str
    said: Said
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
        place = (
            f"row {self.row}" if self.column == "row" else f"row {self.row}, column {self.column}"
        )
        return f"{file} {place}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content of one file of answers.

    Attributes:
        replies: answers understood, in the order of the file, one a key.
        faults: cells not understood, in the order of the file.
        empty: how many keys in the file have no answer.
    """

    replies: tuple[Reply, ...]
    faults: tuple[Fault, ...]
    empty: int
