"""Full disks, foreign and damaged files, other versions: one sentence, nothing lost."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger import journal
from stacksl.ledger.journal import make_indexes
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, ItemRecord
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.rows import read_items, read_rejected
from stacksl.ledger.store.schema import FORMAT, TEST
from stacksl.ledger.store.settings import Setting

from ..saved_arrays import edit
from .conftest import chain_of, lessons
from .fault_cases import fill, state


def read_all(path):
    with Ledger.open(path, readonly=True) as ledger:
        ledger.private.handed()
        ledger.texts()
        ledger.arrays()
        ledger.erasing()
        ledger.verify()
    read_given(path)


def read_given(path):
    with opened(path, readonly=True) as store:
        return [*read_items(store), *read_items(store, TEST), read_rejected(store)]


def test_a_full_disk_changes_nothing_and_the_run_goes_on(book, decision, path):
    ledger = book(budget=5)
    ledger.post([decision(1)])
    ledger.take([Answer("q0", 0, 1, 0, "oracle")], durable=False)
    before = state(ledger)
    fill(ledger)
    big = [replace(decision(n), presented=tuple(range(5000, 0, -1))) for n in (2, 3)]
    for _ in range(2):
        with pytest.raises(LedgerError, match="disk is full: free some space and resume") as caught:
            ledger.post(big)
        assert "\n" not in str(caught.value)
        assert state(ledger) == before
    fill(ledger, full=False)
    ledger.post(big)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify()
        assert (again.accounts.spent, len(again.accounts.learned_labels)) == (3, 1)


def test_a_full_disk_leaves_nothing_of_a_run_that_is_being_made(book, path, monkeypatch):
    connect = sqlite3.connect

    def small(*words, **options):
        connection = connect(*words, **options)
        connection.execute("PRAGMA max_page_count = 5")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        said = r"disk is full: free some space and start the run again"
        with pytest.raises(LedgerError, match=said):
            book()
    assert list(path.parent.iterdir()) == []
    book().verify()


def test_a_run_that_is_being_made_has_no_log(book, path, monkeypatch):
    """A log that a full disk keeps from the file would not be renamed with it."""
    files: list[str] = []

    def listed(connection):
        files.extend(file.name for file in path.parent.iterdir())
        make_indexes(connection)

    monkeypatch.setattr(journal, "make_indexes", listed)
    book()
    assert files == ["run.db.new"]


def test_a_full_disk_takes_nothing_of_what_people_say(book, decision, path):
    """Texts, names and handed rows are in the transaction of the answers, or nowhere."""
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2)])
    long = "x" * 100_000
    said = Answer("q0", 0, 1, None, "Ann", kind="none", text=long)
    handed = [Handed("k", "q0", 0, 1, "Ann" + long, 1, (0,))]
    before = state(ledger)
    fill(ledger)
    for attempt in (
        lambda: ledger.take([Answer("q1", 0, 1, 2, "Ann"), said]),
        lambda: ledger.hand_out(handed),
        lambda: ledger.own([("q9", 1)], long),
        lambda: ledger.set_budget(12, None, {"why": long}),
        lambda: ledger.add_items([ItemRecord(long, "", 2)]),
    ):
        with pytest.raises(LedgerError, match="disk is full"):
            attempt()
        assert (state(ledger), ledger.texts(), ledger.private.handed()) == (before, [], [])
    fill(ledger, full=False)
    assert len(lessons(ledger.take([Answer("q1", 0, 1, 2, "Ann"), said]))) == 1
    ledger.hand_out(handed)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify()
        assert (again.texts(), again.private.handed()) == ([said], handed)


def test_a_commit_that_fails_changes_nothing(book, decision, path, monkeypatch):
    ledger = book()
    before = state(ledger)

    class Failing(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *values)

    failing = sqlite3.connect(path, factory=Failing, isolation_level=None)
    with monkeypatch.context() as patch:
        patch.setattr(ledger._store, "connection", failing)
        with pytest.raises(LedgerError, match="the disk reports an error"):
            ledger.post([decision(1)])
    assert state(ledger) == before
    assert [d.status for d in ledger.post([decision(1)])] == ["reserved"]
    ledger.verify({"a file": ledger.head})


def test_a_ledger_opened_for_reading_writes_nothing(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    ledger.close()
    with Ledger.open(path, readonly=True) as reader:
        for attempt in (
            lambda: reader.post([decision(2)]),
            lambda: reader.post([decision(2, "skipped")]),
            lambda: reader.take([Answer("q0", 0, 1, 0, "x")]),
            lambda: reader.note_refit(1, {}),
            lambda: reader.reserve(["q5"]),
            lambda: reader.own([("q5", 0)], "old"),
            lambda: reader.set_budget(9, None, {}),
            lambda: reader.add_items([ItemRecord("new", "", 2)]),
            lambda: reader.add_class("more", 5),
            lambda: reader.change_settings({"seed": Setting(1)}),
            lambda: reader.write_state("waiting", {}),
            lambda: reader.hand_out([Handed("k", "q0", 0, 1, "Ann", 1, (0,))]),
            lambda: reader.forget("q0"),
            lambda: reader.begin_erasing("q0"),
            lambda: reader.erased(),
            lambda: reader.save_arrays(1, {}),
        ):
            with pytest.raises(LedgerError, match="for reading only|is read-only"):
                attempt()
        assert reader.accounts.spent == 1


def test_a_read_only_database_is_one_sentence(book, decision):
    ledger = book()
    ledger._store.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(LedgerError, match="read-only: make it writable"):
        ledger.post([decision(1)])
    assert ledger.accounts.spent == 0


def test_missing_foreign_and_empty_files(tmp_path: Path):
    text, empty, other = tmp_path / "a.txt", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("not a ledger " * 1000)
    empty.touch()
    edit(other, "CREATE TABLE mine (x)")
    before = chain_of(other, "sqlite_master"), len(other.read_bytes())
    for path, words in (
        (tmp_path, "no ledger at"),
        (tmp_path / "nothing.db", "no ledger at"),
        (text, "SQLite file, got something else"),
        (empty, "has format 0"),
        (other, "has format 0"),
    ):
        for readonly in (True, False):
            with pytest.raises(LedgerError, match=words) as caught:
                Ledger.open(path, readonly=readonly)
            assert "\n" not in str(caught.value)
    assert (chain_of(other, "sqlite_master"), len(other.read_bytes())) == before
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("share", [0.05, 0.6, 0.99])
def test_a_truncated_file_is_one_sentence(path, decision, records, share):
    with Ledger.create(path, run="r", budget=30, items=records) as ledger:
        for round in range(1, 31):
            ledger.post([replace(decision(round), presented=tuple(range(400, 0, -1)))])
        head = ledger.head
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(LedgerError) as caught, Ledger.open(path) as cut:
        cut.verify({"a file": head})
    assert "\n" not in str(caught.value)


def test_garbage_in_the_middle_is_one_sentence(book, decision, path):
    ledger = book(budget=20)
    ledger.post([decision(n) for n in range(1, 21)])
    ledger.close()
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises(LedgerError) as caught, Ledger.open(path) as broken:
        broken.verify()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("table", "page"), [("items", 4096), ("test", 4096), ("events", 2)])
def test_rows_out_of_order_are_not_read_for_ever(book, decision, path, monkeypatch, table, page):
    """One byte of damage: the last row of a page gets the number of the first."""
    ledger = book(
        items=[ItemRecord(f"q{n}", "x" * 200, 4) for n in range(4)],
        test=[ItemRecord(f"t{n}", "x" * 200, 2) for n in range(4)],
    )
    ledger.post([decision(1), decision(2)])
    ledger.close()
    with sqlite3.connect(path) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    start = (root - 1) * 4096
    cells = [start + int.from_bytes(data[start + at : start + at + 2]) for at in range(8, 16, 2)]
    numbers = [data[cell + 2] for cell in cells]  # behind the two bytes of the row's length
    assert (data[start], numbers[0] + 3) == (0x0D, numbers[-1]), "a leaf with four rows"
    data[cells[-1] + 2] = numbers[0]
    path.write_bytes(data)
    monkeypatch.setattr("stacksl.ledger.store.database._PAGE", page)
    with pytest.raises(LedgerCorrupt, match="damaged"), Ledger.open(path, readonly=True) as broken:
        broken.verify()
    if table != "events":
        with pytest.raises(LedgerCorrupt, match="damaged"):
            read_given(path)


def test_create_never_overwrites(book, path):
    book().close()
    with pytest.raises(LedgerError, match="exists"):
        book()


def test_create_that_fails_leaves_no_file(tmp_path, records):
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger.create(tmp_path / "no" / "folder.db", run="r", budget=1, items=records)

    def faulty():
        yield records[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ledger.create(tmp_path / "l.db", run="r", budget=1, items=faulty())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "l.db.new").write_text("what a killed process left")
    Ledger.create(tmp_path / "l.db", run="r", budget=1, items=records).close()
    assert [p.name for p in tmp_path.iterdir()] == ["l.db"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"CREATE TABLE items", b"CREATE TABLE \xdftems"),
        (b"CREATE TABLE events", b"CREATE TABLE ev\xecnts"),
        (b'"choice":2', b'"ch\xefice":2'),
        (b'"choice":2', b'"chOice":2'),
        (b'"reason":"gate"', b'"reason":"gate!'),
    ],
)
def test_flipped_bits_are_one_sentence(book, decision, path, before, after):
    ledger = book()
    ledger.post([decision(1)])
    ledger.close()
    found = path.read_bytes()
    assert before in found
    path.write_bytes(found.replace(before, after))
    with pytest.raises(LedgerError) as caught, Ledger.open(path, readonly=True) as again:
        next(iter(again.rows())).decision()
    assert "\n" not in str(caught.value)
    assert "restore" in str(caught.value)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("terms", "price = 'dear'"),
        ("settings", "value = x'ff'"),
        ("state", "record = x'ff'"),
        ("items", "id = CAST('x' || rowid AS BLOB)"),
        ("items", "size = 'four'"),
        ("items", "surrogate = CAST(surrogate AS BLOB)"),
        ("items", "candidates = 7"),
        ("test", "part = 'first'"),
        ("test", "answer = 0.5"),
        ("rejected", "reason = x'ff'"),
        ("arrays", "data = 'none'"),
        ("erasing", "item = x'ff'"),
        ("names", "name = x'ff'"),
        ("texts", "note = x'ff'"),
        ("handed", "slot = 'first'"),
        ("handed", "shown = '{'"),
        ("events", "hash = x'00'"),
        ("events", "time = 0.5"),
        ("events", "item = x'ff'"),
    ],
)
def test_values_of_another_type_are_one_sentence(book, decision, path, table, change):
    given = {"test": [ItemRecord("t", "x", 2)], "rejected": [(0, 1, None, "empty")]}
    ledger = book(settings={"seed": Setting(1)}, **given)
    ledger.forget("q9")
    ledger.post([decision(1)])
    ledger.save_arrays(1, {"weights": np.zeros(3)})
    ledger.hand_out([Handed("k1", "q0", 0, 1, "Ann", 1, (0, 1, 2, 3))])
    ledger.take([Answer("q0", 0, 1, 2, "Ann", note="a note")])
    ledger.close()
    edit(path, f"UPDATE {table} SET {change}")
    with pytest.raises(LedgerCorrupt) as caught:
        read_all(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (f"PRAGMA user_version = {FORMAT + 1}", f"has format {FORMAT + 1}"),
        (f"PRAGMA user_version = {FORMAT - 1}", f"has format {FORMAT - 1}"),
        ("PRAGMA user_version = 0", "has format 0"),  # as of versions that had a table for it
    ],
)
@pytest.mark.parametrize("readonly", [True, False])
def test_a_ledger_of_another_format_is_refused(book, path, change, said, readonly):
    said += f", .* reads format {FORMAT}: .* use the version"
    book().close()
    edit(path, change)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=said):
        Ledger.open(path, readonly=readonly)
    assert path.read_bytes() == before


LISTS = ("'{'", "'7'", "'{\"a\": 1}'", "replace(hex(zeroblob(50000)), '0', '[')")


@pytest.mark.parametrize(
    ("table", "change"),
    [
        *((table, f"candidates = {text}") for table in ("items", "test") for text in LISTS),
        *((table, "prompt = NULL") for table in ("items", "test")),
    ],
)
def test_a_damaged_row_of_what_was_given_is_one_sentence(book, path, table, change):
    book(items=[ItemRecord("q3", "x", 4)], test=[ItemRecord("q3", "x", 2)]).close()
    edit(path, f"UPDATE {table} SET {change}")
    with pytest.raises(LedgerCorrupt, match="was edited or damaged: restore") as caught:
        read_given(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("event", ["round", "reserved"])
def test_the_database_keeps_the_rules_too(book, decision, path, event):
    ledger = book()
    ledger.post([decision(1)])
    ledger.close()
    columns = "time, event, round, item, slot, token, number, purpose, labeler, price, payload"
    again = f"INSERT INTO events SELECT seq + 100, {columns}, previous, hash FROM events"
    with pytest.raises(sqlite3.IntegrityError):
        edit(path, f"{again} WHERE event = ? LIMIT 1", event)


def test_what_failed_twice_is_counted_anew_before_it_is_taken_again(tmp_path, monkeypatch) -> None:
    """The commit fails, and so does the reading after it: the answer is not on disk."""
    path = tmp_path / "run.db"
    ledger = Ledger.create(path, run="r", budget=5, price=10, items=[ItemRecord("a", "x", 2)])
    ledger.reserve(["a"])
    answer = Answer("a", 0, 1, 1, "anna", 10)
    with monkeypatch.context() as patch:

        def fails(*_: object, **__: object) -> None:
            raise LedgerError("disk I/O error")

        patch.setattr(ledger._store, "append", fails)
        patch.setattr(ledger._store, "pages", fails)
        with pytest.raises(LedgerError, match="disk I/O error"):
            ledger.take([answer])
    assert ledger.take([answer])[0].outcome == "accepted"
    ledger.close()
    with Ledger.open(path) as again:
        assert again.take([answer])[0].outcome == "repeated"
