"""The private tables beside the chain: names of people, free texts, rows handed out.

The chain holds a random code for a name and a salted hash of a text, so these tables can be erased
and the chain still verifies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.purchases import Handed
from stacksl.ledger.store.items import Items
from stacksl.ledger.store.schema import HANDED, NAMES, TEXTS

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store


_AT_ONCE: Final = 500  # keys in one statement


class PrivateTables:
    """The private tables of a ledger; new rows are written in the open transaction."""

    def __init__(self, store: Store, items: Items) -> None:
        self._store = store
        self._items = items
        self.read()

    def read(self) -> None:
        """Read the names from disk, also after a transaction that was rolled back."""
        self._names: dict[str, str] = dict(self._store.select(NAMES))
        self._codes = {name: code for code, name in self._names.items()}

    def code(self, name: str) -> str:
        """A labeler as the chain records it: a person's code, any other name unchanged."""
        return self._codes.get(name, name)

    def name(self, code: str | None) -> str | None:
        """The name for a code of the chain."""
        return None if code is None else self._names.get(code, code)

    def names(self, codes: Iterable[str | None]) -> dict[str | None, str | None]:
        """The name for each code; see `name`."""
        return {code: self.name(code) for code in codes}

    def enrol(self, name: str, kind: str) -> str:
        """The code of a name, `kind` and eight random digits; a new one where it has none."""
        if name not in self._codes:
            code = f"{kind}:{os.urandom(4).hex()}"
            self._codes[name], self._names[code] = code, name
            self._store.insert(NAMES, [{"code": code, "name": name}])
        return self._codes[name]

    def note_texts(self, item: str, words: str, text: str | None, note: str | None) -> None:
        """Add the free texts of an answer, by their hash in the chain."""
        if words not in self.texts(item):
            row = {"item": item, "words": words, "text": text, "note": note}
            self._store.insert(TEXTS, [row])

    def note_handed(self, row: Handed) -> None:
        """Add one row of a sheet."""
        last = self._store.select(HANDED, ("place",), "ORDER BY place DESC LIMIT 1")
        self._store.insert(
            HANDED,
            [
                {
                    "place": next((place for (place,) in last), 0) + 1,
                    "key": row.key,
                    "item": self._items.surrogate(row.item),
                    "slot": row.slot,
                    "token": row.token,
                    "annotator": self.enrol(row.annotator, "person"),
                    "sheet": row.sheet,
                    "shown": canonical(list(row.order)),
                }
            ],
        )

    def erase(self, item: str) -> None:
        """Delete the rows of an item, in the open transaction."""
        for table in (TEXTS, HANDED):
            self._store.connection.execute(f"DELETE FROM {table.name} WHERE item = ?", (item,))

    def texts(self, item: str | None = None) -> dict[str, tuple[str | None, str | None]]:
        """Text and note by their salted hash, of one item (by its surrogate) or of all."""
        which = () if item is None else ("WHERE item = ?", item)
        rows = self._store.select(TEXTS, ("words", "text", "note"), *which)
        return {words: (text, note) for words, text, note in rows}

    def handed(self, keys: Iterable[str] | None = None) -> list[Handed]:
        """The rows of all sheets, or those with the `keys`, in the order of handing out."""
        rows: Iterable[Any] = ()
        if keys is None:
            rows = self._store.select(HANDED, (), "ORDER BY place")
        else:
            wanted = sorted(set(keys))
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                places = ", ".join("?" for _ in some)
                found_now = self._store.select(HANDED, (), f"WHERE key IN ({places})", *some)
                rows = sorted([*rows, *found_now])  # `place` is the first column
        found = []
        for _, key, surrogate, slot, token, person, sheet, shown in rows:
            item, who = self._items.id(surrogate), self.name(person)
            if item is not None and who is not None:
                order = _order(key, shown)
                found.append(Handed(key, item, slot, token, who, sheet, order))
        return found

    def expect_new(self, keys: Sequence[str]) -> None:
        """Check that keys were not handed out before.

        Raises:
            LedgerError: one was, or appears twice.
        """
        taken = {row.key for row in self.handed(keys)}
        for key in keys:
            if key in taken:
                raise LedgerError(f"the key '{key}' was handed out before: a key is given once")
            taken.add(key)

    def check(self, item: str, words: str, seq: int) -> None:
        """Compare the free texts of an answer with their hash in row `seq` of the chain.

        Raises:
            LedgerCorrupt: a text is missing or was edited; those of an erased item are gone.
        """
        if self._items.commitment(item) is None:
            return
        text, note = self.texts(item).get(words, (None, None))
        if self._items.words(item, text, note) != words:
            raise LedgerCorrupt(
                f"row {seq} of the ledger holds the hash {words[:12]} of an answer's texts, but "
                "the table of texts holds others: they were edited, restore the file from a copy"
            )


def _order(key: str, shown: str) -> tuple[int, ...]:
    """The order of candidates in a row of the table `handed`."""
    try:
        order = json.loads(shown)
    except ValueError:
        order = None
    if not isinstance(order, list) or not all(type(index) is int for index in order):
        raise LedgerCorrupt(
            f"the row '{key}' that was handed out should hold the order of its candidates, but "
            "does not: the ledger is damaged, restore the file from a copy"
        )
    return tuple(order)
