"""Play the story without labels on the built-in sample: sheets, two annotators, a report.

    python scripts/demo_people.py [FOLDER]

The annotators are simulated: they know the sample's answers and make mistakes (`colleagues.py`).
The features are those that `stacksl run` takes by itself, the sentence encoder where installed.
"""

from __future__ import annotations

import csv
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path

from colleagues import Colleague, plain
from day_desk import Desk

from stacksl.data.sample import sample

RUN = "runs/people"


def lay_out(folder: Path) -> dict[str, str]:
    """Write sentences without labels, their classes and a later file; the class by sentence."""
    todo, later = sample()
    names = todo.classes or ()
    (folder / "topics.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    for name, data, labeled in (("sentences.csv", todo, False), ("later.csv", later, True)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("id", "text", "topic") if labeled else ("id", "text"))
            for item in data.items:
                told = (names[data.answers[item.id]],) if labeled else ()
                writer.writerow((item.id, item.prompt, *told))
    return {plain(item.prompt): names[todo.answers[item.id]] for item in todo.items}


def play(folder: Path) -> Desk:
    """Play the story in `folder`, and print what is typed and what it prints."""
    known = lay_out(folder)
    people = {
        "anna": Colleague("anna", known),
        "ben": Colleague("ben", known, separator=";", encoding="cp1252", slips=0.05),
    }
    desk = Desk(folder)
    desk.shows(
        "stacksl run sentences.csv --classes topics.txt --labeler file --annotators anna,ben"
        f" --budget '$500' --price 2.50 --open-questions 50 --sheets csv --seed 0 --out {RUN} --yes"
    )
    rounds(desk, RUN, people)
    desk.shows(f"stacksl report {RUN}")
    desk.shows(f"stacksl evaluate {RUN} later.csv")
    return desk


def rounds(desk: Desk, run: str, people: dict[str, Colleague]) -> None:
    """Let people fill in their sheets and hand them in until `run` waits for nothing."""
    while (status := desk.asks(f"stacksl status {run}"))["state"] == "waiting":
        sheets = [Path(sheet["file"]) for sheet in status["sheets"] or () if sheet["open"]]
        filled = [
            people[sheet.stem.partition("-")[2]].fills(desk.folder / sheet) for sheet in sheets
        ]
        if not sum(filled):
            break
        print(f"\n# {' and '.join(people)} fill in {sum(filled)} rows")
        desk.shows(f"stacksl answer {run} {shlex.join(map(str, sheets))}")
    if status["state"] == "waiting":  # nothing else is to be had
        desk.shows(f"stacksl resume {run}")


def main() -> None:
    """Play it in the folder given, else in a temporary one."""
    began = time.monotonic()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="stacksl-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    play(folder)
    table = json.loads((folder / RUN / "facts.json").read_text(encoding="utf-8"))["data"]
    print(f"\n{table['items']:,} sentences, {time.monotonic() - began:.0f} s; {folder / RUN}")


if __name__ == "__main__":
    main()
