"""No labels and two colleagues with a spreadsheet program: from a list to an audited model."""

import csv
import tempfile
from pathlib import Path

import stacksl
from stacksl.data import sample


def plain(prompt: str) -> str:
    # without the signs that keep a spreadsheet from taking a text for a formula
    return prompt.removeprefix("'").replace("\u00a0", "")


def fill_in(sheet: Path, known: dict[str, str]) -> None:
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "answer": known[plain(row["prompt"])]} for row in rows)


def main(folder: Path) -> None:
    data, _ = sample()
    known = {plain(i.prompt): i.candidates[data.answers[i.id]] for i in data.items}
    people = {"labeler": "file", "annotators": "anna,ben", "overlap": 5, "price": "2.50"}
    run = stacksl.run(data.items, budget="$250", batch=50, out=folder / "first-day", **people)
    while (status := run.status())["state"] == "waiting":
        for sheet in (sheets := [Path(sheet["file"]) for sheet in status["sheets"]]):
            fill_in(sheet, known)
        right, total = run.answer(*sheets).predicted
        print(f"{right} of {total} predicted before, ${run.status()['money']['spent']} spent")
    print(f"the report: {run.report()}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
