"""What a run was given stands in its database: an edit by hand is told, a copy is whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.rows import CLEARED, read_rejected
from stacksl.ledger.store.schema import ITEMS, TEST
from stacksl.ledger.store.settings import Setting

from ..saved_arrays import edit
from .conftest import stored

RECORDS = [
    ItemRecord("q0", "é\n\0 and ' in a prompt", 2, ["yes", "no"], 1, None, None, 0),
    ItemRecord("q1", "of the run's classes", 4, None, None, "none of them", 3, 0),
    ItemRecord("q2", "with options", 3, ["c", "a", "b"], 0, None, None, 1),
    ItemRecord("q3", "with all there is", 4, ["a", "b", "c", "d"], 1, "e", 3, 2),
]
GIVEN = {
    "settings": {"seed": Setting(1)},
    "test": [
        ItemRecord("t0", RECORDS[2].prompt, 3, ["c", "a", "b"], 0),
        ItemRecord("t1", "test 1", 2, ["yes", "no"], 1),
        ItemRecord("t2", "test 2", 2, ["yes", "no"], 0),
        ItemRecord("t3", "test 3, with all there is", 4, ["a", "b", "c", "d"], 1, "e", 3, 2),
    ],
    "rejected": [
        (0, 7, None, "an empty prompt"),
        (1, 2, "q0", "repeated id"),
    ],
}
VALUES: dict[str, str] = {
    "place": "100",
    "surrogate": "'0123456789abcdef'",
    "salt": "'00'",
    "commitment": "hex(randomblob(32))",
    "id": "'another'",
    "prompt": "prompt || ' '",
    "size": "7",
    "candidates": '\'["no","yes"]\'',
    "answer": "-1",
    "unknown": "'else'",
    "model": "2",
    "part": "9",
}
EDITS = [
    *VALUES.items(),
    *((column, "NULL") for column, kind in ITEMS.columns.items() if kind.endswith("?")),
]
LAST = {"items": "q3", "test": "t3"}
COPY = f"INSERT INTO {{}} SELECT {{}}, 'f00d', {', '.join(list(VALUES)[2:])} FROM {{}} WHERE id = "
ALL = r"rows of the items or the test in .*run\.db were added, removed or edited: restore"


@pytest.fixture
def ledger(book) -> Ledger:
    return book(items=RECORDS, **GIVEN)


def expect_told(path: Path, words: str) -> None:
    with Ledger.open(path, readonly=True) as edited, pytest.raises(LedgerCorrupt, match=words):
        edited.verify()


def given_in(path: Path) -> list[object]:
    with opened(path, readonly=True) as store:
        return [stored(path), [row for row in stored(path, TEST) if row], read_rejected(store)]


WHOLE = [RECORDS, GIVEN["test"], GIVEN["rejected"]]


@pytest.mark.parametrize(("column", "value"), EDITS)
@pytest.mark.parametrize("table", LAST)
def test_an_edit_of_any_column_is_told(ledger, path, table, column, value) -> None:
    """Also of an item that was never asked, which no row of the chain names."""
    assert set(VALUES) == set(ITEMS.columns) == set(TEST.columns)
    ledger.close()
    edit(path, f"UPDATE {table} SET {column} = {value} WHERE id = '{LAST[table]}'")
    one = f"row 4 of the table '{table}' in .* was edited or damaged: restore the file from a copy"
    expect_told(path, ALL if column in ("place", "surrogate") else one)


REMOVED = {
    "the first item": ["DELETE FROM items WHERE place = 0"],
    "the last item": ["DELETE FROM items WHERE place = 3"],
    "all items": ["DELETE FROM items"],
    "the first test row": ["DELETE FROM test WHERE place = 0"],
    "the last test row": ["DELETE FROM test WHERE place = 3"],
}
CHANGED = REMOVED | {
    "an item that is forgotten": [
        "INSERT INTO items (place, surrogate, commitment, part, id)"
        " VALUES (4, 'f00d', '00', 0, 'forgotten-f00d')"
    ],
    "a test row once more": [COPY.format("test", 4, "test") + "'t3'"],
    "a test row below the first": [COPY.format("test", -1, "test") + "'t3'"],
    "two that swap places": [
        "UPDATE items SET place = 9 WHERE id = 'q0'",
        "UPDATE items SET place = 0 WHERE id = 'q1'",
        "UPDATE items SET place = 1 WHERE id = 'q0'",
    ],
    "two that swap surrogates": [
        "INSERT INTO rejected SELECT 9, 0, 0, NULL, surrogate FROM items WHERE id = 'q1'",
        "UPDATE items SET surrogate = 'swap' WHERE id = 'q1'",
        "UPDATE items SET surrogate = (SELECT surrogate FROM items WHERE id = 'q0') || '!'"
        " WHERE id = 'q1'",
        "UPDATE items SET surrogate = (SELECT reason FROM rejected WHERE place = 9)"
        " WHERE id = 'q0'",
        "UPDATE items SET surrogate = rtrim(surrogate, '!') WHERE id = 'q1'",
        "DELETE FROM rejected WHERE place = 9",
    ],
    "an item that becomes a test row": [
        "UPDATE test SET place = place + 100",
        "UPDATE test SET place = place - 99",
        COPY.format("test", 0, "items") + "'q3'",
        "DELETE FROM items WHERE id = 'q3'",
    ],
}


@pytest.mark.parametrize("what", CHANGED)
def test_rows_that_come_go_or_move_are_told(ledger, path, what) -> None:
    ledger.close()
    for statement in CHANGED[what]:
        edit(path, statement)
    expect_told(path, ALL)


@pytest.mark.parametrize("place", [4, -1, 2**63 - 1, -(2**63)])
def test_an_item_with_a_hash_of_its_own_that_comes_is_told(ledger, path, tmp_path, place) -> None:
    """Its row is whole, since it was made for another run."""
    ledger.close()
    other = tmp_path / "other.db"
    Ledger.create(other, run="r", budget=1, items=[ItemRecord("new", "a new prompt", 4)]).close()
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS other", (str(other),))
        columns = ", ".join(list(VALUES)[1:])
        query = f"INSERT INTO items SELECT ?, {columns} FROM other.items"
        assert connection.execute(query, (place,)).rowcount == 1
    connection.close()
    expect_told(path, ALL)


@pytest.mark.parametrize("what", REMOVED)
def test_no_digest_is_made_of_an_edit(ledger, path, what) -> None:
    ledger.close()
    edit(path, *REMOVED[what])
    with Ledger.open(path) as edited, pytest.raises(LedgerCorrupt, match=ALL):
        edited.add_items([ItemRecord("new", "a new prompt", 4)])
    expect_told(path, ALL)
    with Ledger.open(path, readonly=True) as edited:
        assert (edited.head.count, "new" in edited.items) == (0, False)


def test_the_digest_of_what_was_given_is_one_of_the_settings(ledger, path) -> None:
    ledger.close()
    edit(path, "UPDATE settings SET value = '\"00\"' WHERE name = 'rows'")
    expect_told(path, "the settings or classes in .* were edited")


def test_items_are_added_with_settings_in_one_transaction(ledger, path) -> None:
    new = [ItemRecord(f"n{i}", "new", 4, part=3) for i in range(3)]
    with ledger.together():
        ledger.change_settings({"more": Setting("b.csv")})
        assert ledger.add_items(new[:2]) == 2
        assert ledger.add_items(new[2:]) == 1
        ledger.reserve(["n2"])
    assert [row.event for row in ledger.rows()] == ["settings"] * 3 + ["reserved"]
    assert given_in(path)[0] == RECORDS + new
    ledger.verify({"a file": ledger.head})
    ledger.close()
    edit(path, "DELETE FROM items WHERE id = 'n1'")
    expect_told(path, ALL)


def test_a_row_emptied_as_forgetting_does_keeps_the_chain_valid(ledger, path, decision) -> None:
    ledger.post([decision(1, item="q2")])
    ledger.take([Answer("q2", 0, 1, 1, "me")])
    head = ledger.head
    ledger.close()
    for table, id in (*LAST.items(), ("items", "q2")):
        edit(path, f"UPDATE {table} SET {CLEARED} WHERE id = '{id}'")
    with Ledger.open(path) as again:
        again.verify({"a file": head})
        assert again.add_items([ItemRecord("n1", "new", 4)]) == 1
        again.verify({"a file": head})
    found, tested, *others = given_in(path)
    assert found == [*RECORDS[:2], None, None, ItemRecord("n1", "new", 4)]
    assert tested == GIVEN["test"][:3]
    assert others == WHOLE[2:]


@pytest.mark.parametrize("column", ["commitment", "surrogate", "size", "part", "place", "id"])
@pytest.mark.parametrize("table", LAST)
def test_what_is_left_of_a_forgotten_row_is_told_when_edited(ledger, path, table, column) -> None:
    ledger.forget("q2")
    ledger.verify()
    ledger.close()
    edit(path, f"UPDATE {table} SET {column} = {VALUES[column]} WHERE salt IS NULL")
    with Ledger.open(path, readonly=True) as edited, pytest.raises(LedgerCorrupt, match="restore"):
        edited.verify()


def test_a_test_row_of_the_same_prompt_is_forgotten_with_its_item(ledger, path) -> None:
    ledger.forget("q2")
    assert given_in(path)[:2] == [[*RECORDS[:2], None, RECORDS[3]], GIVEN["test"][1:]]
    ledger.forget("q0")
    assert given_in(path)[2] == [GIVEN["rejected"][0], (1, 2, None, "repeated id")]
    ledger.verify({"a file": ledger.head})


def test_a_copy_made_while_it_is_open_for_writing_is_whole(
    ledger, path, tmp_path, decision
) -> None:
    copy = tmp_path / "copy.db"
    ledger.post([decision(1, item="q2")])
    ledger.add_items([ItemRecord("n1", "new", 4)])
    ledger.forget("q3")
    head = ledger.head
    with ledger.together():
        ledger.reserve(["n1"])
        ledger.add_items([ItemRecord("n2", "newer", 4)])
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("VACUUM INTO ?", (str(copy),))
        reader.close()
    assert ledger.head.count > head.count
    with Ledger.open(copy, readonly=True) as same:
        assert (same.head, same.terms.genesis) == (head, ledger.terms.genesis)
        assert "n2" not in same.items
        same.verify({"a file": head})
    assert given_in(copy) == [[*RECORDS[:3], None, ItemRecord("n1", "new", 4)], *WHOLE[1:]]
    with Ledger.open(copy) as own:
        assert own.erasing() == ledger.erasing()
        assert own.add_items([ItemRecord("n2", "newer", 4)]) == 1
        own.verify({"a file": head})
