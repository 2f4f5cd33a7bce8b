"""How a run is made and where it is: the tables `settings` and `state`.

A digest of settings and classes is in the terms of a run as it begins, and in a `settings` row of
the chain after each change; they are compared with it whenever they are read. The state, which
decides no number, is stored with its digest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stacksl.errors import LedgerCorrupt
from stacksl.files import formats
from stacksl.ledger.events import canonical
from stacksl.ledger.store.rows import ROWS, salted
from stacksl.ledger.store.schema import SETTINGS, STATE, TERMS

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

SALT: Final = "salt"  # of the digest: settings may hold texts, which the chain must not tell
CLASSES: Final = "class_list"
_OWN: Final = (SALT, ROWS, CLASSES)


class Setting(NamedTuple):
    """A value that a run is made with; the `origin` of a setting is the layer that gave it."""

    value: Any
    origin: str | None = None


def read_settings(store: Store) -> dict[str, Setting]:
    """All that the run is made with, by name.

    Raises:
        LedgerCorrupt: it was edited.
    """
    return {
        name: Setting(json.loads(value), origin)
        for name, value, origin in expect_digest(store)
        if name not in _OWN
    }


def write_settings(store: Store, changes: Mapping[str, Setting | None]) -> None:
    """Set or, with None, remove what the run is made with, in the open transaction."""
    for name, setting in changes.items():
        store.connection.execute("DELETE FROM settings WHERE name = ?", (name,))
        if setting is not None:
            text = json.dumps(setting.value, ensure_ascii=True, default=str)
            store.insert(SETTINGS, [(name, text, setting.origin)])


def read_classes(store: Store) -> Any:
    """The classes that were given, as they were written; None where the data has them.

    Raises:
        LedgerCorrupt: they were edited.
    """
    rows = expect_digest(store)
    return next((json.loads(value) for name, value, _ in rows if name == CLASSES), None)


def new_salt() -> Setting:
    """A salt of the digests."""
    return Setting(os.urandom(16).hex())


def digest_of(store: Store) -> str:
    """The salted SHA-256 of settings and classes as they stand, hexadecimal."""
    return _digest(store.select(SETTINGS, (), "ORDER BY name"))


def _digest(rows: list[Any]) -> str:
    return sha256(canonical(rows).encode()).hexdigest()


def expect_digest(store: Store) -> list[Any]:
    """Compare settings and classes with their newest digest in the chain; their rows.

    Raises:
        LedgerCorrupt: they were edited.
    """
    with store.reading():  # a change by another process is seen whole
        changes = store.rows_of("settings")
        terms = next(iter(store.select(TERMS, ("settings",))), None)
        expected = changes[-1].payload.get("digest") if changes else terms and terms[0]
        rows = store.select(SETTINGS, (), "ORDER BY name")
    if _digest(rows) != expected:
        raise LedgerCorrupt(
            f"the settings or classes in {store.name} were edited or damaged (their digest in the"
            " chain is another): restore the file from a copy; for other settings start a new run"
        )
    return rows


def other_derived(store: Store, digests: Mapping[str, str]) -> dict[str, str]:
    """The salted `digests` of files, by name, that are not in the newest `derived` row of each.

    They are salted with the settings: a file may quote texts, which the chain must not tell.
    """
    ((salt,),) = store.select(SETTINGS, ("value",), "WHERE name = ?", SALT)
    rows = store.rows_of("derived")
    recorded = {row.payload.get("name"): row.payload.get("digest") for row in rows}
    salted_digests = {name: salted(json.loads(salt), digest) for name, digest in digests.items()}
    return {name: digest for name, digest in salted_digests.items() if recorded.get(name) != digest}


def read_state(store: Store) -> dict[str, Any]:
    """The state of the run under `state`, together with the facts.

    Raises:
        LedgerCorrupt: it was edited.
    """
    texts = [text for (text,) in store.select(STATE)]
    try:
        (record,) = map(formats.from_json, texts)
    except ValueError as fault:
        raise LedgerCorrupt(
            f"the state in {store.name} was edited or damaged ({fault}): restore the file from a"
            " copy"
        ) from fault
    return record


def write_state(store: Store, state: str, facts: Mapping[str, Any]) -> None:
    """Replace the state of the run, in the open transaction."""
    store.connection.execute("DELETE FROM state")
    store.insert(STATE, [(formats.to_json({"state": state, **facts}),)])
