"""The ledger: the single source of truth for what was asked, answered and learnt.

See `docs/ledger.md` for the events, the rules of buying and what `verify` can find.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import insert, select

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.items import Decision, Label
from stacksl.labels.accounts import Accounts
from stacksl.labels.chain import Link, chain, genesis, walk
from stacksl.labels.exchange import Drafts, correction, lease, post, release, settle
from stacksl.labels.migrations import migrate, pending
from stacksl.labels.purchases import Answer, Head, ItemRecord, Purchase
from stacksl.labels.register import Register, compare
from stacksl.labels.rows import Row, canonical, read_certificate
from stacksl.labels.schema import runs
from stacksl.labels.store import Store

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Ledger"]

T = TypeVar("T")
Clock = Callable[[], float]

_WAITING: Final = 1024  # rows that may wait in memory


class Ledger:
    """An append-only book of certificates, purchases and lessons, with a budget it never exceeds.

    Purchases are reserved on disk before `post` returns and answers are on disk before `take`
    returns. Two things may wait in memory for the next commit, because losing them loses nothing:
    certificates of rounds that bought nothing, and (`durable=False`) answers of labelers that
    give the same answer again for free.

    Attributes:
        run: the run's name.
        budget, money, price: labels; micro-units in all (or None); micro-units a label at most.

    Example:
        >>> import tempfile
        >>> book = Ledger.create(
        ...     tempfile.mkdtemp() + "/ledger.db", run="demo", budget=1,
        ...     items=[ItemRecord("q1", "Is it so?\\nyes\\nno", 2)])
        >>> book.budget, book.spent, book.left
        (1, 0, 1)
        >>> book.close()
    """

    def __init__(self, store: Store, run: str | None, clock: Clock, lease: float | None) -> None:
        """Use `create` or `open`."""
        self._store = store
        self._clock = clock
        self._lease = lease
        with store.sentences():
            terms = _terms(store, run)
            self._register = Register.read(store.connection, terms.run)
        self.run: str = terms.run
        self.budget: int = terms.budget
        self.money: int | None = terms.money
        self.price: int = terms.price
        self._first = genesis(terms.run, terms.budget, terms.money, terms.price, terms.created)
        self._head = Head(0, self._first)
        self._drafts = self._fresh()
        self._decisions: dict[int, Decision] = {}
        self._deadlines: dict[tuple[str, int, int], float] = {}
        self._load()
        self.renew()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        run: str,
        budget: int,
        money: int | None = None,
        price: int = 0,
        items: Iterable[ItemRecord],
        clock: Clock = time.time,
        lease: float | None = None,
    ) -> Ledger:
        """Begin the ledger of a run.

        Args:
            path: a file, or a database URL.
            run: the run's name.
            budget: the most labels it may buy.
            money: the most it may spend, in micro-units; None for no limit.
            price: the most one label may cost, in micro-units.
            items: all items of the run.
            clock: gives seconds since the epoch.
            lease: seconds until a lease may expire; None for never.

        Raises:
            LedgerError: the run has a ledger already, or the database cannot be written.
        """
        if budget < 0 or price < 0 or (money is not None and money < 0):
            raise LedgerError(
                f"a budget, money and price should not be negative, came {budget}, {money}, {price}"
            )
        is_file = "://" not in str(path)
        if is_file and Path(path).exists():
            raise LedgerError(f"{path} exists: open it, or name a path that is free")
        store = Store(path)
        terms = {"run": run, "budget": budget, "money": money, "price": price}
        try:
            with store.writing() as tx:
                migrate(tx)
                tx.execute(insert(runs).values(created=int(clock() * 1e6), **terms))
                Register.write(tx, run, items)
                store.commit()
        except BaseException:
            store.close()
            if is_file:
                _remove(Path(path))
            raise
        return cls(store, run, clock, lease)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        run: str | None = None,
        readonly: bool = False,
        clock: Clock = time.time,
        lease: float | None = None,
    ) -> Ledger:
        """Open the ledger of a run; one of an older schema is brought up to date.

        Args:
            path: a file, or a database URL.
            run: which run, where the database holds several.
            readonly: write nothing, not even a migration.
            clock: gives seconds since the epoch.
            lease: seconds until a lease may expire, counted anew from now; None for never.

        Raises:
            LedgerError: there is no ledger, it is newer than this version, or cannot be read.
            LedgerCorrupt: its rows contradict each other.
        """
        if "://" not in str(path):
            _expect_file(Path(path))
        store = Store(path, readonly=readonly)
        try:
            with store.sentences():
                late = pending(store.connection)
            if late and readonly:
                raise LedgerError(
                    f"the ledger {store.name} lacks the schema step '{late[0]}': open it for "
                    "writing once, which adds it"
                )
            if late:
                with store.writing() as tx:
                    migrate(tx)
                    store.commit()
            return cls(store, run, clock, lease)
        except BaseException:
            store.close()
            raise

    # What is left ------------------------------------------------------------------------------

    @property
    def asked(self) -> int:
        """Training labels answered and open reservations: what the gate counts."""
        return self._accounts.spent  # every purpose but `train` is refused by this version

    @property
    def spent(self) -> int:
        """Labels answered and open reservations, of every purpose that costs."""
        return self._accounts.spent

    @property
    def spent_money(self) -> int:
        """Micro-units paid, and promised at the most they may cost."""
        return self._accounts.spent_money

    @property
    def left(self) -> int:
        """Labels that can still be bought."""
        return self._accounts.left

    @property
    def learnt(self) -> int:
        """Labels handed to the learner."""
        return self._accounts.learnt

    @property
    def head(self) -> Head:
        """The end of the chain on disk; `flush` first to have everything in it."""
        return self._head

    @property
    def fsyncs(self) -> int:
        """How many transactions this ledger made durable."""
        return self._store.fsyncs

    @property
    def fsync_seconds(self) -> float:
        """How long they took, in seconds."""
        return self._store.fsync_seconds

    @property
    def _accounts(self) -> Accounts:
        return self._drafts.accounts

    # Buying ------------------------------------------------------------------------------------

    def post(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Write certificates and reserve labels for those that want one.

        A want becomes `reserved`, or `refused` when the budget is spent. The reservations are
        checked against the budget and on disk in one transaction before this returns.

        Raises:
            LedgerError: an unknown item, a round posted twice, an item bought before, or a
                database that cannot be written. Nothing changed then.
        """
        if any(decision.status == "wanted" for decision in decisions):
            posted = self._durably(lambda drafts: post(drafts, decisions, self._posted))
        else:
            posted = self._later(lambda drafts: post(drafts, decisions, self._posted))
        for decision in posted:
            if decision.asked:
                self._decisions[decision.round] = decision
        self._note_deadlines()
        return posted

    def open_purchases(self) -> list[Purchase]:
        """All unanswered leases, in the order of leasing."""
        purchases = (self._drafts.purchase(key) for key in self._accounts.open)
        return [purchase for purchase in purchases if purchase is not None]

    def take(
        self, answers: Iterable[Answer], *, durable: bool = True
    ) -> list[tuple[Decision, Label]]:
        """Accept answers; gives what is to be learnt, in order, exactly once each.

        An answer that came before is ignored. One whose lease was released takes over the
        purchase's open lease if there is one; it is charged and learnt if the purchase has no
        answer and budget is left, and is otherwise kept as `late`, uncharged. So is one that
        contradicts an accepted answer.

        Args:
            answers: in the order in which they are to be learnt.
            durable: False for labelers that give the same answer again for free; their rows
                may wait for the next commit.

        Raises:
            LabelerError: an answer to a purchase never made, outside the item's candidates, or
                dearer than reserved. None of the answers was taken then.
            LedgerError: the database cannot be written; none was taken.
        """
        answers = list(answers)
        if not answers or all(self._drafts.came_before(answer) for answer in answers):
            return []
        simple = all(self._drafts.answers_open_lease(answer) for answer in answers)
        run = self._later if simple and not durable else self._durably
        accepted = run(lambda drafts: settle(drafts, answers))
        lessons = [(self._decision(round), Label(index)) for round, index in accepted]
        for decision, _ in lessons:
            self._decisions.pop(decision.round, None)
        return lessons

    def correct(self, item: str, index: int, labeler: str, *, slot: int = 0) -> None:
        """Replace an accepted answer, as a numbered `corrected` row; the next refit uses it.

        Raises:
            LedgerError: the purchase has no answer.
            LabelerError: the index is not one of the item's candidates.
        """
        self._durably(lambda drafts: correction(drafts, item, slot, index, labeler))

    # Leases ------------------------------------------------------------------------------------

    def release(self, purchase: Purchase, reason: str) -> bool:
        """Give a lease up and its reservation back; False if it was not open any more.

        Args:
            purchase: the lease.
            reason: `expired` or `refused`.
        """
        released = self._durably(lambda drafts: release(drafts, purchase, reason))
        self._note_deadlines()
        return released

    def lease(self, item: str, *, slot: int = 0) -> Purchase | None:
        """Lease a released purchase again, under a raised token; None if no budget is left.

        Raises:
            LedgerError: the purchase was never made, is open, or is answered.
        """
        purchase = self._durably(lambda drafts: lease(drafts, item, slot))
        self._note_deadlines()
        return purchase

    def renew(self) -> None:
        """Let every open lease run anew from now; done at `open`, since nobody was listening."""
        self._deadlines.clear()
        self._note_deadlines()

    def expire(self) -> list[Purchase]:
        """Release every lease whose time is over; gives those."""
        now = self._clock()
        over = [
            purchase
            for purchase in self.open_purchases()
            if self._deadlines.get((purchase.item, purchase.slot, purchase.token), now + 1) <= now
        ]
        return [purchase for purchase in over if self.release(purchase, "expired")]

    def _note_deadlines(self) -> None:
        if self._lease is None:
            return
        until = self._clock() + self._lease
        keys = [(p.item, p.slot, p.token) for p in self.open_purchases()]
        self._deadlines = {key: self._deadlines.get(key, until) for key in keys}

    # The book ----------------------------------------------------------------------------------

    def note_refit(self, labels: int, detail: dict[str, object]) -> None:
        """Write that the learner refitted on `labels` labels; `detail` is free (JSON values)."""
        payload = canonical({**detail, "labels": int(labels)})
        self._durably(lambda drafts: drafts.record("refit", payload=payload))

    def flush(self) -> None:
        """Make durable what waits in memory."""
        if self._drafts.entries:
            self._durably(lambda drafts: None)

    def rows(self, after: int = 0) -> Iterator[Row]:
        """The rows from `after` + 1 on, in chain order; what waits in memory is flushed first."""
        self.flush()
        for link in self._store.links(self.run, after):
            yield self._row(link)

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, learnt_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `learnt_at` is in seconds since the epoch, the price in micro-units of money.
        """
        return self._drafts.export()

    def seen(self, item: str) -> bool:
        """Whether an item has a certificate, asked or skipped."""
        return self._register.surrogate(item) in self._accounts.seen

    def check_items(self, records: Iterable[ItemRecord]) -> None:
        """Hold a data file against the items this run began with, item by item.

        Raises:
            LedgerError: items differ, are gone or are new; the first few are named.
        """
        with self._store.sentences():
            compare(self._store.connection, self.run, records)

    def verify(self, heads: Iterable[Head] = ()) -> None:
        """Walk the chain on disk, and hold it against ends it once had.

        Args:
            heads: (count, hash) as checkpoints carry it.

        Raises:
            LedgerCorrupt: naming the first bad row, or the tail that was cut.
            LedgerError: an event or purpose that this version does not know.
        """
        accounts = self._fresh().accounts
        marks = [Head(*head) for head in heads]
        for link in walk(self.run, self._first, self._store.links(self.run), marks):
            entry = link.entry
            if entry.event == "round" and entry.item is not None:
                self._register.check(entry.item, entry.data().get("item"), link.seq)
            accounts.apply(entry)

    def close(self) -> None:
        """Flush, and let the file go."""
        if not self._store.readonly:
            self.flush()
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._store.close()  # what waits is safe to lose; a second error would hide the first

    # Transactions ------------------------------------------------------------------------------

    def _durably(self, build: Callable[[Drafts], T]) -> T:
        """Run `build` on the book as it is on disk now, and commit what it records."""
        with self._store.writing(self.run):
            self._catch_up()
            with self._drafts.tentative():
                result = build(self._drafts)
                links = chain(self.run, self._head, self._drafts.entries)
                self._store.append(self.run, links)
                self._store.commit()
        if links:
            self._head = Head(links[-1].seq, links[-1].hash)
        self._drafts.entries.clear()
        return result

    def _later(self, build: Callable[[Drafts], T]) -> T:
        """Run `build` in memory; what it records waits for the next commit."""
        if self._store.readonly:
            raise LedgerError(f"the ledger {self._store.name} was opened for reading only")
        if len(self._drafts.entries) >= _WAITING:
            self.flush()
        with self._drafts.tentative():
            return build(self._drafts)

    def _catch_up(self) -> None:
        """Count the rows that another process wrote since."""
        tail = self._store.tail(self.run) or Head(0, self._first)
        if tail == self._head:
            return
        if tail.count <= self._head.count:
            raise LedgerCorrupt(
                f"the ledger {self._store.name} should have {self._head.count} rows, as this "
                f"process left it, but has {tail.count} others: it was cut or replaced"
            )
        if self._drafts.entries:
            return self._load()
        with self._accounts.tentative():
            for link in self._store.links(self.run, self._head.count):
                self._accounts.apply(link.entry)
        self._head = tail

    def _load(self) -> None:
        """Count all rows on disk, then those that wait."""
        drafts = self._fresh()
        for link in self._store.links(self.run, without="round"):
            drafts.accounts.apply(link.entry)
        head = self._store.tail(self.run) or Head(0, self._first)
        seen, last_round = self._store.certified(self.run)
        drafts.accounts.seen, drafts.accounts.last_round = seen, last_round
        for entry in self._drafts.entries:
            drafts.accounts.apply(entry)
        drafts.entries = self._drafts.entries
        self._drafts, self._head = drafts, head

    def _fresh(self) -> Drafts:
        accounts = Accounts(self.budget, self.money, self.price)
        return Drafts(accounts, self._register, self._clock)

    def _posted(self, round: int) -> bool:
        """Whether a round's certificate is on disk."""
        return self._store.certificate(self.run, round) is not None

    def _decision(self, round: int) -> Decision:
        """The certificate of a round, from memory or from its row."""
        if round in self._decisions:
            return self._decisions[round]
        entry = self._store.certificate(self.run, round)
        item = None if entry is None else self._register.id(entry.item)
        if entry is None or item is None:
            raise LedgerCorrupt(f"the certificate of round {round} should be in the ledger, is not")
        return read_certificate(round, item, entry.data())

    def _row(self, link: Link) -> Row:
        entry = link.entry
        return Row(
            seq=link.seq,
            time=entry.time / 1e6,
            event=entry.event,
            round=entry.round,
            item=self._register.id(entry.item),
            surrogate=entry.item,
            slot=entry.slot,
            token=entry.token,
            number=entry.number,
            purpose=entry.purpose,
            labeler=entry.labeler,
            price=entry.price,
            payload=entry.data(),
            previous=link.previous,
            hash=link.hash,
        )


def _expect_file(path: Path) -> None:
    if path.is_dir():
        raise LedgerError(f"expected a ledger file, came the folder {path}: name its ledger.db")
    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}: name the ledger.db of a run")
    if path.stat().st_size == 0:
        raise LedgerError(f"the ledger {path} is empty, it was cut: restore the file from a copy")


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(os.fspath(path) + suffix).unlink(missing_ok=True)


def _terms(store: Store, run: str | None) -> Any:
    """The row of `runs` that is meant."""
    found = {row.run: row for row in store.connection.execute(select(runs))}
    if run is None and len(found) == 1:
        return next(iter(found.values()))
    if run is None or run not in found:
        raise LedgerError(
            f"expected the name of a run in the ledger {store.name}, came {run!r}: it holds "
            f"{', '.join(sorted(found)) or 'none'}"
        )
    return found[run]
