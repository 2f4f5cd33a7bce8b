"""A sheet as people send it back: filled in, and saved again the way a program does."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from stacksl.labelers.sheets.rows import SheetRow, new_key
from stacksl.labelers.sheets.writing import write_sheet


class Desk:
    """A folder with one sheet of questions, and a colleague who fills it in."""

    def __init__(self, folder: Path, questions: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        rng = np.random.default_rng(0)
        self.keys: list[str] = []
        for number in range(len(questions)):
            self.keys.append(new_key(number, rng, self.keys))
        self.rows = [SheetRow(k, *q) for k, q in zip(self.keys, questions, strict=True)]
        self.path = folder / "0001.csv"
        write_sheet(self.path, self.rows)
        self.known = {row.key: row for row in self.rows}

    def table(self) -> list[list[str]]:
        """The rows of the sheet as a second reader of CSV has them, the header first."""
        text = self.path.read_bytes().decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline="")))

    def filled(self, answers: Mapping[int, str]) -> list[list[str]]:
        """The same with answers, by the row's number in the spreadsheet."""
        table = self.table()
        for row, answer in answers.items():
            table[row - 1][3] = answer
        return table

    def send(
        self,
        table: Sequence[Sequence[str]],
        *,
        separator: str = ",",
        encoding: str = "utf-8-sig",
        quoting: int = csv.QUOTE_MINIMAL,
        end: str = "\r\n",
    ) -> Path:
        """Save the table as another program would, and return the file."""
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=separator, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
        writer.writerows(table)
        path = self.path.with_name("back.csv")
        path.write_bytes(stream.getvalue().encode(encoding))
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(
        tmp_path,
        [
            ("Which vessel?\nThe first line; \"quoted\", and 'so'", ("vein", "artery", "node")),
            ("=cmd|'/c calc'!A0", ("aorta", "=vena", "B")),
            ("מה השעה? 😀", ("שלוש", "ארבע")),
        ],
    )
