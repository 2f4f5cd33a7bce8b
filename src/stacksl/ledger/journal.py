"""The book under a ledger: its terms, its rows on disk, those that wait, and how they get there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import insert, select

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Row, read_certificate
from stacksl.ledger.grants import let_go
from stacksl.ledger.pending import Drafts
from stacksl.ledger.purchases import Head, ItemRecord
from stacksl.ledger.store.chain import Heads, Link, chain, genesis, walk
from stacksl.ledger.store.database import Store, place_file, remove_file
from stacksl.ledger.store.items import Register
from stacksl.ledger.store.private import Annex
from stacksl.ledger.store.schema import make_tables, runs, typed
from stacksl.types import Decision

if TYPE_CHECKING:
    from sqlalchemy import Connection


T = TypeVar("T")

_WAITING: Final = 1024  # rows that may wait in memory


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run may spend: labels, and micro-units of money in all and a label."""

    run: str
    budget: int
    money: int | None
    price: int
    created: int  # microseconds since the epoch

    @property
    def genesis(self) -> str:
        """The hash that row 1 of the chain follows."""
        return genesis(self.run, self.budget, self.money, self.price, self.created)


class Book:
    """One run's chain in a store, with the entries that are counted but wait to be written.

    Attributes:
        terms: what the run may spend.
        register: its items.
        annex: what lies beside the chain.
        drafts: what all rows add up to, and the entries that wait.
        head: the end of the chain on disk, as this process last saw it.
    """

    def __init__(self, store: Store, run: str | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._open: Connection | None = None  # of the transaction that is being built
        with store.sentences():
            self.terms = _terms(store, run)
            self.register = Register(store, self.terms.run)
            self.annex = Annex(store.connection, self.terms.run, self.register)
        self.head = Head(0, self.terms.genesis)
        self.drafts = self._empty()
        self._load()

    @staticmethod
    def found(where: str | Path, terms: Terms, items: Iterable[ItemRecord]) -> None:
        """Write the terms and the items of a new run; a file appears whole or not at all.

        Raises:
            LedgerError: the terms cannot be, or the place is taken or cannot be written.
        """
        if min(terms.budget, terms.price, terms.money or 0) < 0:
            raise LedgerError(
                "budget, money and price should not be negative, came "
                f"{terms.budget}, {terms.money}, {terms.price}"
            )
        if "://" in str(where):
            _write_new(where, terms, items)
            return
        path = Path(where)
        if path.exists():
            raise LedgerError(f"{path} exists: open it, or name a path that is free")
        draft = path.with_name(path.name + ".new")
        remove_file(draft)  # of a process that was killed here
        try:
            _write_new(draft, terms, items)
            place_file(draft, path)
        except BaseException:
            remove_file(draft)
            raise

    @contextmanager
    def together(self) -> Iterator[Connection]:
        """One transaction for all that is recorded inside: committed whole, or nothing of it.

        Inside another such block it is part of that block's transaction.

        Raises:
            LedgerError: nothing was written, and nothing is counted that was not before.
        """
        if self._open is not None:
            yield self._open
            return
        try:
            with self._store.writing(self.terms.run) as self._open:
                self._catch_up()
                with self.drafts.tentative():
                    yield self._open
                    links = chain(self.terms.run, self.head, self.drafts.entries)
                    self._store.append(self.terms.run, links)
                    self.annex.write()
                    self._store.commit()
        except BaseException:
            self._open = None
            with suppress(LedgerError), self._store.sentences():
                self.register.read()  # the error that is on its way says more than a second one
            raise
        self._open = None
        if links:
            self.head = Head(links[-1].seq, links[-1].hash)
        self.drafts.entries.clear()
        self.annex.written()

    def durably(
        self, build: Callable[[Drafts], T], beside: Callable[[Connection], None] | None = None
    ) -> T:
        """Run `build` on the book as it is on disk now, and commit what it records.

        `beside` may write to the tables beside the chain, in the same transaction.

        Raises:
            LedgerError: nothing was written, and nothing is counted that was not before.
        """
        with self.together() as connection:
            result = build(self.drafts)
            if beside is not None:
                beside(connection)
        return result

    def later(self, build: Callable[[Drafts], T]) -> T:
        """Run `build` in memory; what it records waits for the next commit."""
        if self._store.readonly:
            raise LedgerError(f"the ledger {self._store.name} was opened for reading only")
        if len(self.drafts.entries) >= _WAITING:
            self.flush()
        with self.drafts.tentative():
            return build(self.drafts)

    def flush(self) -> None:
        """Commit what waits."""
        if self.drafts.entries:
            self.durably(lambda drafts: None)

    def add_items(self, records: Iterable[ItemRecord]) -> int:
        """Enter the records that are not entered yet; how many those were."""
        records, added = list(records), 0
        if not self.register.fresh(records):
            return 0

        def enter(connection: Connection) -> None:
            nonlocal added
            fresh = self.register.fresh(records)
            Register.write(connection, self.terms.run, fresh)
            added = len(fresh)

        self.durably(lambda drafts: None, enter)
        with self._store.sentences():
            self.register.read()
        return added

    def forget(self, item: str) -> None:
        """Erase what is known of an item besides its numbers, and then its bytes."""
        surrogate = self.register.surrogate(item)

        def erase(connection: Connection) -> None:
            self.register.erase(surrogate)
            self.annex.erase(surrogate)
            self._store.mark_unclean()

        self.durably(lambda drafts: let_go(drafts, item), erase)
        with self._store.sentences():
            self.register.read()
        self._store.wipe()

    def posted(self, round: int) -> bool:
        """Whether a round's certificate is on disk."""
        return self._store.certificate(self.terms.run, round) is not None

    def certificate(self, round: int) -> Decision:
        """The certificate of a round, from its row on disk.

        Raises:
            LedgerCorrupt: there is none.
        """
        entry = self._store.certificate(self.terms.run, round)
        item = None if entry is None else self.register.id(entry.item)
        if entry is None or item is None:
            raise LedgerCorrupt(
                f"the certificate of round {round} should be in the ledger, but is not: restore "
                "the file from a copy"
            )
        return read_certificate(round, item, entry.data())

    def verify(self, heads: Heads) -> None:
        """Walk the chain on disk; see `Ledger.verify`."""
        accounts = self._empty().accounts
        links = self._store.links(self.terms.run)
        for link in walk(self.terms.run, self.terms.genesis, links, heads):
            self._check_beside(link)
            if link.entry.event == "round":
                accounts.expect_epoch(link.entry)
            accounts.apply(link.entry)

    def _check_beside(self, link: Link) -> None:
        """Hold what lies beside the chain against what a row says of it."""
        entry = link.entry
        if entry.item is None:
            return
        self.register.expect_row(entry.item, link.seq)
        if entry.event == "round" or (entry.event == "reserved" and entry.purpose != "train"):
            self.register.check(entry.item, entry.data().get("item"), link.seq)
        elif entry.event in ("answered", "late"):
            words = entry.data().get("words")
            if words is not None:
                self.annex.check(entry.item, str(words), link.seq)

    def rows(self, after: int = 0, *, only: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `after` + 1 on, or of them `only` the events named; flushed first."""
        self.flush()
        for link in self._store.links(self.terms.run, after, only=only):
            yield self.row(link)

    def row(self, link: Link) -> Row:
        """A link with its item's id and its payload."""
        entry = link.entry
        return Row(
            seq=link.seq,
            time=entry.time / 1e6,
            event=entry.event,
            round=entry.round,
            item=self.register.id(entry.item),
            surrogate=entry.item,
            slot=entry.slot,
            token=entry.token,
            number=entry.number,
            purpose=entry.purpose,
            labeler=self.annex.name(entry.labeler),
            price=entry.price,
            payload=entry.data(),
            previous=link.previous,
            hash=link.hash,
        )

    def _catch_up(self) -> None:
        """Count the rows that another process wrote since."""
        tail = self._tail()
        if tail == self.head:
            return
        if tail.count <= self.head.count:
            raise LedgerCorrupt(
                f"the ledger {self._store.name} should have {self.head.count} rows, as this "
                f"process left it, but has {tail.count}, others: it was cut or replaced"
            )
        self.register.read()
        self.annex.read()
        if self.drafts.entries:
            self._load()
            return
        with self.drafts.tentative():
            for link in self._store.links(self.terms.run, self.head.count):
                self.drafts.accounts.apply(link.entry)
        self.head = tail

    def _load(self) -> None:
        """Count all rows on disk, then those that wait."""
        drafts, tail = self._empty(), self._tail()  # the tail first: others may go on writing
        seen, last_round = self._store.certified(self.terms.run)
        drafts.accounts.seen, drafts.accounts.last_round = seen, last_round
        for link in self._store.links(self.terms.run, upto=tail.count, without="round"):
            drafts.accounts.apply(link.entry)
        for entry in self.drafts.entries:
            drafts.accounts.apply(entry)
        drafts.entries = self.drafts.entries
        self.drafts, self.head = drafts, tail

    def _tail(self) -> Head:
        with self._store.sentences():
            return self._store.tail(self.terms.run) or Head(0, self.terms.genesis)

    def _empty(self) -> Drafts:
        accounts = Accounts(self.terms.budget, self.terms.money, self.terms.price)
        return Drafts(accounts, self.register, self.annex, self._clock)


def _write_new(where: str | Path, terms: Terms, items: Iterable[ItemRecord]) -> None:
    store = Store(where)
    try:
        with store.writing() as tx:
            make_tables(tx)
            tx.execute(insert(runs).values(asdict(terms)))
            Register.write(tx, terms.run, items)
            store.commit()
    finally:
        store.close()


def _terms(store: Store, run: str | None) -> Terms:
    """The row of `runs` that is meant."""
    rows = typed(runs.c, store.connection.execute(select(runs)))
    found = {row.run: Terms(**row._mapping) for row in rows}
    if run is None and len(found) == 1:
        return next(iter(found.values()))
    if run is None or run not in found:
        raise LedgerError(
            f"expected the name of a run in the ledger {store.name}, came {run!r}: it holds "
            f"{', '.join(sorted(found)) or 'none'}"
        )
    return found[run]
