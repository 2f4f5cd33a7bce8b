"""Corrections of accepted answers: what is learned, what the audit is measured by, what is paid."""

from __future__ import annotations

import fcntl
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import DataError, RunError
from stacksl.ledger.purchases import Purpose
from stacksl.runs.changes import people
from stacksl.runs.changes.people import Received
from stacksl.runs.storage.folder import LOCK, RunFolder
from stacksl.types import Item

from ..ledgers import handed_rows, items_bought
from .changing_cases import POOL
from .conftest import CLASSES
from .people_cases import (
    Killed,
    Row,
    begin,
    expect_sound,
    facts_of,
    fill,
    gold,
    killed,
    play,
    read_rows,
    sheets,
    texts_of,
    truth,
    write_classes,
    write_pool,
    write_rows,
    wrong,
)


def correct(run: Run, *files: Path) -> Received:
    return run.answer(*files, correct=run.corrections(*files))


def all_rows(done: Run, say: Any, place: Path, purpose: Purpose | None = None) -> Path:
    """Every row that was handed out, in one file, answered again."""
    items = items_bought(done, purpose)
    keys = {row.key for row in handed_rows(done) if row.item in items}
    rows: dict[str, Row] = {}
    for path in sorted((done.path / "ask").glob("0*.csv")):
        rows |= {row["key"]: row for row in read_rows(path) if row["key"] in keys}
    return write_rows(place, [{**row, "answer": say(row)} for row in rows.values()])


def labels(done: Run) -> dict[str, int | None]:
    with done.ledger as ledger:
        items = [str(row.item) for row in ledger.rows() if row.event == "learned"]
        return {item: ledger.label_of(item) for item in items}


@POOL
def test_labels_corrected_after_the_end_give_the_model_of_right_ones(tmp_path, mode: str) -> None:
    done = play(begin(tmp_path, mode=mode, price="2"), wrong)
    before = done.status()
    received = correct(done, all_rows(done, truth, tmp_path / "again.csv"))
    assert (received.corrected, received.disputed, received.repeated) == (24, 0, 0)
    assert done.status()["state"] == "finished"
    assert done.status()["money"] == before["money"]
    texts = texts_of(tmp_path / "pool-0-0.csv")
    assert labels(done) == {item: CLASSES.index(gold(texts[item])) for item in labels(done)}
    assert next(done.predict([Item("x", "oc", tuple(CLASSES))]))["choice"] != ""
    expect_sound(done)
    head = _head(done)
    assert correct(done, tmp_path / "again.csv").corrected == 0, "what was corrected is as before"
    assert _head(done) == head


def _head(done: Run) -> bytes:
    return (done.path / "model" / "head.safetensors").read_bytes()


