"""What people answered by file, taken into a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.runs.loop.progress import Report
from stacksl.runs.session.assignment import FILE, SheetLabeler
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.status import status_of


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
    status: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def answer(folder: RunFolder, files: Sequence[Path], report: Report) -> Received:
    """Take what the `files` say and let the run go on, until it waits again or has finished.

    Cells that are not understood are named, and the others are taken all the same.

    Raises:
        RunError: the run is not one that people answer, or another one's files came.
        DataError: a file cannot be read; nothing of any file was taken then.
    """
    _expect_people(folder)  # refused before the run is waited for
    with folder.locked(), Session.open(RunSpec.open(folder), report, held=True) as session:
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


def spec_of_people(folder: RunFolder) -> RunSpec:
    """The spec of a run whose labels come from people by file, and that has begun.

    Raises:
        RunError: it is none.
    """
    _expect_people(folder)
    return RunSpec.open(folder)


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
