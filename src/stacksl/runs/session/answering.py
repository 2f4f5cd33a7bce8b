"""Answers of annotators by spreadsheet, entered into a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.runs.loop.progress import Report
from stacksl.runs.session.assignment import FILE, SheetAnswers, SheetLabeler
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.status import status_of


@dataclass(frozen=True, slots=True)
class Received:
    """The result of the files of one call.

    Attributes:
        accepted: accepted answers by kind: `label`, `none`, `ambiguous`, `broken`.
        repeated: answers that had been given before.
        disputed: answers that contradict the annotator's own accepted one: kept, not paid.
        late: answers to rows that somebody else answered in the meantime, that were dropped, or
            whose second look has ended: kept, not paid.
        empty: rows still without an answer.
        faults: a line for each cell that could not be read.
        corrected: accepted answers that were replaced.
        corrected_after_shown: answers of an audit, in all, that were corrected after it was shown;
            its accuracy is by the answers before.
        status: of the run after them; see `status_of`.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    disputed: int = 0
    late: int = 0
    empty: int = 0
    faults: tuple[str, ...] = ()
    corrected: int = 0
    corrected_after_shown: int = 0
    status: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def answer(folder: RunFolder, files: Sequence[Path], report: Report | None) -> Received:
    """Enter the answers in `files` and play the run until it waits again or has finished.

    Cells that cannot be read are named, and all others are entered.

    Raises:
        RunError: the labels of the run are not from people, or a file is of another run.
        DataError: a file cannot be read; no answer of any file was entered.
    """
    expect_people(folder)  # before the lock is waited for
    with folder.locked(inside=True), Session.open(RunSpec.open(folder), report) as session:
        assert isinstance(session.labeler, SheetLabeler)
        sheets = session.labeler.read(files)
        session.play()
        return received(folder, session.ledger, sheets, session.receipts)


def received(
    folder: RunFolder, ledger: Ledger, sheets: SheetAnswers, receipts: Sequence[Receipt]
) -> Received:
    """The result of sheets that were read and entered."""
    as_shown, now = ledger.audited(), ledger.audited(now=True)
    outcomes = Counter(receipt.outcome for receipt in receipts)
    return Received(
        accepted=dict(Counter(r.answer.said for r in receipts if r.outcome == "accepted")),
        repeated=outcomes["repeated"],
        disputed=outcomes["disputed"],
        late=outcomes["late"],
        empty=sheets.empty,
        faults=sheets.faults,
        corrected_after_shown=sum(now.get(item) != answer for item, answer in as_shown.items()),
        status=status_of(folder, ledger),
    )


def expect_people(folder: RunFolder) -> dict[str, Any]:
    """What the run is made with, by name, where people answer it by file.

    Raises:
        RunError: another labeler answers.
    """
    table = folder.resolved()
    if table.get("labeler") != FILE:
        raise RunError(
            f"the labels of the run {folder.path} come from '{table.get('labeler')}', not from"
            " people: runs with --labeler file are answered by file"
        )
    return table
