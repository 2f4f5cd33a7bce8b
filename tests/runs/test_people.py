"""Sheets: what goes out, to whom, in what order, and that each sheet is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.errors import DataError
from stacksl.types import Item

from ..ledgers import bought, handed_rows, open_leases
from .changing_cases import POOL
from .people_cases import (
    answer_all,
    begin,
    expect_sound,
    facts_of,
    fill,
    open_rows,
    play,
    read_rows,
    sheets,
    truth,
    wrong,
)

TWO = {"annotators": "anna,ben"}


@pytest.mark.parametrize("mode", ["pool", pytest.param("stream", marks=pytest.mark.slow)])
def test_a_batch_is_open_in_all_with_the_audit_in_it(tmp_path: Path, mode: str) -> None:
    waiting = begin(tmp_path, mode=mode, open_questions=8, audit=6, budget=30, class_names=True)
    answered, spent = 0, []
    while waiting.status()["state"] == "waiting":
        told = open_rows(waiting)
        assert sum(told.values()) == min(8, 30 - answered)
        spent.append(waiting.status()["spent"])
        answered += sum(answer_all(waiting).accepted.values())
    assert answered == 30
    assert spent == sorted(spent)
    audit = {str(row["item"]) for row in bought(waiting, purpose="audit")}
    assert len(audit) == 6
    first = {row.item for row in handed_rows(waiting) if row.sheet == 1}
    assert 0 < len(first & audit) < 6  # the audit is not asked in one go, nor at the end alone
    expect_sound(waiting)


def test_two_labels_of_an_item_may_take_one_place_more_in_the_ledger(tmp_path: Path) -> None:
    """Two are reserved together, and an odd number of places has one for the last of them."""
    more = {"sheets.overlap": 15, "audit": 0, "class_names": True, "open_questions": 7}
    waiting = begin(tmp_path, mode="pool", budget=30, **more, **TWO)
    rows, purchases = [], []
    while waiting.status()["state"] == "waiting":
        rows.append(sum(open_rows(waiting).values()))
        purchases.append(len(open_leases(waiting)))
        answer_all(waiting)
    assert max(rows) == 7
    assert max(purchases) == 8


@POOL
def test_a_partial_answer_tops_the_open_rows_up(tmp_path: Path, mode: str) -> None:
    waiting = begin(tmp_path, mode=mode)
    keys = [row["key"] for row in read_rows(sheets(waiting)[0])]
    waiting.answer(fill(sheets(waiting)[0], keys=keys[:2]))
    assert open_rows(waiting) == {"0002.csv": 6}, "one open sheet: the leftovers and the new rows"
    newest = next(path for path in sheets(waiting) if path.name == "0002.csv")
    assert {row["key"] for row in read_rows(newest)} > set(keys[2:])
    waiting.answer(fill(newest, keys=keys[2:]))
    assert open_rows(waiting) == {"0003.csv": 6}
    expect_sound(play(waiting))
    assert len(bought(waiting, state="answered")) == 24


@pytest.mark.parametrize("mode", ["pool", pytest.param("stream", marks=pytest.mark.slow)])
def test_rows_of_two_are_two_purchases_and_one_lesson(tmp_path: Path, mode: str) -> None:
    waiting = begin(tmp_path, mode=mode, **{"sheets.overlap": 5}, price="2", **TWO)
    most = 0
    while waiting.status()["state"] == "waiting":
        most = max(most, sum(open_rows(waiting).values()))
        for path in sheets(waiting):
            waiting.answer(fill(path, truth if "anna" in path.name else wrong))
    assert most <= 6
    double = [str(row["item"]) for row in bought(waiting, slot=1)]
    assert len(double) == 5
    for item in double:
        slots = bought(waiting, item=item)
        assert {row["labeler"] for row in slots} == {"anna", "ben"}
        assert sum(row["learned_at"] is not None for row in slots) == 1
        assert [row["price"] for row in slots] == [2_000_000, 2_000_000]
    assert len(bought(waiting, state="answered")) == 24
    assert waiting.status()["money"] == {"price": 2.0, "budget": 48.0, "spent": 48.0}
    facts = facts_of(waiting)
    assert facts.budget.answered == 19
    assert (facts.asking.agreement.n, facts.asking.agreement.agreed) == (5, 0)
    assert "0.0% of 5 rows" in (waiting.path / "report.html").read_text()
    expect_sound(waiting)


# What is shown -----------------------------------------------------------------------------------


def test_options_of_an_item_are_shuffled_by_annotator_recorded_and_undone(tmp_path: Path) -> None:
    items = [Item(f"q{n}", f"question {n}", tuple(f"{n} {c}" for c in "wxyz")) for n in range(20)]
    plan = {
        "labeler": "file",
        "sheets": "csv",
        "budget": 12,
        "open_questions": 12,
        "sheets.overlap": 6,
        "seed": 3,
    }
    waiting = run(items, out=tmp_path / "run", mode="pool", audit=0, **plan, **TWO)
    orders = {(row.item, row.annotator): row.order for row in handed_rows(waiting)}
    assert len(set(orders.values())) > 3
    for path in sheets(waiting):
        waiting.answer(fill(path, lambda row: f"{row['prompt'].split()[1]} y"))
    assert {row["answer"] for row in bought(waiting, state="answered")} == {2}


# Where sheets lie --------------------------------------------------------------------------------


def test_colleagues_read_sheets_where_they_were_put(tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    waiting = begin(tmp_path, **{"sheets.dir": str(desk), "sheets.mode": "0640"}, **TWO)
    assert {path.parent for path in sheets(waiting)} == {desk}
    assert desk.stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in desk.iterdir()} == {0o640}
    assert not (waiting.path / "ask").exists()
    own = begin(tmp_path, out=tmp_path / "own")
    assert (own.path / "ask").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (own.path / "ask").iterdir()} == {0o600}


def test_a_folder_of_sheets_belongs_to_one_run_and_can_be_made(tmp_path: Path) -> None:
    begin(tmp_path, sheets={"dir": str(tmp_path / "desk")})
    with pytest.raises(DataError, match="ask-dir of its own"):
        begin(tmp_path, sheets={"dir": str(tmp_path / "desk")}, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (tmp_path / "file").write_text("")
    for name in ("file", "file/desk", "x" * 300):
        with pytest.raises(DataError, match="--ask-dir expects a folder"):
            begin(tmp_path, sheets={"dir": str(tmp_path / name)}, out=tmp_path / "other")
        assert not (tmp_path / "other").exists()


# Sheets that are gone, runs that are left --------------------------------------------------------


def test_a_sheet_that_a_newer_one_replaces_is_told(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", open_questions=6)
    old, ben = sheets(waiting)
    key = read_rows(old)[0]["key"]
    waiting.answer(fill(old, keys=[key]))
    fill(old, lambda row: "")
    waiting.answer(fill(ben))
    new = next(path for path in sheets(waiting) if "anna" in path.name)
    assert new.name > old.name
    told = (old.parent / "HOWTO.txt").read_text(encoding="utf-8-sig")
    assert f"  {old.name}: fill in {new.name}, which has its open rows" in told
    assert f"  {new.name}:" not in told
    received = waiting.answer(old)
    assert received.accepted == {}
    assert received.faults == (
        f"{old}: this sheet has no answer, and {new.name} has its open rows now: fill in that one",
    )
    assert not waiting.answer(old, new).faults, "both are given: nothing is missing"
    received = waiting.answer(fill(old))
    assert sum(received.accepted.values()) == 2, "its answers count all the same"
    assert not received.faults


def test_a_sheet_that_was_deleted_is_written_again_with_its_keys(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    path = sheets(waiting)[0]
    before = path.read_bytes()
    path.unlink()
    waiting.resume()
    assert path.read_bytes() == before
    keys = [row["key"] for row in read_rows(path)]
    waiting.answer(fill(path, keys=keys[:4]))
    path.unlink()
    path = path.with_name("0002.csv")
    rows = read_rows(path)
    path.unlink()
    waiting.resume()
    assert read_rows(path) == rows
    assert {row["key"] for row in rows} > set(keys[4:])


def test_sheets_are_where_a_run_was_moved(tmp_path: Path) -> None:
    waiting = begin(tmp_path, out=tmp_path / "before")
    moved = Run(waiting.path.rename(tmp_path / "after"))
    assert all(path.is_file() for path in sheets(moved))
    assert "before" not in str(moved.status())
