"""Play the first day of a user without labels, and write it down as `docs/first-day.md`.

    python scripts/first_day.py --data $STACKSL_DATA/banking77 --page docs/first-day.md

Every command is typed into a shell in a fresh folder, and what it prints is the page. The labels
of the data are hidden from the run: two colleagues (`colleagues.py`) answer from them.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from colleagues import Colleague, plain
from day_desk import Desk
from day_story import Scale, tell

__all__ = ["FULL", "SMALL", "Scale", "lay_out", "play"]


FULL = Scale(None, 200, 1500, None, 1500, 2000, 100, 20)
SMALL = Scale(300, 24, 120, 8, 200, 250, 30, 4)
PRICE = 2.5  # dollars an answer


def lay_out(data: Path, folder: Path, scale: Scale) -> dict[str, str]:
    """Write the user's files into `folder`, labels hidden; the right intent by question.

    The split is drawn once, uniformly: old labels, questions, and those of next month.
    """
    with (data / "train.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"].replace("_", " ")) for row in csv.DictReader(file)]
    intents = sorted({intent for _, intent in rows}, key=str.casefold)[: scale.intents]
    rows = [row for row in rows if row[1] in intents]
    random.Random(0).shuffle(rows)
    old, rest = rows[: scale.old], rows[scale.old :]
    later, questions = rest[: scale.later], rest[scale.later :][: scale.questions]
    _write(folder / "old.csv", ("id", "text", "intent"), _numbered("old", old))
    _write(folder / "questions.csv", ("id", "text"), _numbered("q", questions, labels=False))
    _write(folder / "next-month.csv", ("id", "text"), _numbered("n", later, labels=False))
    _write(folder / "hidden.csv", ("id", "text", "intent"), _numbered("n", later))
    (folder / "intents.txt").write_text("".join(f"{intent}\n" for intent in intents))
    return {plain(text): intent for text, intent in questions}


def _numbered(
    name: str, rows: Sequence[tuple[str, str]], *, labels: bool = True
) -> list[tuple[str, ...]]:
    cells = 2 if labels else 1
    return [(f"{name}{number:05d}", *row[:cells]) for number, row in enumerate(rows, 1)]


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def play(data: Path, folder: Path, scale: Scale) -> Desk:
    """Play the day in `folder`; the commands and their output."""
    known = lay_out(data, folder, scale)
    anna = Colleague("anna", known)
    ben = Colleague("ben", known, separator=";", encoding="cp1252", slips=0.05)
    desk = Desk(folder)
    tell(desk, anna, ben, scale)
    return desk


def main() -> None:
    """Play the whole day and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of Banking77")
    parser.add_argument("--page", type=Path, required=True, help="the page to write")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder if absent")
    parser.add_argument("--small", action="store_true", help="the day as the tests play it")
    given = parser.parse_args()
    if not (given.data / "train.csv").is_file():
        parser.error(f"{given.data} has no train.csv: give --data the folder of Banking77")
    os.environ["STACKSL_FEATURES"] = "hashing"  # what the page says, on every machine
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    desk = play(given.data.resolve(), folder.resolve(), SMALL if given.small else FULL)
    given.page.write_text(desk.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
