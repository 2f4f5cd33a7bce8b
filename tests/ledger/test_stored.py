"""What was handed out, each request to a model, and the arrays have their digests in the chain."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.stored import write_request

from ..saved_arrays import edit, filled_places

TABLES = ("handed", "requests", "arrays")
FLIPS = 150


def call(number: int, item: str, shots: list[str]) -> list[dict[str, Any]]:
    """The two rows of a call to a model."""
    about = {"call": number, "item": item, "slot": 0}
    body = {"messages": [f"a question about {item}", *shots]}
    asked = {"request": body, "order": [0, 1], "way": "letter", "shots": shots, "most": 9}
    return [about | asked, about | {"cost": 7, "answer": "an answer"}]


@pytest.fixture
def ledger(book, decision, path: Path) -> Iterator[Ledger]:
    """Three rows handed out in two sheets, two calls to a model, and two saves of arrays."""
    made = book(budget=9)
    made.post([decision(1), decision(2), decision(3), decision(4)])
    rows = [Handed(f"k{n}", f"q{n}", 0, 1, "ab"[n % 2], 1, (2, 0, 1, 3)) for n in range(3)]
    made.hand_out(rows[:2])
    made.save_arrays(1, {"theta": np.zeros(40)})
    made.hand_out(rows[2:])
    made.take([Answer("q0", 0, 1, 1, "a")])
    with opened(path) as store:
        for row in [*call(1, "q2", ["q0"]), *call(2, "q3", [])]:
            with store.writing():
                write_request(store, row)
                store.commit()
    made.save_arrays(2, {"theta": np.ones(40)})
    return made


def verify(path: Path) -> None:
    with Ledger.open(path, readonly=True) as read:
        read.verify(arrays=True)


def test_a_row_of_the_chain_has_the_salted_digests_of_what_was_written_with_it(
    ledger, path
) -> None:
    ledger.verify(arrays=True)
    stored = [row.payload["stored"] for row in ledger.rows() if row.event == "stored"]
    places = [{table: list(rows) for table, rows in each.items()} for each in stored]
    assert places[0] == {"handed": ["1", "2"]}, "one row for a sheet"
    assert [list(each) for each in places].count(["requests"]) == 4, "one for each transaction"
    assert [each for each in places if "requests" in each] == [{"requests": [n]} for n in "1234"]
    digests = [digest for each in stored for rows in each.values() for digest in rows.values()]
    assert len(set(digests)) == 3 + 4 + 2
    with closing(sqlite3.connect(path)) as database:  # a guess at an erased row confirms nothing
        for table in TABLES:
            salts = [salt for (salt,) in database.execute(f"SELECT salt FROM {table}")]
            assert len({*salts}) == len(salts) > (table != "arrays")
            assert all(len(bytes.fromhex(salt)) == 16 for salt in salts)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE handed SET shown = '[0,2,1,3]' WHERE place = 2", "row 2 of the table 'handed'"),
        ("UPDATE handed SET salt = salt || '0' WHERE place = 3", "row 3 of the table 'handed'"),
        ("UPDATE handed SET place = 4 WHERE place = 3", "row 3 of the table 'handed'"),
        ("DELETE FROM handed WHERE place = 1", "row 1 of the table 'handed' .* removed"),
        (
            "INSERT INTO handed SELECT 9, salt, 'new', item, slot, token, annotator, sheet, shown"
            " FROM handed WHERE place = 1",
            "row 9 of the table 'handed' .* added",
        ),
        (
            "UPDATE requests SET content = replace(content, '\"cost\": 7', '\"cost\": 1')"
            " WHERE place = 2",
            "row 2 of the table 'requests'",
        ),
        ("DELETE FROM requests WHERE place = 4", "row 4 of the table 'requests' .* removed"),
        (
            "INSERT INTO requests SELECT 5, salt, content FROM requests WHERE place = 4",
            "row 5 of the table 'requests' .* added",
        ),
        ("UPDATE arrays SET round = 9 WHERE round = 2", "row 17 of the table 'arrays'"),
        ("UPDATE arrays SET salt = ''", "row 17 of the table 'arrays'"),
    ],
)
def test_an_edit_by_hand_names_the_table_and_the_row(ledger, path, change, told) -> None:
    ledger.close()
    verify(path)
    edit(path, change)
    with pytest.raises(LedgerCorrupt, match=told) as fault:
        verify(path)
    assert "\n" not in str(fault.value)
    assert "restore the file from a copy" in str(fault.value)


def test_two_rows_that_change_places_are_told(ledger, path) -> None:
    ledger.close()
    for now, then in ((1, -1), (2, 1), (-1, 2)):
        edit(path, "UPDATE handed SET place = ? WHERE place = ?", then, now)
    with pytest.raises(LedgerCorrupt, match="row 1 of the table 'handed'"):
        verify(path)


@pytest.mark.parametrize("item", ["q0", "q2", "q3"])
def test_a_forgotten_item_leaves_the_other_rows_covered(ledger, path, item) -> None:
    """`q0` was an example in a call about `q2`: what is left of that call is covered as well."""
    before = {row.payload["stored"]["requests"][n] for row, n in requests(ledger)}
    ledger.forget(item)
    ledger.erased()
    ledger.verify(arrays=True)
    asked = ledger.rows(only=("forgotten",))
    (erased,) = (row.payload["stored"] for row in asked)
    assert set(erased["handed"]) == ({"q0": {"1"}, "q2": {"3"}}.get(item, set()))
    now = {digest for digest in erased["requests"].values() if digest}
    assert not now & before, "with a salt of its own"
    ledger.close()
    for table, column in (("handed", "sheet"), ("requests", "content")):
        with closing(sqlite3.connect(path)) as database:
            query = f"SELECT place, {column} FROM {table} ORDER BY place DESC LIMIT 1"
            place, value = database.execute(query).fetchone()
        change = f"UPDATE {table} SET {column} = ? WHERE place = ?"
        edit(path, change, 9 if column == "sheet" else "{}", place)
        with pytest.raises(LedgerCorrupt, match=f"row {place} of the table '{table}'"):
            verify(path)
        edit(path, change, value, place)
    verify(path)


def requests(ledger: Ledger) -> list[tuple[Any, str]]:
    """The rows of the chain with the digest of a request, each with its place."""
    rows = [row for row in ledger.rows() if "requests" in row.payload.get("stored", {})]
    return [(row, place) for row in rows for place in row.payload["stored"]["requests"]]


def test_a_place_that_was_erased_is_taken_again(ledger) -> None:
    """The last row handed out is erased; the next one gets its number."""
    ledger.forget("q2")
    ledger.hand_out([Handed("k8", "q3", 0, 1, "a", 3, (0, 1, 2, 3))])
    (*_, last) = ledger.rows()
    assert last.payload["stored"]["handed"].keys() == {"3"}
    ledger.verify(arrays=True)


def test_a_request_of_another_thread_lies_between_rows_that_wait(ledger, path, decision) -> None:
    """It is on the chain at once, those that wait follow it, and every sum is as before."""
    ledger.post([decision(5, "skipped")])
    end = ledger.head
    with opened(path) as store, store.writing():
        write_request(store, call(3, "q3", [])[0])
        store.commit()
    ledger.take([Answer("q1", 0, 1, 2, "b")])
    events = [row.event for row in ledger.rows(end.count)]
    assert events == ["stored", "round", "answered", "learned"]
    ledger.verify(arrays=True)
    spent, last = ledger.accounts.spent, ledger.accounts.last_round
    ledger.close()
    with Ledger.open(path, readonly=True) as again:
        assert (again.accounts.spent, again.accounts.last_round) == (spent, last) == (4, 5)


def test_a_flipped_byte_of_these_tables_is_told_or_changes_nothing(ledger, path) -> None:
    ledger.close()

    def read() -> str:
        with opened(path, readonly=True) as store:
            rows = {
                name: store.connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
                for name in TABLES
            }
        return json.dumps(rows, default=bytes.hex)

    whole, before, rng, told = path.read_bytes(), read(), random.Random(5), 0
    for place in rng.sample(filled_places(path, TABLES), FLIPS):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        try:
            verify(path)
        except LedgerError:
            told += 1
        else:
            assert read() == before
    assert told > FLIPS // 2


def test_a_cut_between_arrays_and_the_row_with_their_digest_is_told(ledger, path) -> None:
    last = ledger.head.count
    ledger.close()
    edit(path, "DELETE FROM events WHERE seq = ?", last)
    with (
        Ledger.open(path, readonly=True) as read,
        pytest.raises(LedgerCorrupt, match=f"should have the row {last} .* it was cut"),
    ):
        read.verify()
