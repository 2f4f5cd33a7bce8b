"""Full disks, foreign files, other versions, other processes: one sentence, nothing lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, ItemRecord


def state(ledger):
    sums = (ledger.asked, ledger.spent, ledger.spent_money, ledger.left, ledger.learnt)
    return sums, ledger.open_purchases(), ledger.head, ledger.seen("q1"), ledger.export()


def read_all(path, records):
    with Ledger.open(path, readonly=True) as ledger:
        ledger.check_items(records)
        ledger.handed()
        ledger.texts()
        ledger.verify()


def fill(ledger, full=True):
    """Make SQLite itself report a full disk, or no longer."""
    raw = ledger._store.connection
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")


def test_a_full_disk_changes_nothing_and_the_run_goes_on(book, decision, path):
    from dataclasses import replace

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
        assert (again.spent, again.learnt) == (3, 1)


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
    ledger.verify([ledger.head])


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
            lambda: reader.add_items([ItemRecord("new", "")]),
            lambda: reader.add_class("more", 5),
            lambda: reader.hand_out([Handed("k", "q0", 0, 1, "Ann", 1, (0,))]),
            lambda: reader.forget("q0"),
        ):
            with pytest.raises(LedgerError, match="for reading only"):
                attempt()
        assert reader.spent == 1


def test_a_read_only_database_is_one_sentence(book, decision):
    ledger = book()
    ledger._store.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(LedgerError, match="read-only: make it writable"):
        ledger.post([decision(1)])
    assert ledger.spent == 0


def test_a_ledger_that_is_held_is_one_sentence(book, decision, path):
    ledger = book()
    ledger._store.connection.execute("PRAGMA busy_timeout = 20")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="held by another process"):
        ledger.post([decision(1)])
    assert ledger.spent == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.post([decision(1)])[0].asked


def test_missing_foreign_and_empty_files(tmp_path: Path):
    text, empty, other = tmp_path / "a.txt", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("not a ledger " * 1000)
    empty.touch()
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = other.read_bytes()
    for path, words in (
        (tmp_path, "got the folder"),
        (tmp_path / "nothing.db", "no ledger at"),
        (text, "SQLite file, got something else"),
        (empty, "is empty, it was cut"),
        (other, "got a database without its tables"),
    ):
        for readonly in (True, False):
            with pytest.raises(LedgerError, match=words) as caught:
                Ledger.open(path, readonly=readonly)
            assert "\n" not in str(caught.value)
    assert sqlite3.connect(other).execute("SELECT name FROM sqlite_master").fetchall() == [
        ("mine",)
    ]
    assert len(other.read_bytes()) == len(before)
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_truncated_file_is_one_sentence(path, decision, records, share):
    from dataclasses import replace

    with Ledger.create(path, run="r", budget=30, items=records) as ledger:
        for round in range(1, 31):
            ledger.post([replace(decision(round), presented=tuple(range(400, 0, -1)))])
        head = ledger.head
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(LedgerError) as caught, Ledger.open(path) as cut:
        cut.verify([head])
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
    with pytest.raises(LedgerError, match="should not be negative"):
        Ledger.create(tmp_path / "m.db", run="r", budget=-1, items=records)


def test_an_answer_is_in_the_file_and_not_in_its_log(book, decision, path, tmp_path):
    """A flipped bit in a write-ahead log ends it unseen; one in the file is found."""
    ledger = book()
    ledger.post([decision(1), decision(2)])
    for item in ("q0", "q1"):
        ledger.take([Answer(item, 0, 1, 2, "me")])
        alone = tmp_path / f"{item}.db"
        shutil.copy(path, alone)  # without its log
        with Ledger.open(alone, readonly=True) as copy:
            copy.verify([ledger.head])
            assert copy.export()[-2:] == ledger.export()[-2:]
        assert path.with_name("ledger.db-wal").stat().st_size == 0


def test_a_reader_in_the_way_keeps_no_answer_out(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    ledger.take([Answer("q0", 0, 1, 2, "me")])
    ledger.close()  # the reader is still there
    reader.execute("COMMIT")
    reader.close()
    with Ledger.open(path) as again:
        assert (again.learnt, again.open_purchases()) == (1, [])
        again.verify([ledger.head])


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
        ("items", "id = CAST('x' || rowid AS BLOB)"),
        ("items", "size = 'four'"),
        ("items", "salt = 'no salt'"),
        ("names", "name = x'ff'"),
        ("texts", "note = x'ff'"),
        ("handed", "slot = 'first'"),
        ("handed", "shown = '{'"),
        ("handed", "shown = '[0.5]'"),
        ("events", "hash = x'00'"),
        ("events", "previous = x'00'"),
        ("events", "time = 0.5"),
        ("events", "round = 'one'"),
        ("events", "item = x'ff'"),
    ],
)
def test_values_of_another_type_are_one_sentence(book, decision, path, records, table, change):
    ledger = book()
    ledger.post([decision(1)])
    ledger.hand_out([Handed("k1", "q0", 0, 1, "Ann", 1, (0, 1, 2, 3))])
    ledger.take([Answer("q0", 0, 1, 2, "Ann", note="a note")])
    ledger.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute(f"UPDATE {table} SET {change}").rowcount > 0
    connection.close()
    with pytest.raises(LedgerCorrupt) as caught:
        read_all(path, records)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE format SET number = 4", "has format 4, .* reads format 3: install a newer"),
        ("UPDATE format SET number = 2", "has format 2, .* reads format 3: use the version"),
        ("DROP TABLE format", "has format 0, .* reads format 3: use the version"),
    ],
)
@pytest.mark.parametrize("readonly", [True, False])
def test_a_ledger_of_another_format_is_refused(book, path, change, said, readonly):
    book().close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=said):
        Ledger.open(path, readonly=readonly)
    assert path.read_bytes() == before


def test_the_database_keeps_the_rules_too(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    ledger.take([Answer("q0", 0, 1, 0, "x")])
    ledger.close()
    connection = sqlite3.connect(path)
    for event in ("round", "reserved", "answered", "learnt"):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(
                "INSERT INTO events SELECT seq + 100, time, event, round, item, slot, token,"
                " number, purpose, labeler, price, payload, previous, hash"
                " FROM events WHERE event = ?",
                (event,),
            )
    with pytest.raises(sqlite3.IntegrityError):  # a second accepted answer, on another lease
        connection.execute(
            "INSERT INTO events SELECT seq + 100, time, event, round, item, slot, token + 1,"
            " number, purpose, labeler, price, payload, previous, hash"
            " FROM events WHERE event = 'answered'"
        )
    connection.close()


RACER = """
import sys
from stacksl.types import Decision
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer

