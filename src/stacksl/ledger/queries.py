"""A ledger as it can be read: what was asked, who answered, what it cost, what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self

from stacksl.ledger import findings
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Row, tombstone
from stacksl.ledger.journal import Book
from stacksl.ledger.purchases import Answer, Dispute, Handed, Head, ItemRecord, Purchase, Purpose
from stacksl.ledger.store.chain import Heads
from stacksl.ledger.store.database import Store

if TYPE_CHECKING:
    from types import TracebackType


class LedgerReader:
    """All that can be read of a ledger; only `rows` and `close` write: what waits in memory."""

    def __init__(self, store: Store, run: str | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._book = Book(store, run, clock)

    @property
    def _accounts(self) -> Accounts:
        return self._book.drafts.accounts

    # What is left ------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """The run's name."""
        return self._book.terms.run

    @property
    def genesis(self) -> str:
        """The hash that row 1 of the chain follows, which no other ledger has."""
        return self._book.terms.genesis

    @property
    def budget(self) -> int:
        """The most labels that may be bought, as it stands now."""
        return self._accounts.budget

    @property
    def money(self) -> int | None:
        """The most that may be spent, in micro-units; None where only labels are counted."""
        return self._accounts.money

    @property
    def price(self) -> int:
        """The most one label may cost, in micro-units."""
        return self._book.terms.price

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
        """Labels handed to the learner, owned ones too."""
        return self._accounts.learnt

    @property
    def last_round(self) -> int:
        """The highest round with a certificate; 0 before the first."""
        return self._accounts.last_round

    @property
    def doubled(self) -> int:
        """How many items have a second slot, whatever became of it."""
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
        return self._book.head

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
        purchases = (self._book.drafts.purchase(key) for key in self._accounts.open)
        return [purchase for purchase in purchases if purchase is not None]

    def rows(self, after: int = 0) -> Iterator[Row]:
        """The rows from `after` + 1 on, in chain order; what waits in memory is flushed first."""
        return self._book.rows(after)

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, said, learnt_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `answer` is a candidate's index where `said` is `label`; `learnt_at` is in seconds since
        the epoch, the price in micro-units of money.
        """
        return findings.exported(self._book)

    def seen(self, item: str) -> bool:
        """Whether an item has a certificate, asked or skipped."""
        return self._book.register.surrogate(item) in self._accounts.seen

    def knows(self, item: str) -> bool:
        """Whether it is an item of this ledger; a forgotten one goes by its tombstone."""
        return item in self._book.register

    def tombstone(self, item: str) -> str:
        """The id by which an item goes once it is forgotten.

        Raises:
            LedgerError: the item is unknown.
        """
        return tombstone(self._book.register.surrogate(item))

    # The answers -------------------------------------------------------------------------------

    def said(self, purpose: Purpose | None = None) -> dict[str, int]:
        """Accepted answers by kind: `label`, `none`, `ambiguous`, `broken`.

        Those of train and audit together, or of one purpose; a corrected answer counts as what it
        was corrected to.
        """
        return findings.said(self._book, purpose)

    def texts(self, item: str | None = None) -> list[Answer]:
        """The answers that came with a right text or a note, as they came; of one item or all."""
        return findings.texts(self._book, item)

    def disputes(self) -> list[Dispute]:
        """Answers that were kept uncharged and say something else than the accepted one.

        They conflict with it, or came too late to be paid where there is none. The same words of
        the same labeler are told once.
        """
        return findings.disputes(self._book)

    def audited(self) -> dict[str, Answer]:
        """The accepted answer of each audited item, as corrected, in the order of arrival."""
        return findings.audited(self._book)

    def agreement(self) -> list[tuple[Answer, Answer]]:
        """Each two accepted answers to the slots of one item, as they came, lower slot first."""
        return findings.agreement(self._book)

    def handed(self, keys: Iterable[str] | None = None) -> list[Handed]:
        """What was handed out to people, in that order; nothing of forgotten items.

        Args:
            keys: of these rows alone; those that were never handed out are passed over.
        """
        with self._store.sentences():
            return self._book.annex.handed(keys)

    # Trust -------------------------------------------------------------------------------------

    def check_items(self, records: Iterable[ItemRecord]) -> None:
        """Hold a data file against the items this run began with, item by item.

        Raises:
            LedgerError: items differ, are gone or are new; the first few are named.
        """
        self._book.register.compare(records)

    def verify(self, heads: Heads = ()) -> None:
        """Walk the chain on disk, and hold it against ends it once had.

        Args:
            heads: (count, hash) as checkpoints carry it; by the name of what carries it, for the
                error to say, where it is known.

        Raises:
            LedgerCorrupt: naming the first bad row, or the tail that was cut.
            LedgerError: an event that this version does not know.
        """
        self._book.verify(heads)

    # Opening and closing -----------------------------------------------------------------------

    def flush(self) -> None:
        """Make durable what waits in memory."""
        self._book.flush()

    def close(self) -> None:
        """Flush, and let the file go."""
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
            self._store.close()  # what waits is safe to lose; a second error would hide the first
