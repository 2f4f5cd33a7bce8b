"""Colleagues who fill in sheets as people do: in part, late, each in their own hand.

They know the right answers by the question, and nothing of `stacksl`: they read and write CSV
as a spreadsheet program would.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ODD", "Colleague", "Row", "count_open", "plain", "read_rows"]

Row = dict[str, str]
ODD = ("none", "none: something else", "?", "broken")
"""What is said of a row besides an option."""

OPTION = re.compile(r"^(\w+)\) (.*)$")


@dataclass(frozen=True)
class Colleague:
    """Somebody with a spreadsheet program.

    Attributes:
        name: as given to --annotators.
        answers: the right option's text by question, in the form that `plain` gives it.
        separator: what their program puts between cells.
        encoding: what it saves in.
        slips: the share of rows answered with a wrong option.
        odd: the share of rows answered with none of the options.
    """

    name: str
    answers: Mapping[str, str]
    separator: str = ","
    encoding: str = "utf-8-sig"
    slips: float = 0.02
    odd: float = 0.02

    def fills(self, sheet: Path, *, to: Path | None = None, rows: slice = slice(None)) -> int:
        """Answer the empty `rows` of a sheet and save it, `to` another file if wished; how many."""
        found = read_rows(sheet)
        rng = random.Random(f"{self.name} {sheet.name} {rows}")
        empty = [row for row in found[rows] if not row["answer"]]
        for row in empty:
            row["answer"] = self._says(row, sheet.parent, rng)
        self._saves(found, to or sheet)
        return len(empty)

    def changes_mind(self, sheet: Path, count: int, *, to: Path) -> int:
        """Answer `count` rows of a filled sheet otherwise, and save only those; how many."""
        rng = random.Random(f"{self.name} {sheet.name} again")
        answered = [row for row in read_rows(sheet) if row["answer"]]
        changed = answered[:count]
        for row in changed:
            options = _options(row, sheet.parent)
            others = [text for _, text in options if text != self._knows(row)]
            row["answer"] = rng.choice([text for text in others if text != row["answer"]])
            row["note"] = "on second thoughts"
        self._saves(changed, to)
        return len(changed)

    def types(self, sheet: Path, text: str, *, row: int = 0) -> None:
        """Type a `text` into the answer of a row of a sheet."""
        found = read_rows(sheet)
        found[row]["answer"] = text
        self._saves(found, sheet)

    def _says(self, row: Row, folder: Path, rng: random.Random) -> str:
        if rng.random() < self.odd:
            return rng.choice(ODD)
        options = _options(row, folder)
        right = self._knows(row)
        if rng.random() < self.slips:
            right = rng.choice([text for _, text in options if text != right])
        [sign] = [sign for sign, text in options if text == right]
        ways = [sign, f"{sign})", right, right.upper(), f"{sign}) {right}"]
        return rng.choice(ways)

    def _knows(self, row: Row) -> str:
        return self.answers[plain(row["prompt"])]

    def _saves(self, rows: Sequence[Row], path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding=self.encoding) as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=self.separator)
            writer.writeheader()
            writer.writerows(rows)


def plain(prompt: str) -> str:
    """A question without the signs that keep a spreadsheet from taking it for a formula."""
    return " ".join(prompt.removeprefix("'").replace("\u00a0", "").split())


def read_rows(sheet: Path) -> list[Row]:
    """The rows of a sheet, in whichever form it was saved."""
    text = _decoded(sheet.read_bytes())
    separator = ";" if text.startswith("key;") else ","
    return list(csv.DictReader(text.splitlines(keepends=True), delimiter=separator))


def count_open(sheet: Path) -> int:
    """The rows of a sheet that have no answer."""
    return sum(not row["answer"] for row in read_rows(sheet))


def _decoded(payload: bytes) -> str:
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError:
        return payload.decode("cp1252")


def _options(row: Row, folder: Path) -> list[tuple[str, str]]:
    """(sign, text) of each option, from the cell or from the list next to the sheet."""
    pointed = re.search(r"in the file (\S+\.csv)", row["options"])
    if pointed:
        listed = csv.DictReader((folder / pointed[1]).open(encoding="utf-8-sig", newline=""))
        return [(each["number"], each["name"].removeprefix("'")) for each in listed]
    found = [OPTION.match(line) for line in row["options"].splitlines()]
    return [(each[1], each[2]) for each in found if each]
