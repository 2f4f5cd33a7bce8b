"""What people answered by file, taken into a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stacksl.errors import RunError
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer
from stacksl.runs.budget import parse_prices
from stacksl.runs.execution import execute
from stacksl.runs.folder import RunFolder
from stacksl.runs.job import Job
from stacksl.runs.people import FILE, answers_from
from stacksl.runs.progress import Report
from stacksl.runs.seating import desk_of
from stacksl.sheets import Reply, read_sheet


@dataclass(frozen=True, slots=True)
class Received:
    """What came of the files of one call.

    Attributes:
        accepted: by what was said: `label`, `none`, `ambiguous`, `broken`.
        repeated: answers that had come before.
        disputed: answers that contradict an accepted one, or came too late: kept, not paid.
        empty: rows still without an answer.
        faults: a line for each cell that was not understood.
        predicted: of the accepted labels, how many the model had predicted, and of how many.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    disputed: int = 0
    empty: int = 0
    faults: tuple[str, ...] = ()
    predicted: tuple[int, int] = (0, 0)


def answer(folder: RunFolder, files: Sequence[Path], report: Report) -> Received:
    """Take what the `files` say and let the run go on, until it waits again or has finished.

    Cells that are not understood are named, and the others are taken all the same.

    Raises:
        RunError: the run is not one that people answer, or another one's files came.
        DataError: a file cannot be read; nothing of any file was taken then.
    """
    job = job_of_people(folder)
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        answers, faults, empty = _read(job, ledger, files)
        before = _standing(ledger)
    execute(job, report, answers=answers)
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        after = _standing(ledger)
        right = _predicted(ledger, after.answered - before.answered)
    new = after.said - before.said
    disputed = after.disputes - before.disputes
    return Received(
        accepted=dict(new),
        repeated=len(answers) - new.total() - disputed,
        disputed=disputed,
        empty=empty,
        faults=tuple(faults),
        predicted=right,
    )


def job_of_people(folder: RunFolder) -> Job:
    """The job of a run whose labels come from people by file, and that has begun.

    Raises:
        RunError: it is none.
    """
    table = folder.read_toml("resolved.toml")
    if table.get("labeler") != FILE:
        raise RunError(
            f"the labels of the run {folder.path} come from '{table.get('labeler')}', not from"
            " people: runs with --labeler file are answered by file"
        )
    if not folder.ledger.exists():
        raise RunError(
            f"the run {folder.path} has asked nothing yet: `stacksl resume {folder.path}`"
        )
    return Job.open(folder)


def _read(job: Job, ledger: Ledger, files: Sequence[Path]) -> tuple[list[Answer], list[str], int]:
    """The answers in the files, a line for each fault, and the rows without an answer."""
    handed = {row.key: row for row in ledger.handed()}
    shown = desk_of(job, ledger).shown()
    replies: list[Reply] = []
    faults: list[str] = []
    empty = 0
    for path in files:
        sheet = read_sheet(path, shown)
        replies += sheet.replies
        faults += [fault.line(str(path)) for fault in sheet.faults]
        empty += sheet.empty
    prices = parse_prices(job.settings.price)
    return answers_from(replies, handed, prices), faults, empty


@dataclass(frozen=True, slots=True)
class _Standing:
    """What the ledger had before, to tell what is new."""

    said: Counter[str]
    disputes: int
    answered: frozenset[str]


def _standing(ledger: Ledger) -> _Standing:
    rows = ledger.export()
    answered = frozenset(str(row["item"]) for row in rows if row["state"] == "answered")
    return _Standing(Counter(ledger.said()), len(ledger.disputes()), answered)


def _predicted(ledger: Ledger, items: frozenset[str]) -> tuple[int, int]:
    """Of the training labels of `items`, how many the model had right before it saw them."""
    choices: dict[str, int] = {}
    right = total = 0
    for row in ledger.rows():
        if row.event == "round" and row.item in items:
            choices[str(row.item)] = int(row.payload["choice"])
        elif row.event == "learnt" and row.item in choices and row.item in items:
            total += 1
            right += row.label().index == choices[str(row.item)]
    return right, total
