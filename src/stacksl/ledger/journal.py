"""The journal of a ledger: its terms, its rows on disk, its pending entries, and the commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from numpy.typing import NDArray

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.files.arrays import to_bytes
from stacksl.ledger.accounts import Accounts, Pending
from stacksl.ledger.events import Row, canonical, read_certificate
from stacksl.ledger.grants import release_all
from stacksl.ledger.purchases import Head, ItemRecord
from stacksl.ledger.store.arrays import Saved, array_heads, keep_last_arrays, write_arrays
from stacksl.ledger.store.chain import Link, chain, genesis, walk
from stacksl.ledger.store.database import Store, place_file, remove_file
from stacksl.ledger.store.items import Items
from stacksl.ledger.store.private import PrivateTables
from stacksl.ledger.store.schema import TERMS, make_tables
from stacksl.ledger.store.settings import (
    ClassRow,
    Setting,
    digest_of,
    expect_digest,
    make_salt,
    read_state,
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
        classes: those that were given.
        state: of the run, `running`, with the `facts` beside it.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    classes: Sequence[ClassRow] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


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
        if self._open:
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
            expect_digest(self._store)  # an edit by hand must not get a digest of its own
            write_settings(self._store, changes)
            if classes is not None:
                write_classes(self._store, classes)
            payload = canonical({"digest": digest_of(self._store)})
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

    def add_items(self, records: Iterable[ItemRecord]) -> int:
        """Add the records that are new; gives how many those were."""
        records = list(records)
        if not self.items.fresh(records):
            return 0
        with self.together():
            fresh = self.items.fresh(records)
            Items.write(self._store, fresh)
        self.items.read()
        return len(fresh)

    def forget(self, item: str) -> None:
        """Erase all that identifies an item, and then wipe its bytes from the file."""
        surrogate = self.items.surrogate(item)
        with self.together():
            release_all(self.pending, item)
            self.items.erase(surrogate)
            self.private.erase(surrogate)
            self._store.mark_unclean()
        self.items.read()
        self._store.wipe()

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
        links = self._store.links()
        for link in walk(self.terms.genesis, links, {**array_heads(self._store), **heads}):
            self._check_beside(link)
            if link.entry.event == "round":
                accounts.expect_epoch(link.entry)
            accounts.apply(link.entry)
        expect_digest(self._store)
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

    def rows(self, after: int = 0, *, only: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `after` + 1 on, or only those of the events `only`; flushed first."""
        self.flush()
        for link in self._store.links(after, only=only):
            yield self.row(link)

    def row(self, link: Link) -> Row:
        """A link with its item's id and its payload."""
        entry = link.entry
        return Row(
            seq=link.seq,
            time=entry.time / 1e6,
            event=entry.event,
            round=entry.round,
            item=self.items.id(entry.item),
            surrogate=entry.item,
            slot=entry.slot,
            token=entry.token,
            number=entry.number,
            purpose=entry.purpose,
            labeler=self.private.name(entry.labeler),
            price=entry.price,
            payload=entry.data(),
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
            store.insert(TERMS, [asdict(replace(terms, settings=digest_of(store)))])
            Items.write(store, items)
            store.commit()
    finally:
        store.close()


def _terms(store: Store) -> Terms:
    found = next(store.select(TERMS), None)
    if found is None:
        raise LedgerCorrupt(
            f"the ledger {store.name} should say what its run may spend, but does not: restore "
            "the file from a copy"
        )
    return Terms(*found)
