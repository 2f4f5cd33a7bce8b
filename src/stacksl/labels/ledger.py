"""The ledger: the single source of truth for what was asked, answered and learnt.

See `docs/ledger.md` for the events, the rules of buying and what `verify` can find.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stacksl.errors import LedgerError
from stacksl.items import Decision, Label
from stacksl.labels.accounts import Accounts
from stacksl.labels.book import Book, Terms
from stacksl.labels.exchange import (
    correction,
    lease,
    post,
    received,
    release,
    renewal,
    settle,
)
from stacksl.labels.migrations import migrate, pending
from stacksl.labels.purchases import Answer, Head, ItemRecord, Purchase
from stacksl.labels.register import compare
from stacksl.labels.rows import Row, canonical
from stacksl.labels.store import Store, expect_file

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Ledger"]

Clock = Callable[[], float]


class Ledger:
    """An append-only book of certificates, purchases and lessons, with a budget it never exceeds.

    Purchases are reserved on disk before `post` returns and answers are on disk before `take`
    returns. Two things may wait in memory for the next commit, because losing them loses nothing:
    certificates of rounds that bought nothing, and (`durable=False`) answers of labelers that
    give the same answer again for free.

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
        self._book = Book(store, run, clock)
        self._clock = clock
        self._lease = lease
        self._decisions: dict[int, Decision] = {}
        self._deadlines: dict[tuple[str, int, int], float] = {}
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
        terms = Terms(run, budget, money, price, created=int(clock() * 1e6))
        Book.found(path, terms, items)
        return cls(Store(path), run, clock, lease)

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
            expect_file(Path(path))
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
    def run(self) -> str:
        """The run's name."""
        return self._book.terms.run

    @property
    def budget(self) -> int:
        """The most labels that may be bought."""
        return self._book.terms.budget

    @property
    def money(self) -> int | None:
        """The most that may be spent, in micro-units; None where only labels are counted."""
        return self._book.terms.money

    @property
    def price(self) -> int:
        """The most one label may cost, in micro-units."""
        return self._book.terms.price

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
    def epoch(self) -> int:
        """How often the features were renewed; a certificate belongs to the epoch it is made in."""
        return self._accounts.epoch

    @property
    def head(self) -> Head:
        """The end of the chain on disk; `flush` first to have everything in it."""
        return self._book.head

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
        return self._book.drafts.accounts

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
            posted = self._book.durably(lambda drafts: post(drafts, decisions, self._book.posted))
        else:
            posted = self._book.later(lambda drafts: post(drafts, decisions, self._book.posted))
        for decision in posted:
            if decision.asked:
                self._decisions[decision.round] = decision
        self._note_deadlines()
        return posted

    def open_purchases(self) -> list[Purchase]:
        """All unanswered leases, in the order of leasing."""
        purchases = (self._book.drafts.purchase(key) for key in self._accounts.open)
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
            LabelerError: an answer to an unknown item or a purchase never made, in anything but
                whole numbers, outside the item's candidates, at a negative price, or dearer than
                reserved. None of the answers was taken then.
            LedgerError: the database cannot be written; none was taken.
        """
        answers = received(self._book.drafts, answers)
        if not answers or all(self._book.drafts.came_before(answer) for answer in answers):
            return []
        simple = all(self._book.drafts.answers_open_lease(answer) for answer in answers)
        run = self._book.later if simple and not durable else self._book.durably
        accepted = run(lambda drafts: settle(drafts, answers))
        lessons = [(self._certificate(round), Label(index)) for round, index in accepted]
        for decision, _ in lessons:
            self._decisions.pop(decision.round, None)
        return lessons

    def _certificate(self, round: int) -> Decision:
        """The certificate of a round, from memory or from its row."""
        return self._decisions.get(round) or self._book.certificate(round)

    def correct(self, item: str, index: int, labeler: str, *, slot: int = 0) -> None:
        """Replace an accepted answer, as a numbered `corrected` row; the next refit uses it.

        Raises:
            LedgerError: the purchase has no answer.
            LabelerError: the index is not a whole number, or not one of the item's candidates.
        """
        self._book.durably(lambda drafts: correction(drafts, item, slot, index, labeler))

    # Leases ------------------------------------------------------------------------------------

    def release(self, purchase: Purchase, reason: str) -> bool:
        """Give a lease up and its reservation back; False if it was not open any more.

        Args:
            purchase: the lease.
            reason: `expired` or `refused`.
        """
        released = self._book.durably(lambda drafts: release(drafts, purchase, reason))
        self._note_deadlines()
        return released

    def lease(self, item: str, *, slot: int = 0) -> Purchase | None:
        """Lease a released purchase again, under a raised token; None if no budget is left.

        Raises:
            LedgerError: the purchase was never made, is open, or is answered.
        """
        purchase = self._book.durably(lambda drafts: lease(drafts, item, slot))
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
        self._book.durably(lambda drafts: drafts.record("refit", payload=payload))

    def note_refreshed(self, labels: int, detail: dict[str, object]) -> None:
        """Write that the features were renewed after `labels` labels: a new epoch begins here.

        `detail` is free (JSON values).
        """
        payload = canonical({**detail, "labels": int(labels)})
        self._book.durably(lambda drafts: renewal(drafts, payload))

    def flush(self) -> None:
        """Make durable what waits in memory."""
        self._book.flush()

    def rows(self, after: int = 0) -> Iterator[Row]:
        """The rows from `after` + 1 on, in chain order; what waits in memory is flushed first."""
        self.flush()
        for link in self._store.links(self.run, after):
            yield self._book.row(link)

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, learnt_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `learnt_at` is in seconds since the epoch, the price in micro-units of money.
        """
        return self._book.drafts.export()

    def seen(self, item: str) -> bool:
        """Whether an item has a certificate, asked or skipped."""
        return self._book.register.surrogate(item) in self._accounts.seen

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
        self._book.verify([Head(*head) for head in heads])

    def close(self) -> None:
        """Flush, and let the file go."""
        try:
            if not self._store.readonly:
                self.flush()
        finally:
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
