"""The ledger: the single source of truth for what was asked, answered and learnt.

See `docs/ledger.md` for the events, the rules of buying and what `verify` can find.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from numpy.typing import NDArray

from stacksl.ledger import grants
from stacksl.ledger.events import Row, canonical, owned_decision
from stacksl.ledger.journal import Beginning, Journal, Terms
from stacksl.ledger.purchases import Answer, Handed, ItemRecord, Purchase, Receipt, Said
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.database import Store, expect_file, expect_format
from stacksl.ledger.store.rows import RejectedRow
from stacksl.ledger.store.settings import ClassRow, Setting
from stacksl.ledger.transactions import lease, post, received, release, renewal, settle
from stacksl.types import Decision, Label

if TYPE_CHECKING:
    pass

Clock = Callable[[], float]
T = TypeVar("T")


class Ledger(LedgerReader):
    """An append-only journal of certificates, purchases and labels, which never exceeds its budget.

    Purchases are reserved on disk before `post` returns and answers are on disk before `take`
    returns. Two things may stay in memory until the next commit, because losing them loses nothing:
    certificates of rounds that bought nothing, and (`durable=False`) answers of labelers that
    give the same answer again for free.

    Example:
        >>> import tempfile
        >>> ledger = Ledger.create(
        ...     tempfile.mkdtemp() + "/run.db", run="demo", budget=1,
        ...     items=[ItemRecord("q1", "Is it so?\\nyes\\nno", 2)])
        >>> ledger.budget, ledger.spent, ledger.left
        (1, 0, 1)
        >>> ledger.close()
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        """Use `create` or `open`."""
        super().__init__(store, clock)
        self._decisions: dict[int, Decision] = {}

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
        beginning: Beginning | None = None,
        clock: Clock = time.time,
    ) -> Ledger:
        """Create the database of a run.

        Args:
            path: the file.
            run: the run's name.
            budget: the most labels it may buy.
            money: the most it may spend, in micro-units; None for no limit.
            price: the most one label may cost, in micro-units.
            items: all items of the run.
            beginning: settings, classes and state of the run.
            clock: gives seconds since the epoch.

        Raises:
            LedgerError: the file exists, or the database cannot be written.
        """
        terms = Terms(run, budget, money, price, created=int(clock() * 1e6))
        Journal.create(Path(path), terms, items, beginning or Beginning())
        return cls(Store(Path(path)), clock)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        readonly: bool = False,
        clock: Clock = time.time,
    ) -> Ledger:
        """Open the ledger of a run.

        Args:
            path: the file.
            readonly: write nothing.
            clock: gives seconds since the epoch.

        Raises:
            LedgerError: there is no ledger, it is of another format, or cannot be read.
            LedgerCorrupt: its rows contradict each other.
        """
        expect_file(Path(path))
        store = Store(Path(path), readonly=readonly)
        try:
            with store.sentences():
                expect_format(store.connection)
            return cls(store, clock)
        except BaseException:
            store.close()
            raise

    # Buying ------------------------------------------------------------------------------------

    def post(
        self, decisions: Sequence[Decision], slots: Mapping[str, int] | None = None
    ) -> list[Decision]:
        """Write certificates and reserve the labels that are wanted.

        `wanted` becomes `reserved`, or `refused` when the budget is spent. The reservations are
        checked against the budget and on disk in one transaction before this returns.

        Args:
            decisions: in order, as returned by `decide`.
            slots: item id to how many labels of it are bought, 1 where it is not named. Those
                beyond the first are reserved after all firsts, as far as the budget goes; of all
                slots of an item only the first accepted label is learnt.

        Raises:
            LedgerError: an unknown item, a round posted twice, an item bought before, or a
                database that cannot be written. Nothing has changed then.
        """
        wanted = any(decision.status == "wanted" for decision in decisions)
        run = self._journal.durably if wanted else self._journal.later
        posted = run(lambda pending: post(pending, decisions, slots or {}, self._journal.posted))
        for decision in posted:
            if decision.asked:
                self._decisions[decision.round] = decision
        return posted

    def take(self, answers: Iterable[Answer], *, durable: bool = True) -> list[Receipt]:
        """Accept answers; gives a receipt for each, in order, with what is to be learnt of it.

        Answers of an audit, those that name no candidate, and those to an item whose label was
        learnt are charged and not learnt. One that was recorded before is ignored. One whose lease
        was released takes over the purchase's open lease if there is one; it is charged and learnt
        if the purchase has no answer and budget is left, and is otherwise kept as `late`,
        uncharged. So is one that contradicts an accepted answer, or adds free texts to it.

        Args:
            answers: in the order in which they are to be learnt.
            durable: False for labelers that give the same answer again for free; their rows
                may wait for the next commit.

        Raises:
            LabelerError: an answer to an unknown item or a purchase never made, in anything but
                whole numbers, outside the item's candidates, at a negative price or one above the
                reserved price, or of an unknown kind. None of the answers was taken then.
            LedgerError: the database cannot be written; none was taken.
        """
        answers = received(self._journal.pending, answers)
        if all(self._journal.pending.is_recorded(answer) for answer in answers):
            return [Receipt(answer, "repeated") for answer in answers]
        simple = all(self._journal.pending.answers_open_lease(answer) for answer in answers)
        bare = all(answer.text is None and answer.note is None for answer in answers)
        run = self._journal.later if simple and bare and not durable else self._journal.durably
        settled = run(lambda pending: settle(pending, answers))
        if durable:
            self._store.empty_log()
        return [
            Receipt(answer, outcome, self._lesson(answer, round), relabels)
            for answer, (outcome, round, relabels) in zip(answers, settled, strict=True)
        ]

    def _lesson(self, answer: Answer, round: int | None) -> tuple[Decision, Label] | None:
        """The label to be learnt, with the certificate of its round."""
        if round is None or answer.index is None:
            return None
        decision = self.certificate(round)
        self._decisions.pop(round, None)
        return decision, Label(answer.index)

    def certificate(self, round: int) -> Decision:
        """The certificate of a round, from memory or from its row.

        Raises:
            LedgerCorrupt: there is none.
        """
        return self._decisions.get(round) or self._journal.certificate(round)

    def reserve(
        self, items: Sequence[str], purpose: Literal["audit", "train"] = "audit"
    ) -> list[Purchase]:
        """Lease labels that no round asked for: of all items in one transaction, or of none.

        Args:
            items: the ids of the items.
            purpose: `audit` (no certificate, round 0, charged and never learnt; one more slot where
                the answer was set aside), or `train`, one more slot each of items
                that were bought before.

        Raises:
            LedgerError: they do not all fit the budget, an item is unknown, is bought already
                (not train) or was not bought before (train). Nothing was leased then.
        """
        return self._journal.durably(lambda pending: grants.reserve(pending, items, purpose))

    def own(self, labels: Sequence[tuple[str, int]], source: str) -> list[tuple[Decision, Label]]:
        """Record labels that are owned already; gives what is to be learnt, in order.

        They cost nothing and count neither in `asked` nor in `spent`. Each comes with the decision
        of `events.owned_decision`: round 0, all candidates presented, choice −1.

        Args:
            labels: item id and index of its label.
            source: where they come from; the chain holds a code for it.

        Raises:
            LedgerError: an unknown item, or one whose label was bought or owned before.
            LabelerError: an index that is not one of the item's candidates.
        """
        owned = self._journal.durably(lambda pending: grants.own(pending, labels, source))
        return [(owned_decision(item, size), label) for item, label, size in owned]

    def correct(
        self,
        item: str,
        index: int | None,
        labeler: str,
        *,
        slot: int = 0,
        said: Said = "label",
        text: str | None = None,
        note: str | None = None,
        named: bool = False,
    ) -> tuple[Decision, Label] | None:
        """Replace an accepted answer, as a numbered `corrected` row; later refits learn it.

        The arguments are those of `Answer`. Nothing is paid. An audit that was shown stays measured
        by the answer before, unless that `named` the class. Gives what is to be learnt, where no
        answer to the item could be learnt before (none of these, mapped to a class); else None.

        Raises:
            LedgerError: the purchase has no answer.
            LabelerError: the index is not a whole number, or not one of the item's candidates.
        """
        answer = Answer(item, slot, 1, index, labeler, 0, said, text, note)
        learnt = self._journal.durably(lambda pending: grants.correct(pending, answer, named))
        if learnt is None:
            return None
        state, label = learnt
        return self.certificate(state.round or 0), label

    def stand(self, event: str, labeler: str) -> None:
        """Record whose answers are learnt.

        Args:
            event: `set_aside` (none of the labeler's answers is learnt, nor measures an audit that
                was not shown yet), or `kept` (all of them are learnt).
            labeler: by name.
        """
        self._journal.durably(lambda pending: grants.stand(pending, event, labeler))

    def show_audit(self) -> None:
        """Record that the audit is about to be shown: its answers so far are what it measures."""
        self._journal.durably(grants.show)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit all that is recorded inside in one transaction, or nothing.

        `rows` reads the disk: it does not show what is recorded inside before the block ends.
        """
        with self._journal.together():
            yield

    # Terms, classes and people -----------------------------------------------------------------

    def set_budget(self, labels: int, money: int | None, detail: Mapping[str, object]) -> None:
        """Change what may be spent from here on, as a `budget` row.

        Args:
            labels: the most labels that may be bought, in all.
            money: the most that may be spent, in micro-units; None for no limit.
            detail: anything else that changes with it (JSON values), such as the learner's budget
                and rounds or the `price` at which labels are reserved; the payload holds it too.

        Raises:
            LedgerError: below what is spent or reserved.
        """
        self._journal.durably(lambda pending: grants.set_budget(pending, labels, money, detail))

    def change_settings(
        self,
        changes: Mapping[str, Setting | None],
        classes: Sequence[ClassRow] | None = None,
    ) -> None:
        """Change what the run is made with, as a `settings` row with the new digest.

        Args:
            changes: the settings to set or, with None, to remove.
            classes: all classes from here on; None leaves them as they are.
        """
        self._journal.change_settings(changes, classes)

    def save_arrays(self, round: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save the learner's arrays after the last row, with all pending rows in one transaction.

        Only these and those before them are kept.
        """
        self._journal.save_arrays(round, arrays)

    def keep_last_arrays(self) -> None:
        """Delete all saved arrays but the newest whole ones: two show what was learnt between."""
        self._journal.keep_last_arrays()

    def write_state(self, state: str, facts: Mapping[str, Any]) -> None:
        """Replace the state of the run, with the `facts` beside it (JSON values)."""
        self._journal.write_state(state, facts)

    def add_items(self, records: Iterable[ItemRecord], rejected: Sequence[RejectedRow] = ()) -> int:
        """Add items to the run, and the rows of their files that could not be used; how many.

        Raises:
            LedgerError: an id is taken by another item, or appears twice. None was added then.
        """
        return self._journal.add_items(records, rejected)

    def add_class(self, name: str, size: int) -> None:
        """Add the candidate `name` to every item, which makes `size` of them.

        The chain holds the name: it belongs to the task, not to an item.

        Raises:
            LedgerError: `size` is not one more than before.
        """
        self._journal.durably(lambda pending: grants.add_class(pending, name, size))

    def hand_out(self, rows: Sequence[Handed]) -> None:
        """Record which lease is handed out to whom, before a sheet is written.

        Annotators get a code, under which the chain records their answers from then on.

        Raises:
            LedgerError: a key was given before, a lease was never made, or a candidate is shown
                twice. Nothing was recorded then.
            LabelerError: a row shows what is not among its item's candidates.
        """
        self._journal.durably(lambda pending: grants.hand_out(pending, rows))

    def forget(self, item: str, copies: Mapping[str, Any]) -> str:
        """Erase an item: its texts, id, salt, free texts and rows of sheets.

        Its open leases are released. The chain keeps its numbers under a random name, which is the
        item's id from then on, and still verifies. The item is marked as `erasing` until `erased`.

        Args:
            item: its id.
            copies: what finds its copies outside the database (JSON values).

        Returns:
            The name.

        Raises:
            LedgerError: the item is unknown.
        """
        self._decisions = {r: d for r, d in self._decisions.items() if d.item != item}
        surrogate = self._journal.items.surrogate(item)
        with self.together():
            for each in self.open_purchases():
                if each.item == item:
                    self.release(each, "refused")
            name = self._journal.erase(item, copies)
            self._journal.durably(lambda pending: pending.record("forgotten", item=surrogate))
        return name

    def erasing(self) -> dict[str, Any]:
        """What finds the copies of each erased item of which copies or bytes may be left, by name.

        Nothing where none but bytes in the database can be left.
        """
        return self._journal.erasing()

    def erased(self, name: str) -> None:
        """Wipe an erased item's bytes from the database, and take its mark away: no copy is left.

        Raises:
            LedgerError: another process reads the database; the mark stays.
        """
        self._journal.erased(name)

    # Leases ------------------------------------------------------------------------------------

    def release(self, purchase: Purchase, reason: str, note: str | None = None) -> bool:
        """Release a lease and its reservation; False if it was no longer open.

        Args:
            purchase: the lease.
            reason: `expired`, `refused` or `skipped: ` with one of `Skip`.
            note: any remark of who had it, kept as those of answers are.
        """
        return self._journal.durably(lambda pending: release(pending, purchase, reason, note))

    def remarks(self, row: Row) -> tuple[str, ...]:
        """The free texts of one row: the right text of an answer, the note of that or of a skip."""
        texts = self._journal.private.texts(row.surrogate) if "words" in row.payload else {}
        return tuple(text for text in texts.get(str(row.payload.get("words")), ()) if text)

    def free(self, leases: Sequence[Purchase], dropped: Collection[Purchase] = ()) -> None:
        """Release `leases`, and lease all but those `dropped` again, in one transaction."""
        self._journal.durably(lambda pending: grants.free(pending, leases, dropped))

    def lease(self, item: str, *, slot: int = 0) -> Purchase | None:
        """Lease a released purchase again, under a raised token; None if no budget is left.

        Raises:
            LedgerError: the purchase was never made, is open, or is answered.
        """
        return self._journal.durably(lambda pending: lease(pending, item, slot))

    # The chain ---------------------------------------------------------------------------------

    def note_refit(self, labels: int, detail: dict[str, object]) -> None:
        """Record a refit of the learner on `labels` labels; `detail` holds any JSON values."""
        payload = canonical({**detail, "labels": int(labels)})
        self._journal.durably(lambda pending: pending.record("refit", payload=payload))

    def note_refreshed(self, labels: int, detail: dict[str, object]) -> None:
        """Record that the features were renewed after `labels` labels: a new epoch begins here.

        `detail` holds any JSON values.
        """
        payload = canonical({**detail, "labels": int(labels)})
        self._journal.durably(lambda pending: renewal(pending, payload))
