"""Settings, classes and state beside the chain: an edit by hand is found, a change is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.settings import (
    CLASSES,
    Setting,
    read_classes,
    read_settings,
    read_state,
)

from ..saved_arrays import edit, filled_places
from .conftest import charge
from .fault_cases import fill

GIVEN = {"budget": Setting("40", "flag"), "seed": Setting(0, "default"), "data": Setting("a.csv")}
KINDS = [["a", "b"], ["the first", ""], [["one text", "another"], []]]
EDITS = {
    "a value": "UPDATE settings SET value = '\"41\"' WHERE name = 'budget'",
    "an origin": "UPDATE settings SET origin = 'config' WHERE name = 'budget'",
    "a name": "UPDATE settings SET name = 'bodget' WHERE name = 'budget'",
    "a setting that goes": "DELETE FROM settings WHERE name = 'seed'",
    "all settings": "DELETE FROM settings",
    "a setting that comes": "INSERT INTO settings VALUES ('gate', '\"margin\"', 'flag')",
    "the salt": "UPDATE settings SET value = '\"00\"' WHERE name = 'salt'",
    "an example": "UPDATE settings SET value = replace(value, 'one', 'no') WHERE name LIKE 'c%'",
    "classes that go": "DELETE FROM settings WHERE name = 'class_list'",
}


def tables_of(path: Path) -> tuple[object, object, object]:
    with opened(path, readonly=True) as store:
        return read_settings(store), read_classes(store), read_state(store)


@pytest.fixture
def ledger(book) -> Ledger:
    return book(settings=GIVEN | {CLASSES: Setting(KINDS)}, facts={"warnings": ["mind"]})


def test_what_was_given_is_read_again(ledger, path) -> None:
    state = {"state": "running", "warnings": ["mind"]}
    assert tables_of(path) == (GIVEN, KINDS, state)
    ledger.write_state("waiting", {"sentence": "é\n\0", "open": [1, None]})
    assert tables_of(path)[2] == {"state": "waiting", "sentence": "é\n\0", "open": [1, None]}
    ledger.verify()


def test_a_change_is_a_row_of_the_chain(ledger, path) -> None:
    more = [["a", "b", "c"], ["the first", "", "new"], KINDS[2]]
    changes = {"seed": None, "gate": Setting("margin", "flag"), CLASSES: Setting(more)}
    ledger.change_settings(changes)
    kept = {name: GIVEN[name] for name in ("budget", "data")}
    assert tables_of(path)[:2] == (kept | {"gate": Setting("margin", "flag")}, more)
    (row,) = ledger.rows()
    assert (row.event, row.item, charge(row), set(row.payload)) == ("settings", None, 0, {"digest"})
    ledger.change_settings({"seed": Setting(7, "flag")})
    assert tables_of(path)[1] == more
    ledger.verify({"a file": ledger.head})
    ledger.close()
    with Ledger.open(path) as again:
        again.verify({"a file": ledger.head})


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_by_hand_is_found(ledger, path, what, changed) -> None:
    if changed:
        ledger.change_settings({"more": Setting([["pool", "b.csv"]])})
    ledger.close()
    edit(path, EDITS[what])
    said = r"the settings or classes in .*run\.db were edited or damaged .*: restore the file"
    with pytest.raises(LedgerCorrupt, match=said), Ledger.open(path, readonly=True) as edited:
        edited.verify()
    for read in (read_settings, read_classes):
        with pytest.raises(LedgerCorrupt, match=said), opened(path, readonly=True) as store:
            read(store)
    with pytest.raises(LedgerCorrupt, match=said), Ledger.open(path) as edited:
        edited.change_settings({"seed": Setting(8)})  # no digest is made of the edit
    with Ledger.open(path, readonly=True) as edited:
        assert edited.head.count == int(changed)


def test_the_first_digest_is_in_the_hash_that_row_1_follows(ledger, path) -> None:
    ledger.change_settings({})
    ledger.close()
    with Ledger.open(path, readonly=True) as whole:
        genesis = whole.terms.genesis
    edit(path, "UPDATE terms SET settings = hex(randomblob(32))")
    with Ledger.open(path, readonly=True) as edited:
        assert edited.terms.genesis != genesis
        with pytest.raises(LedgerCorrupt, match="row 1 of the ledger should have the hash"):
            edited.verify()


def test_two_runs_with_the_same_settings_have_digests_of_their_own(tmp_path: Path, records) -> None:
    """Without a salt the chain would tell whether a text that is known is in the settings."""
    digests = set()
    for name in "ab":
        path = tmp_path / f"{name}.db"
        Ledger.create(path, run="r", budget=1, items=records, settings=GIVEN).close()
        with opened(path, readonly=True) as store:
            digests |= set(store.connection.execute("SELECT settings FROM terms"))
    assert len(digests) == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE state SET record = replace(record, 'mind', 'mine')",
        "UPDATE state SET record = ''",
        "UPDATE state SET record = '[]'",
        "UPDATE state SET record = replace(hex(zeroblob(50000)), '0', '[')",
        "DELETE FROM state",
    ],
)
def test_an_edited_state_is_found(ledger, path, change) -> None:
    ledger.close()
    edit(path, change)
    said = r"the state in .*run\.db was edited or damaged .*: restore the file from a copy"
    with pytest.raises(LedgerCorrupt, match=said), opened(path, readonly=True) as store:
        read_state(store)
    with pytest.raises(LedgerCorrupt, match=said), Ledger.open(path, readonly=True) as edited:
        edited.verify()


def test_a_change_that_fails_changes_nothing(ledger, path, decision) -> None:
    before = tables_of(path)
    fill(ledger)
    with pytest.raises(LedgerError, match="disk is full"):
        ledger.change_settings({"big": Setting("x" * 100_000), CLASSES: None})
    fill(ledger, full=False)

    def stop() -> None:
        with ledger.together():
            ledger.change_settings({"seed": Setting(9), CLASSES: None})
            ledger.write_state("finished", {})
            ledger.post([decision(1)])
            raise KeyError

    with pytest.raises(KeyError):
        stop()
    assert (tables_of(path), ledger.accounts.spent, ledger.head.count) == (before, 0, 0)
    ledger.verify()


def test_a_reader_never_sees_half_a_change(ledger, path) -> None:
    """The digest is of the same moment as what it is of, while another process changes it."""
    with opened(path, readonly=True) as store, store.reading():
        assert read_settings(store) == GIVEN
        ledger.change_settings({"seed": Setting(9), CLASSES: None})
        assert (read_settings(store), read_classes(store)) == (GIVEN, KINDS)
    assert tables_of(path)[:2] == (GIVEN | {"seed": Setting(9)}, None)


def test_every_byte_of_these_tables_is_found_or_harmless(ledger, path) -> None:
    """SQLite has no digest of its pages, so what they say is compared with the chain."""
    ledger.close()
    same, data, refused = tables_of(path), path.read_bytes(), 0
    for place in filled_places(path, ("settings", "state")):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        said = sentence(path, same)
        assert "\n" not in said
        refused += said != ""
    assert refused > 300


def sentence(path: Path, same: object) -> str:
    """What is said of a damaged file; empty where it is as good as a whole one."""
    try:
        assert tables_of(path) == same
    except LedgerError as fault:
        return str(fault)
    return ""
