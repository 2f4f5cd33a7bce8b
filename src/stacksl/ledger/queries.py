"""The reading half of a ledger: what was asked, who answered, what it cost, what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self

from stacksl.ledger import findings
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Row, tombstone
from stacksl.ledger.journal import Journal
from stacksl.ledger.purchases import Answer, Dispute, Handed, Head, ItemRecord, Purchase, Purpose
from stacksl.ledger.store.chain import Heads
from stacksl.ledger.store.database import Store

if TYPE_CHECKING:
    from types import TracebackType


class LedgerReader:
    """All that can be read of a ledger; only `rows` and `close` write the pending entries."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._journal = Journal(store, clock)

    @property
    def _accounts(self) -> Accounts:
        return self._journal.pending.accounts

    # What is left ------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """The run's name."""
        return self._journal.terms.run

    @property
    def genesis(self) -> str:
        """The hash that row 1 of the chain follows, which no other ledger has."""
        return self._journal.terms.genesis

    @property
    def budget(self) -> int:
        """The most labels that may be bought, as last set."""
        return self._accounts.budget

    @property
    def money(self) -> int | None:
        """The most that may be spent, in micro-units; None where only labels are counted."""
        return self._accounts.money

    @property
    def price(self) -> int:
        """The most one label may cost, in micro-units."""
        return self._journal.terms.price

    @property
    def asked(self) -> int:
        """Training labels answered and open reservations: what the gate counts."""
        return self._accounts.asked

    @property
    def spent(self) -> int:
        """Labels answered and open reservations, of training and audit together."""
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
        """Labels learnt, owned ones included."""
        return self._accounts.learnt

    @property
    def last_round(self) -> int:
        """The highest round with a certificate; 0 before the first."""
        return self._accounts.last_round

    @property
    def doubled(self) -> int:
        """How many items have a second slot, in any state."""
        return self._accounts.doubled

    @property
    def epoch(self) -> int:
        """How often the features were renewed; a certificate belongs to the epoch it is made in."""
        return self._accounts.epoch

    @property
    def classes(self) -> int | None:
        """How many candidates every item has since a class was added; None before the first."""
        return self._accounts.classes

    @property
    def head(self) -> Head:
        """The end of the chain on disk; `flush` first to have everything in it."""
        return self._journal.head

    @property
    def fsyncs(self) -> int:
        """How many transactions this ledger made durable."""
        return self._store.fsyncs

    @property
    def fsync_seconds(self) -> float:
        """How long they took, in seconds."""
        return self._store.fsync_seconds

    # The rows ----------------------------------------------------------------------------------

    def open_purchases(self) -> list[Purchase]:
        """All unanswered leases of every purpose, in the order of leasing."""
        purchases = (self._journal.pending.purchase(key) for key in self._accounts.open)
        return [purchase for purchase in purchases if purchase is not None]

    def rows(self, after: int = 0) -> Iterator[Row]:
        """The rows from `after` + 1 on, in chain order; pending entries are flushed first."""
        return self._journal.rows(after)

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, said, learnt_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `answer` is a candidate's index where `said` is `label`; `learnt_at` is in seconds since
        the epoch, the price in micro-units of money.
        """
        return findings.exported(self._journal)

    def seen(self, item: str) -> bool:
        """Whether an item has a certificate, asked or skipped."""
        return self._journal.items.surrogate(item) in self._accounts.seen

    def knows(self, item: str) -> bool:
        """Whether it is an item of this ledger; a forgotten one is known by its tombstone."""
        return item in self._journal.items

    def tombstone(self, item: str) -> str:
        """The id that an item has once it is forgotten.

        Raises:
            LedgerError: the item is unknown.
        """
        return tombstone(self._journal.items.surrogate(item))

    # The answers -------------------------------------------------------------------------------

    def said(self, purpose: Purpose | None = None) -> dict[str, int]:
        """Accepted answers by kind: `label`, `none`, `ambiguous`, `broken`.

        Those of train and audit together, or of one purpose; a corrected answer counts as what it
        was corrected to.
        """
        return findings.said(self._journal, purpose)

    def texts(self, item: str | None = None) -> list[Answer]:
        """The answers with a right text or a note, uncorrected; of one item or all."""
        return findings.texts(self._journal, item)

    def disputes(self) -> list[Dispute]:
        """Answers that were kept uncharged and differ from the accepted one.

        They contradict it, or were too late to be paid where there is none. The same answer of
        the same labeler is listed once.
        """
        return findings.disputes(self._journal)

    def audited(self) -> dict[str, Answer]:
        """The accepted answer of each audited item, as corrected, in the order of arrival."""
        return findings.audited(self._journal)

    def agreement(self) -> list[tuple[Answer, Answer]]:
        """Each two accepted answers to the slots of one item, uncorrected, lower slot first."""
        return findings.agreement(self._journal)

    def handed(self, keys: Iterable[str] | None = None) -> list[Handed]:
        """The rows handed out to people, in that order; none of forgotten items.

        Args:
            keys: of the rows wanted; unknown keys are ignored. None for all rows.
        """
        return self._journal.private.handed(keys)

    # Checks ------------------------------------------------------------------------------------

    def check_items(self, records: Iterable[ItemRecord]) -> None:
        """Compare a data file with the items that this run began with, item by item.

        Raises:
            LedgerError: items differ, are gone or are new; the first few are named.
        """
        self._journal.items.compare(records)

    def verify(self, heads: Heads = ()) -> None:
        """Verify the chain on disk, and compare it with the ends that it once had.

        Args:
            heads: (count, hash) as stored in checkpoints; where known by the name of the file
                that stores it, for the error message.

        Raises:
            LedgerCorrupt: naming the first bad row, or the tail that was cut.
            LedgerError: an event that this version does not know.
        """
        self._journal.verify(heads)

    # Opening and closing -----------------------------------------------------------------------

    def flush(self) -> None:
        """Commit the pending entries."""
        self._journal.flush()

    def close(self) -> None:
        """Flush, and close the database."""
        try:
            if not self._store.readonly:
                self.flush()
        finally:
            self._store.close()

    def __enter__(self) -> Self:
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
            self._store.close()  # pending entries may be lost; a second error would hide the first
