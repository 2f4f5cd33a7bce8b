"""The table of a run's items: the surrogates in the chain, and the ids they stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import buried, canonical, tombstone
from stacksl.ledger.purchases import ItemRecord
from stacksl.ledger.store.schema import ITEMS

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

_NAMED: Final = 3
_FEW: Final = 1024  # items that are looked up one by one


class _Item(NamedTuple):
    """A row of the table `items`; of a forgotten item only the size remains."""

    id: str | None
    size: int | None
    salt: str | None
    content_hash: str | None

    @property
    def commitment(self) -> str:
        """The salted hash that binds the row to the chain."""
        terms = [self.salt, self.id, self.size, self.content_hash]
        return sha256(canonical(terms).encode()).hexdigest()

    def name(self, surrogate: str) -> str:
        """Its id; that of its tombstone where it was forgotten."""
        return tombstone(surrogate) if self.id is None or self.salt is None else self.id

    def may_hold(self, content: str) -> bool:
        """Whether the item has this content, or may have had it before it was forgotten."""
        return self.salt is None or _content_hash(self.salt, content) == self.content_hash


class Items:
    """The surrogate of each item of a run, with a salted hash of the item's content.

    A chain row holds the surrogate, and the first of an item (its certificate, or the lease of an
    audit or of an owned label) the item's `commitment`: SHA-256 of its salt, id, size and content
    hash. Without the salt neither reveals anything about the item.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read()

    def read(self) -> None:
        """Clear the cache, so that items are read from disk again.

        Items are looked up one by one, so that a few labels of a large pool do not cost a reading
        of the whole pool; from `_FEW` lookups on all are read at once.
        """
        self._items: dict[str, _Item] = {}
        self._surrogates: dict[str, str] = {}
        self._whole = False

    def _item(self, surrogate: str) -> _Item | None:
        """The row of a surrogate; None where there is none."""
        if surrogate not in self._items:
            self._look_up("surrogate", surrogate)
        return self._items.get(surrogate)

    def _known(self, id: str) -> str | None:
        """The surrogate of an item or a tombstone; None where the id is unknown."""
        if id not in self._surrogates:
            self._look_up("id", id)
        if id not in self._surrogates and (surrogate := buried(id)) is not None:
            self._item(surrogate)
        return self._surrogates.get(id)

    def _look_up(self, column: str = "", value: str = "") -> None:
        """Read the row with a value, or all rows where no column is named or many were read."""
        if self._whole:
            return
        self._whole = not column or len(self._items) >= _FEW
        which = () if self._whole else (f"WHERE {column} = ?", value)
        for surrogate, *row in self._store.select(ITEMS, (), *which):
            item = self._items[surrogate] = _Item(*row)
            self._surrogates[item.name(surrogate)] = surrogate

    @staticmethod
    def write(store: Store, records: Iterable[ItemRecord]) -> None:
        """Insert items, in the open transaction.

        Raises:
            LedgerError: an id appears twice.
        """
        rows = list(_entered(records))
        seen: set[object] = set()
        for row in rows:
            if row["id"] in seen:
                raise LedgerError(f"item ids should be unique, got '{row['id']}' twice")
            seen.add(row["id"])
        store.insert(ITEMS, rows)

    def fresh(self, records: Iterable[ItemRecord]) -> list[ItemRecord]:
        """The records that are not in the table yet.

        Raises:
            LedgerError: an id is taken by another item.
        """
        self._look_up()
        new = []
        for record in records:
            surrogate = self._surrogates.get(record.id)
            if surrogate is None:
                new.append(record)
            elif not self._items[surrogate].may_hold(record.content):
                raise LedgerError(
                    f"the id '{record.id}' belongs to another item of this run: give each new "
                    "item an id of its own"
                )
        return new

    def erase(self, surrogate: str) -> None:
        """Clear an item's row except for K, in the open transaction; `read` afterwards."""
        self._store.connection.execute(
            "UPDATE items SET id = NULL, salt = NULL, content_hash = NULL WHERE surrogate = ?",
            (surrogate,),
        )

    def words(self, surrogate: str, text: str | None, note: str | None) -> str | None:
        """The hash of free texts with the item's salt, as the chain holds it; None for no text.

        Raises:
            LedgerError: the item was forgotten.
        """
        if text is None and note is None:
            return None
        item = self._item(surrogate)
        salt = None if item is None else item.salt
        if salt is None:
            raise LedgerError(
                "a free text is not kept for a forgotten item, got one in an answer: leave that "
                "answer out"
            )
        return _content_hash(salt, canonical([text, note]))

    def __len__(self) -> int:
        with self._store.sentences():
            query = self._store.connection.execute("SELECT count(*) FROM items")
            return int(query.fetchone()[0])

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and self._known(item) is not None

    def surrogate(self, item: str) -> str:
        """The surrogate of an item.

        Raises:
            LedgerError: the ledger does not know the item.
        """
        found = self._known(item)
        if found is None:
            raise LedgerError(
                f"the ledger has {len(self)} items, '{item}' is not among them: "
                "name an item of the run's data"
            )
        return found

    def id(self, surrogate: str | None) -> str | None:
        """The id of a surrogate; that of its tombstone where the item was forgotten."""
        item = None if surrogate is None else self._item(surrogate)
        return None if item is None else item.name(str(surrogate))

    def size(self, surrogate: str) -> int | None:
        """K of an item, if known."""
        item = self._item(surrogate)
        return None if item is None else item.size

    @property
    def largest(self) -> int:
        """The largest K of all items; 0 where none is known."""
        sizes = self._store.select(ITEMS, ("size",), "ORDER BY size DESC LIMIT 1")
        return next((size or 0 for (size,) in sizes), 0)

    def commitment(self, surrogate: str) -> str | None:
        """The salted hash of an item in the chain; None where it was forgotten."""
        item = self._item(surrogate)
        return None if item is None or item.salt is None else item.commitment

    def compare(self, records: Iterable[ItemRecord]) -> None:
        """Compare a data file's items with those the run began with.

        Forgotten items are ignored, whether or not the file still has them.

        Raises:
            LedgerError: items differ, are gone or are new; the first few are named.
        """
        self._look_up()
        missing = dict.fromkeys(self._surrogates)
        differ, new = [], []
        for record in records:
            surrogate = self._surrogates.get(record.id)
            missing.pop(record.id, None)
            if surrogate is None:
                new.append(record.id)
            elif not self._items[surrogate].may_hold(record.content):
                differ.append(record.id)
        gone = [id for id in missing if id == self._items[self._surrogates[id]].id]
        faults = [
            _some(differ, "the text, candidates or answer of {} differ"),
            _some(gone, "{} are gone"),
            _some(new, "{} are new"),
        ]
        if any(faults):
            raise LedgerError(
                "the data should hold the same items this run began with, but "
                f"{'; '.join(f for f in faults if f)}: give it the file it began with, or start a "
                "new run"
            )

    def expect_row(self, surrogate: str, seq: int) -> None:
        """Check that the table has a row for an item that row `seq` of the chain names.

        Raises:
            LedgerCorrupt: it has neither the item nor its tombstone.
        """
        if self._item(surrogate) is None:
            raise LedgerCorrupt(
                f"the item of row {seq} of the ledger should be in the table of items, but is "
                "not: its row was removed or renamed, restore the file from a copy"
            )

    def check(self, surrogate: str, commitment: object, seq: int) -> None:
        """Compare an item with its hash in row `seq` of the chain.

        Raises:
            LedgerCorrupt: the item's id, size, salt or content hash was edited.
        """
        own = self.commitment(surrogate)
        if own is not None and own != commitment:
            raise LedgerCorrupt(
                f"row {seq} of the ledger holds the hash {str(commitment)[:12]} of item "
                f"'{self.id(surrogate)}', the table of items gives {own[:12]}: the item was "
                "edited, restore the file from a copy"
            )


def _some(ids: list[str], what: str) -> str:
    if not ids:
        return ""
    more = ", ..." if len(ids) > _NAMED else ""
    return f"{what.format(len(ids))} ({', '.join(ids[:_NAMED])}{more})"


def _entered(records: Iterable[ItemRecord]) -> Iterator[dict[str, object]]:
    for record in records:
        noise = os.urandom(24).hex()
        salt, surrogate = noise[:32], noise[32:]
        yield {
            "surrogate": surrogate,
            "id": record.id,
            "size": record.size,
            "salt": salt,
            "content_hash": _content_hash(salt, record.content),
        }


def _content_hash(salt: str, content: str) -> str:
    try:
        noise = bytes.fromhex(salt)
    except (TypeError, ValueError):
        raise LedgerCorrupt(
            "the salt of an item should be hexadecimal digits, but is not: the ledger is damaged, "
            "restore the file from a copy"
        ) from None
    return sha256(noise + content.encode("utf-8", "surrogatepass")).hexdigest()
