"""Judge and mend a column of labels with three simulated people, and compare with the truth.

    python scripts/mended_labels.py --data $STACKSL_DATA/snips [--folder FOLDER]

The table has 2,000 training rows. Its column `gpt_label` is made by a logistic regression on counts
of words, which was fitted on eight test rows of each class. The commands and their output are
printed; docs/mended-labels.md quotes them. Audits are drawn anew in each run, so that another play
prints other numbers.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from colleagues import Colleague, plain
from day_desk import Desk
from demo_people import rounds
from openpyxl import Workbook, load_workbook
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

ROWS, SHOTS, SLIPS, PRICE = 2_000, 8, 0.03, 0.50
TABLE = "tickets.xlsx"
COMMON = (
    f"stacksl run {TABLE} --model-labels gpt_label --annotators anna,ben,carl --price {PRICE:.2f}"
)


def lay_out(data: Path, folder: Path) -> dict[str, str]:
    """Write the table with its column of labels; the right label by ticket."""
    train, test = (_rows(data / f"{name}.csv") for name in ("train", "test"))
    shots: dict[str, list[dict[str, str]]] = {}
    for row in test:
        shots.setdefault(row["label"], []).append(row)
    few = [row for rows in shots.values() for row in rows[:SHOTS]]
    weak = make_pipeline(CountVectorizer(), LogisticRegression(C=10, max_iter=1_000))
    weak.fit([row["text"] for row in few], [row["label"] for row in few])
    table = random.Random(0).sample(train, ROWS)
    guesses = weak.predict([row["text"] for row in table])
    book = Workbook()
    sheet = book.worksheets[0]
    sheet.append(("ticket_id", "message", "gpt_label"))
    for number, (row, guess) in enumerate(zip(table, guesses, strict=True)):
        sheet.append((f"T{number:04d}", row["text"], guess))
    book.save(folder / TABLE)
    print(f"# {ROWS:,} rows; the column is by a classifier that learned from {len(few)} others")
    return {f"T{number:04d}": row["label"] for number, row in enumerate(table)}


def play(data: Path, folder: Path, target: str, budget: str) -> None:
    """Judge the column, then mend it until `target` of the table is promised."""
    truth = lay_out(data, folder)
    texts = {ticket: plain(text) for ticket, text, _ in _sheet(folder / TABLE)[1:]}
    known = {texts[ticket]: label for ticket, label in truth.items()}
    people = {
        name: Colleague(name, known, slips=SLIPS, odd=0.0) for name in ("anna", "ben", "carl")
    }
    desk = Desk(folder)
    sheets = "--sheets csv --open-questions 100"
    desk.shows(f"{COMMON} --audit 200 {sheets} --out runs/judged --yes")
    rounds(desk, "runs/judged", people)
    delivers(desk, "runs/judged", truth)
    desk.shows("stacksl change runs/judged --budget 600 --yes")
    rounds(desk, "runs/judged", people)
    delivers(desk, "runs/judged", truth)
    stop = f"{COMMON} --budget '{budget}' --stop-when right={target} {sheets} --out runs/promised"
    desk.shows(f"{stop} --dry-run")
    desk.shows(f"{stop} --yes")
    rounds(desk, "runs/promised", people)
    delivers(desk, "runs/promised", truth)
    told = desk.asks("stacksl status runs/promised")["stopped"].replace(f"{folder}/", "")
    offers = re.findall("`(stacksl change [^`]+)`", told)  # where the promise was refused
    for offer in sorted(offers, key=lambda command: "--budget" in command):  # the free one first
        same = "" if "--stop-when" in offer else f" --stop-when right={target}"
        desk.shows(f"{offer}{same} --yes")
        rounds(desk, "runs/promised", people)
        delivers(desk, "runs/promised", truth)


def delivers(desk: Desk, run: str, truth: dict[str, str]) -> None:
    """Show where a run stands, write its table, and compare that with the truth."""
    desk.shows(f"stacksl status {run}")
    desk.shows(f"stacksl export {run} --table mended.xlsx")
    head, *rows = _sheet(desk.folder / "mended.xlsx")
    had, label, source, mark = map(head.index, ("gpt_label", "label", "source", "doubtful"))
    before, after = ({row[0]: row[place] for row in rows} for place in (had, label))
    right = {ticket for ticket in truth if after[ticket] == truth[ticket]}
    wrong = {ticket for ticket in truth if before[ticket] != truth[ticket]}
    print(f"# {len(right):,} of {ROWS:,} labels are right, {ROWS - len(wrong):,} in the column.")
    print(f"# {len(wrong & right)} of {len(wrong)} mistakes are mended,", end=" ")
    print(f"{len(truth.keys() - right - wrong)} right labels became wrong.")
    for kind in sorted({str(row[source]) for row in rows}):
        of = {row[0] for row in rows if row[source] == kind}
        print(f"# {len(of):,} labels are by {kind}, {len(of - right)} of them wrong.")
    doubtful = {row[0] for row in rows if row[mark]}
    print(f"# {len(doubtful)} labels are doubtful, {len(doubtful & wrong)} of them wrong.")


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _sheet(file: Path) -> list[tuple[Any, ...]]:
    return list(load_workbook(file).worksheets[0].iter_rows(values_only=True))


def main() -> None:
    """Play it in the folder given, else in a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--target", default="97%")
    parser.add_argument("--budget", default="$1,000")
    given = parser.parse_args()
    began = time.monotonic()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="stacksl-"))
    folder.mkdir(parents=True, exist_ok=True)
    play(given.data, folder.resolve(), given.target, given.budget)
    print(f"# {time.monotonic() - began:.0f} s; {folder}")


if __name__ == "__main__":
    main()
