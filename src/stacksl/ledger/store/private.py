"""The private tables beside the chain: names of people, free texts, rows handed out.

The chain holds a random code for a name and a salted hash of a text, so these tables can be erased
and the chain still verifies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, func, insert, select

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.purchases import Handed
from stacksl.ledger.store.items import Items
from stacksl.ledger.store.schema import handed, names, texts, typed

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row


_AT_ONCE: Final = 500  # keys in one statement


@dataclass(slots=True)
class _Waiting:
    """Rows to be written in the transaction of the entries they belong to."""

    names: list[dict[str, object]] = field(default_factory=list)
    texts: list[dict[str, object]] = field(default_factory=list)
    handed: list[dict[str, object]] = field(default_factory=list)


class PrivateTables:
    """The private tables of one run.

    New rows are kept in memory until `write`, which the journal calls in the transaction that
    writes the chain's rows; `tentative` drops them where that fails.
    """

    def __init__(self, connection: Connection, run: str, items: Items) -> None:
        self._connection = connection
        self._run = run
        self._items = items
        self._waiting = _Waiting()
        self.read()

    def read(self) -> None:
        """Read the names from disk."""
        rows = self._connection.execute(select(names).where(names.c.run == self._run))
        self._names: dict[str, str] = {row.code: row.name for row in typed(names.c, rows)}
        self._codes = {name: code for code, name in self._names.items()}

    @property
    def waits(self) -> bool:
        """Whether there are rows not yet written."""
        waiting = self._waiting
        return bool(waiting.names or waiting.texts or waiting.handed)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Drop the rows added inside if the block raises."""
        before, codes, named = self._waiting, dict(self._codes), dict(self._names)
        self._waiting = _Waiting(list(before.names), list(before.texts), list(before.handed))
        try:
            yield
        except BaseException:
            self._waiting, self._codes, self._names = before, codes, named
            raise

    def code(self, name: str) -> str:
        """A labeler as the chain records it: a person's code, any other name unchanged."""
        return self._codes.get(name, name)

    def name(self, code: str | None) -> str | None:
        """The name for a code of the chain."""
        return None if code is None else self._names.get(code, code)

    def enrol(self, name: str, kind: str) -> str:
        """The code of a name, `kind` and eight random digits; a new one where it has none."""
        if name not in self._codes:
            code = f"{kind}:{os.urandom(4).hex()}"
            self._codes[name], self._names[code] = code, name
            self._waiting.names.append({"run": self._run, "code": code, "name": name})
        return self._codes[name]

    def note_texts(self, item: str, words: str, text: str | None, note: str | None) -> None:
        """Add the free texts of an answer, by their hash in the chain."""
        row: dict[str, object] = {"run": self._run, "item": item, "words": words}
        row |= {"text": text, "note": note}
        if row not in self._waiting.texts and words not in self.texts(item):
            self._waiting.texts.append(row)

    def note_handed(self, row: Handed) -> None:
        """Add one row of a sheet."""
        self._waiting.handed.append(
            {
                "run": self._run,
                "key": row.key,
                "item": self._items.surrogate(row.item),
                "slot": row.slot,
                "token": row.token,
                "annotator": self.enrol(row.annotator, "person"),
                "sheet": row.sheet,
                "shown": canonical(list(row.order)),
            }
        )

    def write(self) -> None:
        """Write the new rows in the open transaction; call `written` once it is committed."""
        waiting = self._waiting
        for table, rows in ((names, waiting.names), (texts, waiting.texts)):
            if rows:
                self._connection.execute(insert(table), rows)
        if waiting.handed:
            last = select(func.max(handed.c.place)).where(handed.c.run == self._run)
            first = (self._connection.execute(last).scalar() or 0) + 1
            placed = [{**row, "place": first + n} for n, row in enumerate(waiting.handed)]
            self._connection.execute(insert(handed), placed)

    def written(self) -> None:
        """Clear the rows that `write` wrote."""
        self._waiting = _Waiting()

    def erase(self, item: str) -> None:
        """Delete the rows of an item, in the open transaction."""
        for table in (texts, handed):
            mine = (table.c.run == self._run, table.c.item == item)
            self._connection.execute(delete(table).where(*mine))

    def texts(self, item: str | None = None) -> dict[str, tuple[str | None, str | None]]:
        """Text and note by their salted hash, of one item (by its surrogate) or of all."""
        query = select(texts).where(texts.c.run == self._run)
        if item is not None:
            query = query.where(texts.c.item == item)
        rows = typed(texts.c, self._connection.execute(query))
        return {row.words: (row.text, row.note) for row in rows}

    def handed(self, keys: Iterable[str] | None = None) -> list[Handed]:
        """The rows of all sheets, or those with the `keys`, in the order of handing out."""
        query = select(handed).where(handed.c.run == self._run).order_by(handed.c.place)
        rows: Iterable[Row[Any]] = self._connection.execute(query) if keys is None else ()
        if keys is not None:
            wanted = sorted(set(keys))
            for start in range(0, len(wanted), _AT_ONCE):
                some = query.where(handed.c.key.in_(wanted[start : start + _AT_ONCE]))
                rows = [*rows, *self._connection.execute(some)]
            rows = sorted(rows, key=lambda row: row.place)
        found = []
        for row in typed(handed.c, rows):
            item, who = self._items.id(row.item), self.name(row.annotator)
            if item is not None and who is not None:
                order = _order(row.key, row.shown)
                found.append(Handed(row.key, item, row.slot, row.token, who, row.sheet, order))
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
            LedgerCorrupt: a text of an item that was not forgotten is missing or was edited.
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
