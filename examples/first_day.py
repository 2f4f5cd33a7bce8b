"""No labels and two colleagues with a spreadsheet program: from a list to an audited model."""

import tempfile
from pathlib import Path

from openpyxl import load_workbook

import stacksl
from stacksl.data import sample


def fill_in(sheet: Path, known: dict[str, str]) -> None:
    book = load_workbook(sheet)
    for _, prompt, _, answer, _ in book["Questions"].iter_rows(min_row=2):
        answer.value = known[prompt.value]
    book.save(sheet)


def main(folder: Path) -> None:
    data, _ = sample()
    known = {i.prompt: i.candidates[data.answers[i.id]] for i in data.items}
    people = {"labeler": "file", "annotators": "anna,ben", "sheets.overlap": 5, "price": "2.50"}
    run = stacksl.run(
        data.items, budget="$250", open_questions=50, out=folder / "first-day", **people
    )
    while (status := run.status())["state"] == "waiting":
        for sheet in (sheets := [Path(sheet["file"]) for sheet in status["sheets"]]):
            fill_in(sheet, known)
        accepted = run.answer(*sheets).accepted
        print(f"{sum(accepted.values())} answers, ${run.status()['money']['spent']} spent")
    print(f"the report: {run.report()}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
