"""The journal of a ledger: its terms, its rows on disk, its pending entries, and the commits."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numpy.typing import NDArray

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.files.arrays import to_bytes
from stacksl.ledger.accounts import Accounts, Pending
from stacksl.ledger.events import (
    Entry,
    Row,
    canonical,
    erased_name,
    payloads_of,
    read_certificate,
)
from stacksl.ledger.purchases import Head, ItemRecord
from stacksl.ledger.recorded import Recorded
from stacksl.ledger.store.arrays import Saved, array_heads, keep_last_arrays, write_arrays
from stacksl.ledger.store.chain import Link, chain, genesis, walk
from stacksl.ledger.store.database import Store, place_file, remove_file
from stacksl.ledger.store.items import Items
from stacksl.ledger.store.private import PrivateTables
from stacksl.ledger.store.requests import erase_requests
from stacksl.ledger.store.rows import (
    Given,
    RejectedRow,
    erase_item,
    expect_unique,
    write_given,
    write_items,
    write_rejected,
)
from stacksl.ledger.store.schema import ERASING, TERMS, make_indexes, make_tables
from stacksl.ledger.store.settings import (
    ClassRow,
    Setting,
    digest_of,
    expect_digest,
    expect_seal,
    expect_sealed,
    make_salt,
    read_state,
    seal_rows,
    write_classes,
    write_settings,
    write_state,
)
from stacksl.types import Decision

T = TypeVar("T")

_MOST_PENDING: Final = 1024  # entries that may be kept in memory


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run may spend: labels, and micro-units of money in all and a label.

    `created` is in microseconds since the epoch, `settings` the digest of settings and classes as
    the run begins.
    """

    run: str
    budget: int
    money: int | None
    price: int
    created: int
    settings: str = ""

    @property
    def genesis(self) -> str:
        """The hash that row 1 of the chain follows."""
        return genesis(astuple(self))


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a run has before its first row, besides its terms and items.

    Attributes:
        settings: what it is made with.
        classes: the fixed classes.
        facts: what there is to say of its state, which is `running`.
        given: what it was given beside the items.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    classes: Sequence[ClassRow] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    given: Given = field(default_factory=Given)