def test_an_old_copy_reverts_nothing_unless_it_is_listed_and_agreed(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    (sheet,) = sheets(waiting)
    waiting.answer(fill(sheet, wrong))
    old = write_rows(tmp_path / "old.csv", read_rows(sheet))
    correct(waiting, fill(sheet))
    before = labels(waiting)
    assert waiting.answer(old).repeated == 6
    assert labels(waiting) == before
    (first, *_) = listed = waiting.corrections(old)
    assert (len(listed), first.before != first.after) == (6, True)
    assert {first.before, first.after} <= set(CLASSES)
    with pytest.raises(RunError, match="the corrections that were listed"):
        waiting.answer(old, correct=listed[1:])
    assert labels(waiting) == before
    expect_sound(waiting)


def test_annotators_correct_rows_of_their_own(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", open_questions=4)
    anna = next(path for path in sheets(waiting) if "anna" in path.name)
    old = write_rows(tmp_path / "old.csv", read_rows(anna))
    waiting.people(free="anna", away="anna")
    ben = [path for path in sheets(waiting) if "ben" in path.name]
    waiting.answer(*[fill(path) for path in ben])
    assert waiting.corrections(fill(old, wrong)) == []
    received = waiting.answer(old, correct=[])
    assert (received.corrected, received.late) == (0, 2)


def test_two_files_that_differ_in_a_row_correct_nothing(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    (sheet,) = sheets(waiting)
    waiting.answer(fill(sheet))
    one = write_rows(tmp_path / "one.csv", read_rows(fill(sheet, wrong)))
    two = write_rows(tmp_path / "two.csv", read_rows(fill(sheet, lambda row: "broken")))
    with pytest.raises(RunError, match="different answers in these files"):
        waiting.corrections(one, two)


def test_the_audit_is_measured_by_what_was_said_before_it_was_shown(tmp_path: Path) -> None:
    done = play(begin(tmp_path, audit=8))
    first = facts_of(done).audit
    assert first.revised == 0
    received = correct(done, all_rows(done, wrong, tmp_path / "again.csv", "audit"))
    assert received.corrected == 8
    then = facts_of(done).audit
    assert (then.correct, then.accuracy, then.low) == (first.correct, first.accuracy, first.low)
    assert then.revised == 8
    assert "after it was first shown" in (done.path / "report.html").read_text()
    assert done.status()["audit"]["accuracy"] == first.accuracy
    expect_sound(done)


@pytest.mark.parametrize(
    "moment",
    [pytest.param("before it is recorded", marks=pytest.mark.slow), "when it was recorded"],
)
def test_a_correction_that_is_killed_is_completed_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    done = play(begin(tmp_path), wrong)
    other = Run(shutil.copytree(done.path, tmp_path / "undisturbed"))
    again = all_rows(done, truth, tmp_path / "again.csv")
    agreed = done.corrections(again)
    with monkeypatch.context() as patch:
        if moment == "before it is recorded":
            patch.setattr(people.Ledger, "correct", killed)
        else:
            patch.setattr("stacksl.runs.changes.people.Session.open", killed)
        with pytest.raises(Killed):
            done.answer(again, correct=agreed)
    before = moment == "before it is recorded"
    assert done.status()["state"] == ("finished" if before else "stopped"), "all or nothing"
    done.resume()
    assert done.status()["state"] == "finished"
    if moment == "before it is recorded":
        correct(done, again)
    correct(other, again)
    assert labels(done) == labels(other)
    assert _head(done) == _head(other)
    expect_sound(done)


def test_nobody_comes_between_corrections_and_the_other_answers(tmp_path, monkeypatch) -> None:
    waiting = begin(tmp_path)
    (sheet,) = sheets(waiting)
    waiting.answer(fill(sheet, wrong))
    seen = []

    def entered(folder: RunFolder, *words: Any) -> Received:
        with (folder.path / LOCK).open("a+") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(folder)
        return real(folder, *words)

    real = people.answer
    monkeypatch.setattr(people, "answer", entered)
    assert correct(waiting, fill(sheet)).corrected == 6
    assert len(seen) == 1
    expect_sound(waiting)


def test_a_sheet_of_corrections_may_have_the_column_of_ids_that_the_data_has(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data.csv"
    data.write_text(write_pool(tmp_path, 60).read_text().replace("id,text", "ref,text", 1))
    settings = {"columns.id": "ref", "sheets.format": "csv", "budget": 6, "open_questions": 6}
    settings |= {"classes": str(write_classes(tmp_path)), "labeler": "file", "class_names": False}
    done = play(run(data, out=tmp_path / "run", **settings))
    first = done.labels().rows[0]
    row = {"ref": first["item"], "text": first["text"], "answer": "broken"}
    assert correct(done, write_rows(tmp_path / "right.csv", [row])).corrected == 1


@pytest.mark.parametrize("column", ["item", "ticketId"])
def test_a_sheet_may_have_ids_in_place_of_keys(tmp_path: Path, column: str) -> None:
    done = play(begin(tmp_path, annotators="anna,ben", **{"sheets.overlap": 4}))
    rows = done.labels(names=True).rows
    keys = {row.key: (row.item, row.annotator) for row in handed_rows(done)}
    assert [keys[row["key"]] for row in rows] == [(row["item"], row["labeler"]) for row in rows]
    times = Counter(row["item"] for row in rows)
    twice, one = (next(row for row in rows if times[row["item"]] == n) for n in (2, 1))
    other = CLASSES[(CLASSES.index(one["label"]) + 1) % 3]
    sheet = write_rows(
        tmp_path / "ids.csv",
        [
            {column: twice["item"], "answer": "broken"},
            {column: one["item"], "answer": other},
            {column: "unknown", "answer": other},
            {column: rows[-1]["item"], "answer": ""},
        ],
    )
    two = write_rows(tmp_path / "two.csv", [{column: one["item"], "user_id": "1", "answer": other}])
    if column != "item":  # which of the two it is nobody can tell
        with pytest.raises(DataError, match="corrections may have 'id' and 'answer'"):
            correct(done, two)
    received = correct(done, sheet)
    assert received.corrected == 3
    assert [fault.partition(" row ")[2] for fault in received.faults] == [
        "4, column id: no answer to an item of this id was accepted"
    ]
    now = [(row["item"], row["kind"], row["label"]) for row in done.labels().rows]
    assert now.count((twice["item"], "broken", None)) == 2
    assert now.count((one["item"], "label", other)) == 1
    assert len(now) == len(rows)
    expect_sound(done)
