"""A forgotten item leaves its numbers, and no byte of what was said of it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, ItemRecord

ID, TEXT, NOTE, KEY = "canary-id-4711", "canary right text", "canary note", "canary-key"
WORDS = [word.encode() for word in (ID, TEXT, NOTE, KEY)]
ITEMS = [ItemRecord(ID, "A prompt", 4), *(ItemRecord(f"q{i}", str(i), 4) for i in range(1, 9))]


def bytes_of(path: Path) -> bytes:
    """The file and all that SQLite keeps beside it."""
    found = sorted(path.parent.glob(path.name + "*"))
    assert found
    return b"".join(p.read_bytes() for p in found)


def secrets(path: Path) -> list[bytes]:
    """What the table of items holds of the item besides its id: salt and content hash."""
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT salt, content_hash FROM items WHERE id = ?", (ID,)).fetchone()
    connection.close()
    return [text.encode() for text in row]


@pytest.fixture
def told(path, decision):
    """A ledger in which everything was said of one item."""
    ledger = Ledger.create(path, run="r", budget=9, items=ITEMS)
    ledger.post([decision(1, item=ID), decision(2)], {ID: 3})
    ledger.hand_out(
        [
            Handed(KEY, ID, 0, 1, "Ann", 1, (0, 1, 2, 3)),
            Handed("k2", "q1", 0, 1, "Ann", 1, (0, 1, 2, 3)),
        ]
    )
    none = Answer(ID, 0, 1, None, "Ann", said="none", text=TEXT, note=NOTE)
    kept = Answer("q1", 0, 1, 2, "Ann", note="kept note")
    ledger.take([none, Answer(ID, 1, 1, 3, "Ann", note=NOTE), kept])
    ledger.take([replace(none, text=TEXT + " again")])
    yield ledger
    ledger.__exit__(ValueError, None, None)


def test_no_byte_is_left_while_the_ledger_is_open(told, path):
    everything = [*WORDS, *secrets(path)]
    before = bytes_of(path)
    assert all(word in before for word in everything)
    told.forget(ID)
    after = bytes_of(path)
    assert [word for word in everything if word in after] == []
    assert b"kept note" in after
    told.close()
    assert [word for word in everything if word in bytes_of(path)] == []


def test_the_chain_still_verifies_and_keeps_its_numbers(told, path):
    head, rows = told.head, list(told.rows())
    sums = (told.learnt, told.said())
    assert [p.slot for p in told.open_purchases()] == [2]
    tombstone = told.tombstone(ID)
    told.forget(ID)
    told.verify({"before": head, "now": told.head})
    after = list(told.rows())
    assert [r.hash for r in after[: len(rows)]] == [r.hash for r in rows]
    assert [(r.event, r.payload["reason"]) for r in after[len(rows) :]] == [
        ("released", "forgotten")
    ]
    assert told.open_purchases() == []
    assert (told.spent, told.learnt, told.said()) == (3, *sums)
    gone = [r for r in after if r.forgotten]
    assert {r.event for r in gone} == {
        "round",
        "reserved",
        "answered",
        "late",
        "learnt",
        "released",
    }
    assert {r.item for r in gone} == {f"forgotten-{gone[0].surrogate}"}
    assert {r.item for r in after if not r.forgotten} == {"q1"}
    assert gone[0].decision().item == gone[0].item == tombstone
    assert [h.key for h in told.handed()] == ["k2"]
    assert [a.note for a in told.texts()] == ["kept note"]
    assert {row["item"] for row in told.export()} == {gone[0].item, "q1"}
    told.close()
    with Ledger.open(path) as again:
        again.verify({"a file": head})
        assert (again.spent, again.learnt) == (3, sums[0])
        assert len(again.agreement()) == 1


def test_a_forgotten_item_is_unknown(told, decision):
    told.forget(ID)
    for attempt in (
        lambda: told.forget(ID),
        lambda: told.seen(ID),
        lambda: told.reserve([ID]),
        lambda: told.correct(ID, 1, "Ann"),
    ):
        with pytest.raises(LedgerError, match="the ledger has 9 items"):
            attempt()
    tombstone = next(str(row.item) for row in told.rows() if row.forgotten)
    with pytest.raises(LedgerError, match="not kept for a forgotten item") as caught:
        told.take([Answer(tombstone, 2, 1, None, "Ann", said="none", text=TEXT)])
    assert TEXT not in str(caught.value)


def test_the_data_is_whole_without_it(told):
    told.forget(ID)
    told.check_items(ITEMS[1:])
    tombstone = next(str(row.item) for row in told.rows() if row.forgotten)
    told.check_items([ItemRecord(tombstone, "", 4), *ITEMS[1:]])
    with pytest.raises(LedgerError, match="1 are new"):
        told.check_items(ITEMS)


def test_an_item_never_asked_is_forgotten_too(told, path):
    told.forget("q7")
    assert b"q7" not in bytes_of(path)
    told.verify({"a file": told.head})


def test_a_late_answer_is_not_learnt_from_memory(path, decision):
    with Ledger.create(path, run="r", budget=3, items=ITEMS) as ledger:
        ledger.post([decision(1, item=ID)])
        ledger.forget(ID)
        assert all(ID not in str(d) for d in ledger._decisions.values())


def test_other_free_pages_are_wiped_too(path, decision):
    """What was deleted without overwriting goes with the next forgotten item."""
    with Ledger.create(path, run="r", budget=3, items=ITEMS) as ledger:
        ledger.post([decision(1, item=ID)])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA secure_delete=OFF")
    connection.execute("CREATE TABLE scratch (x)")
    connection.executemany("INSERT INTO scratch VALUES (?)", [("old canary",)] * 500)
    connection.commit()
    connection.execute("DROP TABLE scratch")
    connection.commit()
    connection.close()
    assert b"old canary" in bytes_of(path)
    with Ledger.open(path) as ledger:
        ledger.forget(ID)
        assert b"old canary" not in bytes_of(path)


def test_a_reader_in_the_way_is_one_sentence_and_made_good_at_the_next_opening(told, path):
    told._store.connection.execute("PRAGMA busy_timeout = 20")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    with pytest.raises(LedgerError, match="open the ledger again") as caught:
        told.forget(ID)
    assert "\n" not in str(caught.value)
    assert ID not in str(caught.value)
    assert any(row.forgotten for row in told.rows())
    reader.execute("COMMIT")
    reader.close()
    told.close()
    with Ledger.open(path) as again:
        assert [word for word in WORDS if word in bytes_of(path)] == []
        assert not again._store.unclean
        again.verify()


def test_a_commit_that_fails_forgets_nothing(told, path, monkeypatch):
    def full(self) -> None:
        raise LedgerError("the disk is full")

    before = told.export(), told.open_purchases(), told.texts(), told.handed()
    with monkeypatch.context() as patch:
        patch.setattr(type(told._store), "commit", full)
        with pytest.raises(LedgerError, match="full"):
            told.forget(ID)
    assert before == (told.export(), told.open_purchases(), told.texts(), told.handed())
    assert not told._store.unclean
    told.check_items(ITEMS)
    told.verify({"a file": told.head})


KILLED = """
import os, signal, sys
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.database import Store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

