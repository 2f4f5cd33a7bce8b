"""A forgotten item leaves its numbers, and no byte of what was said of it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.errors import LabelerError, LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, ItemRecord
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.rows import read_items, read_rejected
from stacksl.ledger.store.schema import TEST as TEST_TABLE
from stacksl.ledger.store.stored import read_requests, write_request

from .conftest import charge, stored, sums

ID, TEXT, NOTE, KEY = "canary-id-4711", "canary right text", "canary note", "canary-key"
PROMPT, OPTION, OTHER, ANSWER = "canary prompt", "canary option", "canary unknown", "canary said"
WORDS = [word.encode() for word in (ID, TEXT, NOTE, KEY, PROMPT, OPTION, OTHER, ANSWER)]
ITEMS = [
    ItemRecord(ID, PROMPT, 4, ["a", "b", "c", OPTION], None, OTHER),
    *(ItemRecord(f"q{i}", f"prompt {i}", 4) for i in range(1, 9)),
]
TEST = [
    ItemRecord("t1", "kept test", 4),
    ItemRecord("t2", PROMPT, 4, ["a", "b", "c", OPTION], 3),
    ItemRecord("t3", "kept test too", 4),
]
REJECTED = [(0, 3, ID, "repeated id"), (0, 5, "kept-id", "empty")]


def bytes_of(path: Path) -> bytes:
    """The file and all that SQLite keeps beside it."""
    found = sorted(path.parent.glob(path.name + "*"))
    assert found
    return b"".join(p.read_bytes() for p in found)


def secrets(path: Path) -> list[bytes]:
    """The salts of the item and of the test row of the same prompt."""
    connection = sqlite3.connect(path)
    query = "SELECT salt FROM {} WHERE prompt = ?"
    rows = [connection.execute(query.format(t), (PROMPT,)).fetchone() for t in ("items", "test")]
    connection.close()
    return [salt.encode() for (salt,) in rows]


def erase(ledger: Ledger, item: str = ID) -> str:
    """Forget an item without copies outside the database; its name from then on."""
    name = ledger.forget(item)
    ledger.erased()
    return name


def calls() -> list[dict[str, object]]:
    """A call about the item, one that has it as an example, and one of another item."""
    found: list[dict[str, object]] = []
    for call, (item, shots) in enumerate([(ID, ["q1"]), ("q2", [ID, "q1"]), ("q3", ["q1"])]):
        text = PROMPT if ID in (item, *shots) else "kept request"
        about = {"call": call, "item": item, "slot": 0, "cost": call}
        asked = {"request": {"messages": [text]}, "order": [0], "way": "letter", "shots": shots}
        found += [about | asked, about | {"answer": ANSWER if ID in (item, *shots) else "kept"}]
    return found


@pytest.fixture
def told(path, decision):
    """A ledger in which everything was said of one item."""
    ledger = Ledger.create(path, run="r", budget=9, items=ITEMS, test=TEST, rejected=REJECTED)
    ledger.post([decision(1, item=ID), decision(2)], {ID: 3})
    with ledger._store.writing():
        for call in calls():
            write_request(ledger._store, call)
        ledger._store.commit()
    ledger.hand_out(
        [
            Handed(KEY, ID, 0, 1, "Ann", 1, (0, 1, 2, 3)),
            Handed("k2", "q1", 0, 1, "Ann", 1, (0, 1, 2, 3)),
        ]
    )
    none = Answer(ID, 0, 1, None, "Ann", kind="none", text=TEXT, note=NOTE)
    kept = Answer("q1", 0, 1, 2, "Ann", note="kept note")
    ledger.take([none, Answer(ID, 1, 1, 3, "Ann", note=NOTE), kept])
    ledger.take([replace(none, text=TEXT + " again")])
    yield ledger
    ledger.__exit__(ValueError, None, None)


def test_no_byte_is_left_while_the_ledger_is_open(told, path):
    everything = [*WORDS, *secrets(path)]
    before = bytes_of(path)
    assert all(word in before for word in everything)
    erase(told)
    after = bytes_of(path)
    assert [word for word in everything if word in after] == []
    for kept in (b"kept note", b"prompt 1", b"kept test", b"kept-id", b"kept request"):
        assert kept in after
    told.close()
    assert [word for word in everything if word in bytes_of(path)] == []


def test_the_chain_still_verifies_and_keeps_its_numbers(told, path):
    head, rows = told.head, list(told.rows())
    counts, learned = told.counts_by_kind(), len(told.accounts.learned_labels)
    assert [p.slot for p in told.open_purchases()] == [2]
    name = erase(told)
    told.verify({"before": head, "now": told.head})
    after = list(told.rows())
    assert [r.hash for r in after[: len(rows)]] == [r.hash for r in rows]
    assert [(r.event, dict(r.payload)) for r in after[len(rows) :]] == [
        ("released", {"reason": "refused"}),
        ("forgotten", {"stored": after[-1].payload["stored"]}),
    ]
    assert after[-1].payload["stored"]["handed"] == {"1": None}
    requests = after[-1].payload["stored"]["requests"]
    assert [place for place, digest in requests.items() if digest is None] == ["1", "2"]
    assert list(requests) == ["1", "2", "3", "4"]
    assert (charge(after[-1]), after[-1].slot, after[-1].purpose) == (0, None, None)
    assert (told.open_purchases(), told.has_decision(name)) == ([], True)
    assert (*sums(told, "spent", "learned"), told.counts_by_kind()) == (3, learned, counts)
    gone = [r for r in after if r.erased]
    of_it = {"round", "reserved", "answered", "late", "learned", "released", "forgotten"}
    assert {r.event for r in gone} == of_it
    assert {r.item for r in gone} == {f"forgotten-{gone[0].surrogate}"}
    assert {r.item for r in after if r.surrogate and not r.erased} == {"q1"}
    assert gone[0].decision().item == gone[0].item == name
    assert [h.key for h in told.private.handed()] == ["k2"]
    assert [a.note for a in told.texts()] == ["kept note"]
    assert {row["item"] for row in told.export()} == {gone[0].item, "q1"}
    told.close()
    with Ledger.open(path) as again:
        again.verify({"a file": head})
        assert sums(again, "spent", "learned") == (3, learned)
        assert len(again.agreement()) == 1


def test_a_forgotten_item_is_unknown(told, decision):
    erase(told)
    for attempt in (
        lambda: told.forget(ID),
        lambda: told.label_of(ID),
        lambda: told.reserve([ID]),
        lambda: told.correct(ID, 1, "Ann"),
    ):
        with pytest.raises(LedgerError, match="the ledger has 9 items"):
            attempt()
    with pytest.raises(LabelerError, match="not among the 9 items"):
        told.take([Answer(ID, 2, 1, 0, "x")])
    name = next(str(row.item) for row in told.rows() if row.erased)
    with pytest.raises(LedgerCorrupt, match="the salt of an item") as caught:
        told.take([Answer(name, 2, 1, None, "Ann", kind="none", text=TEXT)])
    assert TEXT not in str(caught.value)


def test_the_data_is_whole_without_it(told, path):
    name = erase(told)
    with opened(path, readonly=True) as store:
        (first, *others), *_ = read_items(store)
        assert first == (ItemRecord(name, "", 4), True), "it keeps its place and K"
        assert [record for record, _ in others] == ITEMS[1:]
        assert stored(path, TEST_TABLE) == [TEST[0], None, TEST[2]]
        assert read_rejected(store) == [(0, 3, None, "repeated id"), REJECTED[1]]
        requests = [row for _, row in read_requests(store)]
        about_it, shown, other = requests[:2], [], calls()[4:]
        for row in requests:
            assert row["item"] != ID
            shown += [row] if row["call"] == 1 else []
        assert requests[2:] == other
    assert about_it == shown
    assert [row["cost"] for row in shown] == [1, 1], "what it cost stays"
    assert (shown[0]["request"], shown[0]["shots"], shown[1]["answer"]) == ({}, ["q1"], "")


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
        erase(ledger)
        assert b"old canary" not in bytes_of(path)


def test_a_reader_in_the_way_is_one_sentence_and_the_mark_stays(told, path):
    told._store.connection.execute("PRAGMA busy_timeout = 20")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    name = told.forget(ID)
    with pytest.raises(LedgerError, match="then give the command again") as caught:
        told.erased()
    assert "\n" not in str(caught.value)
    assert ID not in str(caught.value)
    assert told.erasing() == [name], "bytes in the database may be left"
    reader.execute("COMMIT")
    reader.close()
    told.close()
    with Ledger.open(path) as again:
        assert again.erasing() == [name]
        again.erased()
        assert [word for word in WORDS if word in bytes_of(path)] == []
        assert again.erasing() == []
        again.verify()


def test_a_commit_that_fails_forgets_nothing(told, path, monkeypatch):
    def full(self) -> None:
        raise LedgerError("the disk is full")

    before = told.export(), told.open_purchases(), told.texts(), told.private.handed()
    with monkeypatch.context() as patch:
        patch.setattr(type(told._store), "commit", full)
        with pytest.raises(LedgerError, match="full"):
            erase(told)
    assert before == (told.export(), told.open_purchases(), told.texts(), told.private.handed())
    assert told.erasing() == []
    assert stored(path) == ITEMS
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
ledger.erased()
"""


