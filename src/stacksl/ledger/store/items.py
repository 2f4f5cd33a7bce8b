"""The table of a run's items: the surrogates in the chain, and the ids they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.store.rows import salted
from stacksl.ledger.store.schema import ITEMS

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store

_FEW: Final = 1024  # items that are looked up one by one
_IDENTITY: Final = ("surrogate", "id", "size", "salt", "commitment")


class _Item(NamedTuple):
    """What identifies a row of the table `items`; an erased one has no salt."""

    id: str
    size: int | None
    salt: str | None
    commitment: str


class Items:
    """The surrogate of each item of a run, with a salted hash of the item.

    A chain row holds the surrogate, and the first of an item (its certificate, or the lease of an
    audit or of an owned label) the item's `commitment`. Without the salt neither reveals anything
    about the item.
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

    def _look_up(self, column: str = "", value: str = "") -> None:
        """Read the row with a value, or all rows where no column is named or many were read."""
        if self._whole:
            return
        self._whole = not column or len(self._items) >= _FEW
        which = () if self._whole else (f"WHERE {column} = ?", value)
        for surrogate, *row in self._store.select(ITEMS, _IDENTITY, *which):
            item = self._items[surrogate] = _Item(*row)
            self._surrogates[item.id] = surrogate

    def words(self, surrogate: str, text: str | None, note: str | None) -> str | None:
        """The hash of free texts with the item's salt, as the chain holds it; None for no text.

        Raises:
            LedgerCorrupt: the item has no salt, or a damaged one.
        """
        if text is None and note is None:
            return None
        item = self._item(surrogate)
        return salted(None if item is None else item.salt, canonical([text, note]))

    def __len__(self) -> int:
        with self._store.sentences():
            query = self._store.connection.execute("SELECT count(*) FROM items")
            return int(query.fetchone()[0])

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str) and item not in self._surrogates:
            self._look_up("id", item)
        return isinstance(item, str) and item in self._surrogates

    def surrogate(self, item: str) -> str:
        """The surrogate of an item.

        Raises:
            LedgerError: the ledger does not know the item.
        """
        if item not in self:
            raise LedgerError(
                f"the ledger has {len(self)} items, '{item}' is not among them: "
                "name an item of the run's data"
            )
        return self._surrogates[item]

    def id(self, surrogate: str | None) -> str | None:
        """The id of a surrogate; None where the table has none."""
        item = None if surrogate is None else self._item(surrogate)
        return None if item is None else item.id

    def ids(self, surrogates: Iterable[str | None]) -> dict[str | None, str | None]:
        """The id of each surrogate; see `id`."""
        return {surrogate: self.id(surrogate) for surrogate in surrogates}

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
        """The salted hash of an item in the chain; None where the item was erased."""
        item = self._item(surrogate)
        return None if item is None or item.salt is None else item.commitment

    def expect_row(self, surrogate: str, seq: int) -> None:
        """Check that the table has a row for an item that row `seq` of the chain names.

        Raises:
            LedgerCorrupt: it has none.
        """
        if self._item(surrogate) is None:
            raise LedgerCorrupt(
                f"the item of row {seq} of the ledger should be in the table of items, but is "
                "not: its row was removed or renamed, restore the file from a copy"
            )

    def check(self, surrogate: str, commitment: object, seq: int) -> None:
        """Compare an item with its hash in row `seq` of the chain.

        Raises:
            LedgerCorrupt: the item was edited.
        """
        item = self._item(surrogate)
        if item is not None and item.commitment != commitment:
            raise LedgerCorrupt(
                f"row {seq} of the ledger holds the hash {str(commitment)[:12]} of item "
                f"'{self.id(surrogate)}', the table of items gives {item.commitment[:12]}: the "
                "item was edited, restore the file from a copy"
            )