class Journal:
    """One run's chain in a store, with the entries that are counted but not yet written.

    Attributes:
        terms: what the run may spend.
        items: the run's items.
        private: the private tables beside the chain.
        pending: the sums over all rows, and the entries not yet written.
        head: the end of the chain on disk, as this process last saw it.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._open = False  # whether a transaction is in progress
        self._counted = False  # whether the sums are those of the rows
        self.terms = _terms(store)
        self.items = Items(store)
        self.private = PrivateTables(store, self.items)
        self.head = Head(0, self.terms.genesis)
        self._pending = self._empty()
        self._load()

    @property
    def pending(self) -> Pending:
        """The sums and entries, counted anew after a block that raised.

        Raises:
            LedgerError: the rows cannot be read.
        """
        if not self._counted:
            self.items.read()
            self.private.read()
            self._load()
        return self._pending

    @staticmethod
    def create(path: Path, terms: Terms, items: Iterable[ItemRecord], beginning: Beginning) -> None:
        """Write the database of a new run; the file appears whole or not at all.

        Raises:
            LedgerError: the terms are invalid, or the path exists or cannot be written.
        """
        if min(terms.budget, terms.price, terms.money or 0) < 0:
            raise LedgerError(
                "budget, money and price should not be negative, got "
                f"{terms.budget}, {terms.money}, {terms.price}"
            )
        if path.exists():
            raise LedgerError(f"{path} exists: open it, or name a path that is free")
        draft = path.with_name(path.name + ".new")
        remove_file(draft)  # left by a process that was killed here
        try:
            _write_new(draft, terms, items, beginning)
            place_file(draft, path)
        except BaseException:
            remove_file(draft)
            raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for all that is recorded inside: all of it is committed, or none.

        Inside another such block it is part of that block's transaction.

        Raises:
            LedgerError: nothing was written, and nothing is counted that was not before.
        """
        if self._open or self.recorded is not None:
            yield
            return
        try:
            with self._tentative(), self._store.writing():
                self._open = True
                self._catch_up()
                yield
                links = chain(self.head, self.pending.entries)
                self._store.append(links)
                self._store.commit()
        finally:
            self._open = False
        if links:
            self.head = Head(links[-1].seq, links[-1].hash)
        self.pending.entries.clear()

    def durably(self, build: Callable[[Pending], T]) -> T:
        """Run `build` on the journal as it is on disk now, and commit what it records.

        Raises:
            LedgerError: nothing was written, and nothing is counted that was not before.
        """
        with self.together():
            return build(self.pending)

    def later(self, build: Callable[[Pending], T]) -> T:
        """Run `build` in memory; what it records is written with the next commit."""
        if self.recorded is not None:
            return build(self.pending)
        if self._store.readonly:
            raise LedgerError(f"the ledger {self._store.name} was opened for reading only")
        if len(self.pending.entries) >= _MOST_PENDING:
            self.flush()
        with self._tentative():
            return build(self.pending)

    @contextmanager
    def _tentative(self) -> Iterator[None]:
        """Drop what is recorded inside if the block raises, and count what is left anew."""
        before = len(self.pending.entries)
        try:
            yield
        except BaseException:
            del self._pending.entries[before:]
            self._counted = False
            with suppress(LedgerError):  # an error here would hide the first one
                _ = self.pending
            raise

    def flush(self) -> None:
        """Commit the pending entries."""
        if self.pending.entries:
            self.durably(lambda pending: None)

    def change_settings(
        self, changes: Mapping[str, Setting | None], classes: Sequence[ClassRow] | None
    ) -> None:
        """Change settings and, where they are given, replace the classes; see `Ledger`."""
        with self.together():
            self._expect_digest()
            write_settings(self._store, changes)
            if classes is not None:
                write_classes(self._store, classes)
            self._record_digest()

    def _expect_digest(self) -> None:
        """Check that no edit by hand will get a digest of its own, in the open transaction."""
        if all(entry.event != "settings" for entry in self.pending.entries):  # else done before
            expect_digest(self._store)

    def _record_digest(self) -> None:
        """Record the digest of settings and classes, in the open transaction."""
        payload = canonical({"digest": digest_of(self._store)})
        entries = self.pending.entries
        if entries and entries[-1].event == "settings":  # one row for several changes at a time
            entries[-1] = replace(entries[-1], payload=payload)
        else:
            self.pending.record("settings", payload=payload)

    def save_arrays(self, round: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Commit the pending entries with the learner's arrays after them."""
        data = to_bytes(arrays)
        with self.together():
            links = chain(self.head, self.pending.entries)
            head = Head(links[-1].seq, links[-1].hash) if links else self.head
            write_arrays(self._store, Saved(head, round, data))

    def keep_last_arrays(self) -> None:
        """Delete all saved arrays but the newest whole ones."""
        with self.together():
            keep_last_arrays(self._store)

    def write_state(self, state: str, facts: Mapping[str, Any]) -> None:
        """Replace the state of the run."""
        with self.together():
            write_state(self._store, state, facts)

    def add_items(self, records: Iterable[ItemRecord], rejected: Sequence[RejectedRow]) -> int:
        """Append items, as a `settings` row with the new digest; gives how many there were."""
        with self.together():
            self._expect_digest()
            expect_seal(self._store)
            count = write_items(self._store, records)
            write_rejected(self._store, rejected)
            seal_rows(self._store)
            self._record_digest()
        self.items.read()
        return count

    def erase(self, item: str, copies: Mapping[str, Any]) -> str:
        """Erase all that identifies an item, and mark it as `erasing`; its name from now on."""
        surrogate = self.items.surrogate(item)
        name = erased_name(surrogate)
        with self.together():
            erase_requests(self._store, item)
            erase_item(self._store, surrogate)
            self.private.erase(surrogate)
            self._store.insert(ERASING, [{"item": name, "record": canonical(dict(copies))}])
        self.items.read()
        return name

    def erasing(self) -> dict[str, Any]:
        """The erased items of which copies or bytes may be left; see `Ledger`."""
        try:
            return {item: json.loads(record) for item, record in self._store.select(ERASING)}
        except (ValueError, RecursionError):
            raise LedgerCorrupt(
                f"what {self._store.name} holds of the copies of an erased item is damaged:"
                " restore the file from a copy"
            ) from None

    def erased(self, name: str) -> None:
        """Wipe the bytes of an erased item from the file, and take its mark away."""
        run = self._store.connection.execute
        with self.together():  # what found its copies is wiped with it
            run("UPDATE erasing SET record = '{}' WHERE item = ?", (name,))
        self._store.wipe()
        with self.together():
            run("DELETE FROM erasing WHERE item = ?", (name,))

    def posted(self, round: int) -> bool:
        """Whether a round's certificate is on disk."""
        return self._store.certificate(round) is not None

    def certificate(self, round: int) -> Decision:
        """The certificate of a round, from its row on disk.

        Raises:
            LedgerCorrupt: there is none.
        """
        entry = self._store.certificate(round)
        item = None if entry is None else self.items.id(entry.item)
        if entry is None or item is None:
            raise LedgerCorrupt(
                f"the certificate of round {round} should be in the ledger, but is not: restore "
                "the file from a copy"
            )
        return read_certificate(round, item, entry.data())

    def verify(self, heads: Mapping[str, Head]) -> None:
        """Walk the chain on disk; see `Ledger.verify`."""
        accounts = self._empty().accounts
        links = self._store.links(-math.inf)  # a row inserted below row 1 is none of the others
        for link in walk(self.terms.genesis, links, {**array_heads(self._store), **heads}):
            self._check_beside(link)
            if link.entry.event == "round":
                accounts.expect_epoch(link.entry)
            accounts.apply(link.entry)
        expect_sealed(self._store)
        read_state(self._store)

    def _check_beside(self, link: Link) -> None:
        """Compare the tables beside the chain with the hashes in a row."""
        entry = link.entry
        if entry.item is None:
            return
        self.items.expect_row(entry.item, link.seq)
        if entry.event == "round" or (entry.event == "reserved" and entry.purpose != "train"):
            self.items.check(entry.item, entry.data().get("item"), link.seq)
        elif entry.event in ("answered", "late", "corrected", "released"):
            words = entry.data().get("words")
            if words is not None:
                self.private.check(entry.item, str(words), link.seq)

    def stand_at(self, count: int, *, stream: bool) -> None:
        """Count the first `count` rows alone: what made the later ones is to make them again.

        Nothing is written before they are.
        """
        self.flush()
        if count >= self.head.count:
            return
        pending = self._empty()
        for link in self._store.links(upto=count):
            pending.accounts.apply(link.entry)
        some = self._store.links(count, only=("round", "settings"), upto=self.head.count)
        decided = itertools.dropwhile(lambda link: link.entry.event != "round", some)
        changed = any(link.entry.event == "settings" for link in decided)
        later = self._pages(count, upto=self.head.count)
        pending.recorded = Recorded(later, changed=changed, stream=stream)
        self._pending = pending

    @property
    def recorded(self) -> Recorded | None:
        """The rows on disk that are to be made again; None where all are counted."""
        found = self._pending.recorded
        if found is not None and found.next is None:
            found = self._pending.recorded = None
        return found

    def take_recorded(self) -> Row:
        """Count the next row on disk as it is."""
        assert self._pending.recorded is not None, "a ledger stands before its last row"
        row, entry = self._pending.recorded.take()
        self._pending.accounts.apply(entry)
        return row

    def rows(self, after: int = 0, *, only: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `after` + 1 on, or only those of the events `only`; flushed first."""
        self.flush()
        upto = None if self.recorded is None else cast("Row", self.recorded.next).seq - 1
        return itertools.chain.from_iterable(rows for rows, _ in self._pages(after, only, upto))

    def _pages(
        self, after: int, only: Sequence[str] = (), upto: int | None = None
    ) -> Iterator[tuple[list[Row], list[Entry]]]:
        """The rows, some thousands at a time, with their entries in the chain."""
        for links in self._store.pages(after, only=only, upto=upto):
            ids = self.items.ids({link.entry.item for link in links})
            names = self.private.names({link.entry.labeler for link in links})
            entries = [link.entry for link in links]
            payloads = zip(links, payloads_of(entries), strict=True)
            yield [self._row(link, payload, ids, names) for link, payload in payloads], entries

    @staticmethod
    def _row(
        link: Link,
        payload: Mapping[str, Any],
        ids: Mapping[str | None, str | None],
        names: Mapping[str | None, str | None],
    ) -> Row:
        """A link with its item's id and its payload."""
        entry = link.entry
        return Row(
            seq=link.seq,
            time=entry.time / 1e6,
            event=entry.event,
            round=entry.round,
            item=ids[entry.item],
            surrogate=entry.item,
            slot=entry.slot,
            token=entry.token,
            number=entry.number,
            purpose=entry.purpose,
            labeler=names[entry.labeler],
            price=entry.price,
            payload=payload,
            previous=link.previous,
            hash=link.hash,
        )

    def _catch_up(self) -> None:
        """Count the rows that another process has written since."""
        tail = self._tail()
        if tail == self.head:
            return
        self.items.read()
        self.private.read()
        if self.pending.entries:
            self._load()
            return
        for link in self._store.links(self.head.count):
            self.pending.accounts.apply(link.entry)
        self.head = tail

    def _load(self) -> None:
        """Count all rows on disk, then the pending entries."""
        pending, tail = self._empty(), self._tail()  # the tail first: other processes may append
        for link in self._store.links(upto=tail.count):
            pending.accounts.apply(link.entry)
        for entry in self._pending.entries:
            pending.accounts.apply(entry)
        pending.entries = self._pending.entries
        self._pending, self.head, self._counted = pending, tail, True

    def _tail(self) -> Head:
        """The end of the chain on disk, which this process has seen or which follows that."""
        tail = self._store.tail() or Head(0, self.terms.genesis)
        if tail.count <= self.head.count and tail != self.head:
            raise LedgerCorrupt(
                f"the ledger {self._store.name} should have {self.head.count} rows, as this "
                f"process left it, but has {tail.count} other rows: it was cut or replaced"
            )
        return tail

    def _empty(self) -> Pending:
        accounts = Accounts(self.terms.budget, self.terms.money, self.terms.price)
        return Pending(accounts, self.items, self.private, self._clock)


def _write_new(path: Path, terms: Terms, items: Iterable[ItemRecord], beginning: Beginning) -> None:
    store = Store(path)
    try:
        with store.writing():
            make_tables(store.connection)
            make_salt(store)
            write_settings(store, beginning.settings)
            write_classes(store, beginning.classes)
            write_state(store, "running", beginning.facts)
            write_items(store, items)
            write_given(store, beginning.given)
            expect_unique(store)
            make_indexes(store.connection)
            seal_rows(store)
            store.insert(TERMS, [asdict(replace(terms, settings=digest_of(store)))])
            store.commit()
    finally:
        store.close()


def _terms(store: Store) -> Terms:
    found = next(iter(store.select(TERMS)), None)
    if found is None:
        raise LedgerCorrupt(
            f"the ledger {store.name} should say what its run may spend, but does not: restore "
            "the file from a copy"
        )
    return Terms(*found)
