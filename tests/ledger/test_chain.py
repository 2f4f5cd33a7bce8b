"""What `verify` finds, and what it cannot."""

from __future__ import annotations

import sqlite3

import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import Entry, link_hash
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord
from stacksl.ledger.store.schema import EVENTS

from ..saved_arrays import edit
from .conftest import chain_of

COLUMNS = [name for name in EVENTS.columns if name not in ("seq", "previous", "hash")]


@pytest.fixture
def heads(book, decision, path):
    """A closed ledger of eleven rows; its head after five rows, and at the end."""
    ledger = book(price=7)
    ledger.post([decision(1), decision(2, "skipped"), decision(3)])
    middle = ledger.head
    ledger.take([Answer("q0", 0, 1, 1, "me", 3), Answer("q2", 0, 1, 0, "me", 7)])
    ledger.correct("q0", 2, "me")
    end = ledger.head
    ledger.close()
    return middle, end


def verify(path, *heads):
    with Ledger.open(path, readonly=True) as ledger:
        ledger.verify({f"file {n}": head for n, head in enumerate(heads)})


def test_a_whole_ledger_passes(heads, path):
    middle, end = heads
    assert (middle.count, end.count) == (5, 11)
    verify(path, middle, end, middle)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time", 1),
        ("round", 9),
        ("slot", 1),
        ("purpose", "audit"),
        ("labeler", "someone"),
        ("price", 2),
        ("payload", '{"index":2}'),
        ("hash", "0" * 64),
        ("previous", "0" * 64),
        ("item", "ffff"),
        ("number", 1),
        ("token", 3),
    ],
)
def test_an_edit_of_any_column_is_found(heads, path, column, value):
    edit(path, f"UPDATE events SET {column} = ? WHERE seq = 6", value)
    with pytest.raises(LedgerError):  # `open` finds some of them before `verify` does
        verify(path)


REST = ", ".join([*(c for c in COLUMNS if c != "round"), "previous", "hash"])
INSERT = "INSERT INTO events (seq, round, {0}) SELECT {1}, 9, {0} FROM events WHERE seq = 1"
MISSING = "row {} of the ledger is missing, got row"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE events SET time = time + 1 WHERE seq = 1", "row 1 .* should have the hash"),
        ("UPDATE events SET time = time + 1 WHERE seq = 10", "row 10 .* should have the hash"),
        ("DELETE FROM events WHERE seq = 3", MISSING.format(3)),
        # below row 1 it would be taken for the decision of a round
        *((INSERT.format(REST, seq), MISSING.format(1)) for seq in (-5, 0)),
        (INSERT.format(REST, 20), MISSING.format(12)),
        *((f"UPDATE terms SET {name} = 1", "ledger") for name in ("budget", "money", "price")),
    ],
)
def test_rows_that_are_edited_removed_or_inserted_are_found(heads, path, change, words):
    edit(path, change)
    with pytest.raises(LedgerCorrupt, match=words):
        verify(path)


def test_a_cut_tail_is_found_by_a_head_that_was_kept_only(heads, path):
    _, end = heads
    edit(path, "DELETE FROM events WHERE seq > 8")
    verify(path)
    with pytest.raises(LedgerCorrupt, match="row 11 .* as file 0 says, but has not: it was cut"):
        verify(path, end)


def test_a_rewritten_chain_is_found_by_a_head_that_was_kept_only(heads, path):
    middle, end = heads
    connection = sqlite3.connect(path)
    previous = None
    for row in connection.execute(
        f"SELECT seq, {', '.join(COLUMNS)}, previous FROM events ORDER BY seq"
    ).fetchall():
        seq, fields = row[0], list(row[1:-1])
        if seq == 7:
            fields[COLUMNS.index("labeler")] = "someone"
        before = previous or row[-1]
        previous = link_hash(seq, Entry(*fields), before)
        connection.execute(
            "UPDATE events SET labeler = ?, previous = ?, hash = ? WHERE seq = ?",
            (fields[COLUMNS.index("labeler")], before, previous, seq),
        )
    connection.commit()
    connection.close()
    verify(path, middle)  # whoever rewrites all heads as well is not found
    with pytest.raises(LedgerCorrupt, match="row 11 .* as file 0 says, .* rewritten"):
        verify(path, end)


def test_the_chain_holds_no_text_and_no_id(path, decision):
    words = ["patient-4711", "unmistakable", "one option", "other option", "not offered"]
    secret = ItemRecord(words[0], f"The {words[1]} prompt", 4, [*words[2:4], "c", "d"], 1, words[4])
    with Ledger.create(path, run="r", budget=9, items=[secret]) as ledger:
        ledger.post([decision(1, item=secret.id)])
        ledger.take([Answer(secret.id, 0, 1, 1, "me")])
        ledger.add_items([ItemRecord("patient-4712", "Another unmistakable prompt", 4)])
        ledger.forget("patient-4712")
    chain, terms, items = (chain_of(path, table) for table in ("events", "terms", "items"))
    assert all(word in items for word in words), "the table beside it does"
    assert [word for word in ("patient", *words) if word in chain + terms] == []


def test_two_ledgers_of_the_same_items_share_no_name_or_hash(tmp_path, decision, records):
    rows = []
    for name in ("a.db", "b.db"):
        with Ledger.create(tmp_path / name, run="r", budget=1, items=records) as ledger:
            ledger.post([decision(1)])
            rows.append(next(iter(ledger.rows())))
    assert rows[0].item == rows[1].item
    assert rows[0].surrogate != rows[1].surrogate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("event = 'gift' WHERE seq = 10", "event 'gift' .*: there is no such event"),
        ("purpose = 'gift' WHERE event = 'reserved'", "there is no such event or purpose"),
    ],
)
def test_an_unknown_event_or_purpose_is_damage(heads, path, change, words):
    edit(path, f"UPDATE events SET {change}")
    with pytest.raises(LedgerCorrupt, match=words):
        Ledger.open(path)