@pytest.mark.parametrize("moment", ["commit", "wipe", "wal_checkpoint"])
def test_a_process_killed_on_the_way_has_forgotten_wholly_or_not_at_all(told, path, moment):
    told.close()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), ID, moment], timeout=60)
    assert done.returncode == -9
    with Ledger.open(path) as again:
        again.verify({"a file": again.head})
        if moment == "commit":
            assert [word for word in WORDS if word in bytes_of(path)] == WORDS
            assert (stored(path), again.erasing()) == (ITEMS, [])
            erase(again)
        else:
            assert stored(path)[0] is None
            assert [each[:10] for each in again.erasing()] == ["forgotten-"]
            again.erased()
        assert [word for word in WORDS if word in bytes_of(path)] == []
        assert again.texts()[0].note == "kept note"


def test_forgetting_needs_no_other_folder(told, path, monkeypatch, tmp_path):
    """SQLite's copy of the file, which VACUUM makes, is kept in memory."""
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setenv("SQLITE_TMPDIR", os.fspath(closed))
    raw = told._store.connection
    erase(told)
    assert raw.execute("PRAGMA temp_store").fetchone() == (2,)
    assert list(closed.iterdir()) == []


def test_a_marked_item_stays_marked_until_its_last_byte_is_wiped(told, path):
    """It is marked before its first copy is erased, while the database still knows it."""
    assert told.erasing() == []
    told.begin_erasing(ID)
    told.begin_erasing(ID)  # a second call after a crash
    assert told.erasing() == [ID]
    assert stored(path) == ITEMS
    name = told.forget(ID)
    seventh = told.forget("q7")
    told.close()
    with Ledger.open(path) as again:
        assert {*again.erasing()} == {name, seventh}
        head = again.head
        again.erased()
        assert [word for word in WORDS if word in bytes_of(path)] == []
        again.erased()
        assert (again.erasing(), again.head) == ([], head)
        again.verify({"a file": head})


def test_in_a_transaction_it_is_wiped_when_the_copies_are(told, path):
    rows = len(list(told.rows()))

    def forget(last):
        with told.together():
            told.write_state("waiting", {})
            told.forget(ID)
            told.reserve([last])

    with pytest.raises(LedgerError, match="its purchase is answered"):
        forget("q1")
    assert (ID in told.items, told.erasing()) == (True, [])
    assert stored(path) == ITEMS
    forget("q2")
    assert [row.event for row in told.rows()][rows:] == ["released", "forgotten", "reserved"]
    assert len(told.erasing()) == 1
    told.erased()
    assert told.erasing() == []
    assert [word for word in WORDS if word in bytes_of(path)] == []
    told.verify({"a file": told.head})
