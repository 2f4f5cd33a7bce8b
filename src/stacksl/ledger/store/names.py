"""What stands behind the names in the chain: items, people, free texts, and rows handed out.

The chain holds a random surrogate for an item, a random code for a person and a salted hash of a
text, so what they stand for can be erased and the chain still verifies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.purchases import Handed
from stacksl.ledger.store.database import Store
from stacksl.ledger.store.rows import salted
from stacksl.ledger.store.schema import HANDED, ITEMS, NAMES, TEXTS
from stacksl.ledger.store.stored import Digests, insert_stored

_IDENTITY: Final = ("surrogate", "id", "size", "salt")


class Identity(NamedTuple):
    """What identifies an item; one that was erased has no salt, one without a row has nothing."""

    id: str | None
    size: int | None
    salt: str | None


NOBODY: Final = Identity(None, None, None)


class Lookup(dict[Any, Any]):
    """A dict that asks `find` for a key which it does not hold, and keeps the answer."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self._find(key)
        return value


class Items:
    """The items that a ledger has to do with; all others of a large pool stay on disk.

    Attributes:
        identities: by surrogate; `NOBODY` where the table has no such row.
        surrogates: by id. An unknown id is a LedgerError.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read()

    def read(self) -> None:
        """Forget what was read, so that it is read from disk again."""
        self.identities: dict[str | None, Identity] = Lookup(self._identity)
        self.surrogates: dict[str, str] = Lookup(self._surrogate)
        self._named = False

    def know(self, items: Iterable[str]) -> list[str]:
        """Look up ids in one statement, and give those that are unknown."""
        unread = [item for item in items if not self._knows(item)]
        if unread:
            ids = {item for item in unread if isinstance(item, str)}
            self._take(self._store.chosen(ITEMS, _IDENTITY, "id", ids))
        return [item for item in unread if not self._knows(item)]

    def _knows(self, item: object) -> bool:
        return isinstance(item, str) and item in self.surrogates

    def named(self) -> dict[str, str]:
        """The surrogate of each item that a row of the chain names, and of some others, by id."""
        if not self._named:
            self._named = True
            clause = "WHERE surrogate IN (SELECT item FROM events)"
            self._take(self._store.select(ITEMS, _IDENTITY, clause))
        return self.surrogates

    def _take(self, rows: Iterable[Sequence[Any]]) -> None:
        for surrogate, *row in rows:
            item = self.identities[surrogate] = Identity(*row)
            self.surrogates[str(item.id)] = surrogate

    def _identity(self, surrogate: str | None) -> Identity:
        self.named()
        if surrogate is not None and surrogate not in self.identities:
            self._take(self._store.select(ITEMS, _IDENTITY, "WHERE surrogate = ?", surrogate))
        return self.identities.get(surrogate, NOBODY)

    def _surrogate(self, item: str) -> str:
        if item not in self:
            raise LedgerError(
                f"the ledger has {len(self)} items, '{item}' is not among them: "
                "name an item of the run's data"
            )
        return self.surrogates[item]

    def __len__(self) -> int:
        return self._store.count(ITEMS)

    def __contains__(self, item: str) -> bool:
        return not self.know([item])

    def text_hash(self, surrogate: str, text: str | None, note: str | None) -> str:
        """The hash of free texts with the item's salt, as the chain holds it.

        Raises:
            LedgerCorrupt: the item has no salt, or a damaged one.
        """
        return salted(self.identities[surrogate].salt, canonical([text, note]))


class PrivateTables:
    """Names of people, free texts and rows handed out; new rows are in the open transaction.

    Attributes:
        names: of people and of sources of owned labels, by their code in the chain.
        codes: the other way round.
    """

    def __init__(self, store: Store, items: Items) -> None:
        self._store = store
        self._items = items
        self.read()

    def read(self) -> None:
        """Read the names from disk, also after a transaction that was rolled back."""
        self.names: dict[str, str] = dict(self._store.select(NAMES))
        self.codes = {name: code for code, name in self.names.items()}

    def enroll(self, name: str, kind: str) -> str:
        """The code of a name, `kind` and eight random digits; a new one where it has none."""
        if name not in self.codes:
            code = f"{kind}:{os.urandom(4).hex()}"
            self.codes[name], self.names[code] = code, name
            self._store.insert(NAMES, [(code, name)])
        return self.codes[name]

    def note_texts(self, item: str, text: str | None, note: str | None) -> str:
        """Add free texts about an item (by its surrogate); their hash for the chain."""
        digest = self._items.text_hash(item, text, note)
        if digest not in self.texts(item):
            self._store.insert(TEXTS, [(item, digest, text, note)])
        return digest

    def note_handed(self, rows: Sequence[Handed]) -> Digests:
        """Add rows of a sheet; their digests for the chain."""
        last_rows = self._store.select(HANDED, ("place",), "ORDER BY place DESC LIMIT 1")
        added = []
        for place, row in enumerate(rows, next((place for (place,) in last_rows), 0) + 1):
            surrogate, code = self._items.surrogates[row.item], self.enroll(row.annotator, "person")
            order_json = json.dumps(row.order, separators=(",", ":"))
            lease = (row.key, surrogate, row.slot, row.token)
            added.append((place, *lease, code, row.sheet, order_json))
        return insert_stored(self._store, HANDED, added)

    def erase(self, item: str) -> Digests:
        """Delete the rows of an item, in the open transaction; what the chain has of them now."""
        handed = self._store.select(HANDED, ("place",), "WHERE item = ?", item)
        for table in (TEXTS, HANDED):
            self._store.connection.execute(f"DELETE FROM {table.name} WHERE item = ?", (item,))
        return {HANDED.name: dict.fromkeys(str(place) for (place,) in handed)}

    def texts(self, item: str | None = None) -> dict[str, tuple[str | None, str | None]]:
        """Text and note by their salted hash, of one item (by its surrogate) or of all."""
        clauses = () if item is None else ("WHERE item = ?", item)
        rows = self._store.select(TEXTS, ("words", "text", "note"), *clauses)
        return {digest: (text, note) for digest, text, note in rows}

    def handed(self, key: str | None = None) -> list[Handed]:
        """The rows handed out to people in that order, or the one of a `key` if it is known.

        There is none of an erased item.
        """
        clauses = ("",) if key is None else ("WHERE key = ?", key)
        rows = self._store.select(HANDED, (), f"{clauses[0]} ORDER BY place", *clauses[1:])
        handed = []
        for _, _, key, surrogate, slot, token, person, sheet, order_json in rows:
            item = str(self._items.identities[surrogate].id)
            annotator, order = self.names.get(person, person), _order(key, order_json)
            handed.append(Handed(key, item, slot, token, annotator, sheet, order))
        return handed

    def check(self, item: str, digest: str, seq: int) -> None:
        """Compare the free texts of an answer with their hash in row `seq` of the chain.

        Raises:
            LedgerCorrupt: a text is missing or was edited; those of an erased item are gone.
        """
        if self._items.identities[item].salt is None:
            return
        texts = self.texts(item).get(digest)
        if texts is None or self._items.text_hash(item, *texts) != digest:
            raise LedgerCorrupt(
                f"row {seq} of the ledger holds the hash {digest[:12]} of an answer's texts, but "
                "the table of texts holds others: they were edited, restore the file from a copy"
            )


def _order(key: str, order_json: str) -> tuple[int, ...]:
    try:
        order = json.loads(order_json)
    except ValueError:
        order = None
    if not isinstance(order, list) or not all(type(index) is int for index in order):
        raise LedgerCorrupt(
            f"the row '{key}' that was handed out should hold the order of its candidates, but "
            "does not: the ledger is damaged, restore the file from a copy"
        )
    return tuple(order)