moment = sys.argv[3]
if moment == "wipe":
    Store.wipe = die
elif moment == "commit":
    Store.commit = die
else:
    own = Store._pragma
    Store._pragma = lambda self, words: die() if moment in words else own(self, words)
ledger = Ledger.open(sys.argv[1])
ledger.forget(sys.argv[2])
"""


@pytest.mark.parametrize("moment", ["commit", "wipe", "wal_checkpoint", "user_version=0"])
def test_a_process_killed_on_the_way_has_forgotten_wholly_or_not_at_all(told, path, moment):
    told.close()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), ID, moment], timeout=60)
    assert done.returncode == -9
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        left = [word for word in WORDS if word in bytes_of(path)]
        if moment == "commit":
            assert left == WORDS
            again.check_items(ITEMS)
            again.forget(ID)
            left = [word for word in WORDS if word in bytes_of(path)]
        assert left == []
        assert again.texts(None)[0].note == "kept note"


def test_forgetting_needs_no_other_folder(told, path, monkeypatch, tmp_path):
    """SQLite's copy of the file, which VACUUM makes, is kept in memory."""
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setenv("SQLITE_TMPDIR", os.fspath(closed))
    raw = told._store.connection
    told.forget(ID)
    assert raw.execute("PRAGMA temp_store").fetchone() == (2,)
    assert list(closed.iterdir()) == []
