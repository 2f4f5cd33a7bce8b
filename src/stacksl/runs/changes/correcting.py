"""Corrections of accepted answers by their annotators, listed before they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stacksl.errors import RunError
from stacksl.labelers.sheets.cells import sign
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, Word
from stacksl.runs.session.answering import expect_people
from stacksl.runs.session.assignment import SheetLabeler
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.status import reopen


@dataclass(frozen=True, slots=True)
class Correction:
    """An accepted answer and another one that its annotator gives now.

    `before` and `after` are the name of the class, else the option's letter or number on the
    sheet; `answer` is the new one.
    """

    key: str
    annotator: str
    before: str
    after: str
    answer: Answer


def corrections(
    folder: RunFolder, files: Sequence[Path], agreed: Sequence[Correction] | None = None
) -> list[Correction]:
    """The corrections in `files`; recorded if they are `agreed`, for the next refit to learn.

    Raises:
        RunError: the labels of the run are not from people, two files differ in a row, or a
            correction is not among those `agreed`.
        DataError: a file cannot be read.
    """
    with folder.locked():
        expect_people(folder)
        spec = RunSpec.open(folder)
        with Ledger.open(folder.database, readonly=agreed is None) as ledger:
            listed = _corrections(spec, ledger, files)
            if agreed is None or not listed:
                return listed
            if not set(listed) <= set(agreed):
                raise RunError(
                    "expected the corrections that were listed, got others: the sheets or the"
                    " answers have changed since; repeat the command"
                )
            with ledger.together():
                reopen(folder, ledger)
                for new in (correction.answer for correction in listed):
                    ledger.correct(
                        new.item, new.index, new.labeler,
                        slot=new.slot, said=new.said, text=new.text, note=new.note,
                    )  # fmt: skip
    return listed


def _corrections(spec: RunSpec, ledger: Ledger, files: Sequence[Path]) -> list[Correction]:
    labeler = SheetLabeler(spec, ledger)
    rows = {(row.item, row.slot, row.token): row for row in ledger.private.handed()}
    accepted = {
        (row["item"], row["slot"]): row for row in ledger.export() if row["state"] == "answered"
    }
    listed: dict[tuple[str, int], Correction] = {}
    for new in labeler.read(files).answers:
        old, row = accepted.get((new.item, new.slot)), rows[new.item, new.slot, new.token]
        if old is None or old["labeler"] != new.labeler:  # of somebody else, or not answered yet
            continue
        word = old["answer"] if old["said"] == "label" else old["said"]
        assert isinstance(word, int | str)
        if word == new.word:
            continue
        before, after = _displayed(labeler, row, word), _displayed(labeler, row, new.word)
        correction = Correction(row.key, new.labeler, before, after, new)
        if listed.setdefault((new.item, new.slot), correction).answer.word != new.word:
            raise RunError(
                f"the row {row.key} has different answers in these files: leave one of them"
            )
    return list(listed.values())


def _displayed(labeler: SheetLabeler, row: Handed, word: Word) -> str:
    """An answer as the owner of the run reads it; no text of an item is quoted."""
    if isinstance(word, str):
        return word
    if labeler.classes is not None:
        return labeler.classes.names[word]
    candidates = labeler.items[labeler.row[row.item]].candidates
    return sign(row.order.index(word), tuple(candidates[i] for i in row.order))