path, me, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ledger = Ledger.open(path)
print("ready", flush=True)
sys.stdin.readline()
won = 0
for n in range(rounds):
    number = me * rounds + n
    status = "wanted" if n % 3 else "skipped"
    decision = Decision(
        number + 1, f"q{number}", (0, 1), 0, 1.0, 0.0, "gate", 0.0, 0.0, 0.0, 0.5, 0.0,
        (0.0,), (1.0,), status)
    (posted,) = ledger.post([decision])
    if posted.asked:
        won += 1
        ledger.take([Answer(posted.item, 0, 1, 1, f"p{me}")], durable=bool(n % 2))
    assert ledger.spent <= ledger.budget
ledger.close()
print(won)
"""


def test_processes_that_race_never_exceed_the_budget(path):
    racers, rounds, budget = 3, 24, 20
    items = [ItemRecord(f"q{i}", "", 2) for i in range(racers * rounds)]
    Ledger.create(path, run="race", budget=budget, items=items).close()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), str(me), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(racers)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate(timeout=120)[0]) for process in started]
    assert all(process.returncode == 0 for process in started)
    assert sum(won) == budget  # of 48 wants
    with Ledger.open(path) as ledger:
        ledger.verify([ledger.head])
        assert (ledger.spent, ledger.learnt, ledger.left) == (budget, budget, 0)
        assert sum(row.event == "round" for row in ledger.rows()) == racers * rounds


def test_another_process_is_noticed(book, decision, path):
    ledger = book(budget=2)
    ledger.post([decision(1, "skipped")])  # waits while the other writes
    with Ledger.open(path) as other:
        other.post([decision(2)])
        other.take([Answer("q1", 0, 1, 0, "other")])
        other.post([decision(3)])
    assert ledger.left == 2  # not looked yet
    (posted,) = ledger.post([decision(4)])
    assert posted.status == "refused"
    assert (ledger.spent, ledger.learnt, len(ledger.open_purchases())) == (2, 1, 1)
    ledger.verify([ledger.head])


def test_a_ledger_cut_under_a_running_process_is_noticed(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM events WHERE seq = 2")
    connection.close()
    with pytest.raises(LedgerCorrupt, match="was cut or replaced"):
        ledger.post([decision(2)])


def kill_after(number, program, *words):
    """Run a program that prints rising numbers, and kill it when it has printed this one."""
    command = [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert any(int(line) == number for line in process.stdout), "it ended before"
        process.kill()


def test_nothing_of_a_killed_process_is_half_written(path, records):
    """Killed without any farewell, a ledger holds what `post` and `take` had returned."""
    Ledger.create(path, run="r", budget=30, items=records).close()
    body = RACER.replace('print("ready", flush=True)\nsys.stdin.readline()\n', "").replace(
        "    assert ledger.spent", "    print(ledger.spent, flush=True)\n    assert ledger.spent"
    )
    body = body.replace("durable=bool(n % 2)", "durable=True")
    kill_after(7, body, path, 0, 30)
    with Ledger.open(path) as ledger:
        ledger.verify([ledger.head])
        assert ledger.spent >= 7
        assert ledger.learnt + len(ledger.open_purchases()) == ledger.spent


def test_what_failed_twice_is_counted_anew_before_it_is_taken_again(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit fails, and so does the reading after it: the answer is not on disk."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.create(path, run="r", budget=5, price=10, items=[ItemRecord("a", "x", 2)])
    ledger.reserve(["a"])
    answer = Answer("a", 0, 1, 1, "anna", 10)
    with monkeypatch.context() as patch:

        def fails(*_: object, **__: object) -> None:
            raise LedgerError("disk I/O error")

        patch.setattr(ledger._store, "append", fails)
        patch.setattr(ledger._store, "links", fails)
        with pytest.raises(LedgerError, match="disk I/O error"):
            ledger.take([answer])
    assert ledger.take([answer])[0].outcome == "accepted"
    ledger.close()
    with Ledger.open(path) as again:
        assert again.take([answer])[0].outcome == "repeated"
