"""What people answered by file, taken into a run; and leases given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Purchase
from stacksl.runs.folder import RunFolder
from stacksl.runs.job import Job
from stacksl.runs.people import AWAY, FILE, SheetLabeler, annotators_of, away_from
from stacksl.runs.progress import Report
from stacksl.runs.session.session import Session
from stacksl.runs.status import status_of
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
        status: where the run stands after them; see `status_of`.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    disputed: int = 0
    empty: int = 0
    faults: tuple[str, ...] = ()
    predicted: tuple[int, int] = (0, 0)
    status: dict[str, Any] = field(default_factory=dict)


def answer(folder: RunFolder, files: Sequence[Path], report: Report) -> Received:
    """Take what the `files` say and let the run go on, until it waits again or has finished.

    Cells that are not understood are named, and the others are taken all the same.

    Raises:
        RunError: the run is not one that people answer, or another one's files came.
        DataError: a file cannot be read; nothing of any file was taken then.
    """
    _expect_people(folder)  # refused before the run is waited for
    with folder.locked(), Session.open(Job.open(folder), report, held=True) as session:
        assert isinstance(session.labeler, SheetLabeler)
        sheets = session.labeler.read(files)
        session.play()
        receipts, status = session.receipts, status_of(folder, session.ledger)
    outcomes = Counter(receipt.outcome for receipt in receipts)
    learnt = [receipt.lesson for receipt in receipts if receipt.lesson is not None]
    return Received(
        accepted=dict(Counter(r.answer.said for r in receipts if r.outcome == "accepted")),
        repeated=outcomes["repeated"],
        disputed=outcomes["late"] + outcomes["disputed"],
        empty=sheets.empty,
        faults=sheets.faults,
        predicted=(sum(d.choice == label.index for d, label in learnt), len(learnt)),
        status=status,
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
        dropped = leases if drop else _second(ledger, leases) if away else []
        ledger.free(leases, [lease for lease in dropped if lease.purpose != "audit"])
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


def _second(ledger: Ledger, leases: Sequence[Purchase]) -> list[Purchase]:
    """Of the leases those whose item keeps another slot that is open or answered."""
    rows = ledger.export()
    held = Counter(str(row["item"]) for row in rows if row["state"] in ("open", "answered"))
    found = []
    for lease in leases:
        if held[lease.item] > 1:
            held[lease.item] -= 1
            found.append(lease)
    return found


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
    _expect_people(folder)
    return Job.open(folder)


def _expect_people(folder: RunFolder) -> None:
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
