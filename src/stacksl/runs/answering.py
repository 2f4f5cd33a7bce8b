"""What people answered by file, taken into a run; and leases given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stacksl.errors import RunError
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Purchase
from stacksl.runs.budget import parse_prices
from stacksl.runs.execution import execute
from stacksl.runs.folder import RunFolder
from stacksl.runs.job import Job
from stacksl.runs.people import AWAY, FILE, annotators_of, answers_from, away_from
from stacksl.runs.progress import Report
from stacksl.runs.seating import desk_of
from stacksl.sheets import Reply, read_sheet
from stacksl.sheets.keys import clean_key, has_form

__all__ = ["Received", "answer", "release", "welcome"]


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
    _job_of_people(folder)  # refused before the run is waited for
    with folder.locked():
        job = _job_of_people(folder)
        with Ledger.open(folder.ledger, readonly=True) as ledger:
            answers, faults, empty = _read(job, ledger, files)
        receipts = execute(job, report, answers=answers, held=True)
    outcomes = Counter(receipt.outcome for receipt in receipts)
    bought = [receipt.lesson for receipt in receipts if receipt.lesson is not None]
    return Received(
        accepted=dict(Counter(r.answer.said for r in receipts if r.outcome == "accepted")),
        repeated=outcomes["repeated"],
        disputed=outcomes["late"] + outcomes["disputed"],
        empty=empty,
        faults=tuple(faults),
        predicted=(sum(d.choice == label.index for d, label in bought), len(bought)),
    )


def release(
    folder: RunFolder,
    *,
    annotator: str | None = None,
    keys: Sequence[str] = (),
    drop: bool = False,
    away: bool = False,
) -> int:
    """Free rows that were handed out, so that others can answer them; how many.

    Args:
        folder: the run's.
        annotator: only the rows of this one.
        keys: only these rows.
        drop: give the labels back to the budget for other items, instead of handing the rows out
            anew. Rows of the audit are always handed out anew: leaving out what nobody wanted to
            answer would flatter the model.
        away: give this annotator no new rows either, until `welcome`. A second answer to a row is
            dropped then, and its label goes back to the budget.

    Raises:
        RunError: no row that waits is meant, or nobody would be left to answer.
    """
    job = _job_of_people(folder)
    _expect_known(job, annotator)
    wanted = {clean_key(key) for key in keys}
    with folder.locked(), Ledger.open(folder.ledger) as ledger:
        _expect_handed(ledger, wanted)
        leases = _meant(ledger, annotator, wanted)
        if away:
            _note_away(folder, _all_away(job, annotator))
        elif not leases:
            raise RunError(
                f"no row of the run {folder.path} that waits for an answer is meant: `stacksl"
                f" status {folder.path}` lists the sheets that do"
            )
        for lease in leases:
            ledger.release(lease, "refused")
            second = away and lease.item in _held(ledger)
            if lease.purpose == "audit" or not (drop or second):
                ledger.lease(lease.item, slot=lease.slot)
    return len(leases)


def welcome(folder: RunFolder, annotator: str) -> None:
    """Let an annotator who was away have rows again.

    Raises:
        RunError: the run knows no such annotator.
    """
    job = _job_of_people(folder)
    _expect_known(job, annotator)
    with folder.locked():
        _note_away(folder, away_from(folder) - {annotator})


def _held(ledger: Ledger) -> set[str]:
    """The items with a slot that is open or answered."""
    return {str(row["item"]) for row in ledger.export() if row["state"] in ("open", "answered")}


def _all_away(job: Job, annotator: str | None) -> frozenset[str]:
    """Who is away, `annotator` among them."""
    known, before = annotators_of(job.settings.annotators), away_from(job.folder)
    if annotator is None or before | {annotator} >= set(known):
        raise RunError(
            "who is away is said with --annotator NAME, and somebody must be left to answer: of"
            f" {', '.join(known)} {len(before)} are away already"
        )
    return before | {annotator}


def _note_away(folder: RunFolder, away: frozenset[str]) -> None:
    table = folder.read_toml("resolved.toml")
    table[AWAY] = ",".join(sorted(away))
    folder.write_toml("resolved.toml", table, "everything this run was made with")


def _job_of_people(folder: RunFolder) -> Job:
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


def _expect_known(job: Job, annotator: str | None) -> None:
    known = annotators_of(job.settings.annotators)
    if annotator is not None and annotator not in known:
        raise RunError(f"'{annotator}' is no annotator of this run: known are {', '.join(known)}")


def _expect_handed(ledger: Ledger, keys: set[str]) -> None:
    if unknown := sorted(keys - {row.key for row in ledger.handed(keys)}):
        named = ", ".join(key for key in unknown if has_form(key)) or "what came"
        raise RunError(
            f"{named}: no row of this run has such a key: copy keys from the sheets it wrote"
        )


def _meant(ledger: Ledger, annotator: str | None, keys: set[str]) -> list[Purchase]:
    leases = {(p.item, p.slot, p.token): p for p in ledger.open_purchases()}
    rows = [row for row in ledger.handed() if (row.item, row.slot, row.token) in leases]
    if annotator is not None:
        rows = [row for row in rows if row.annotator == annotator]
    if keys:
        rows = [row for row in rows if row.key in keys]
    return [leases[row.item, row.slot, row.token] for row in rows]
