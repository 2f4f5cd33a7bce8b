"""The reading half of a ledger: what was asked, who answered, what it cost, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Self, get_args

from stacksl.ledger.accounts import Accounts, State
from stacksl.ledger.events import Row, word_in
from stacksl.ledger.journal import Journal
from stacksl.ledger.purchases import (
    Answer,
    Handed,
    Head,
    Purchase,
    Purpose,
    Said,
    Word,
)
from stacksl.ledger.recorded import Recorded
from stacksl.ledger.store.arrays import Saved, read_arrays
from stacksl.ledger.store.database import Store

_CHARGED = ("train", "audit")


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
        """The most one label may cost, in micro-units, as last set."""
        return self._accounts.price

    @property
    def asked(self) -> int:
        """Training labels answered and open reservations: what the gate counts."""
        return self._accounts.asked

    @property
    def spent(self) -> int:
        """Labels answered and open reservations, of training and measuring together."""
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

    def rows(self, after: int = 0, *, only: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `after` + 1 on, or those of the events `only`, in chain order.

        Pending entries are flushed first.
        """
        return self._journal.rows(after, only=only)

    def stand_at(self, count: int, *, stream: bool) -> None:
        """Stand at row `count` again, as if no later one had been recorded yet.

        What made the later rows is to make them again: each is then compared with the one on disk,
        and nothing is written before the last of them. What came from outside is `take_recorded`.

        Args:
            count: of the rows that are counted.
            stream: whether the run takes its items one by one.
        """
        self._journal.stand_at(count, stream=stream)

    @property
    def recorded(self) -> Recorded | None:
        """The rows that are to be made again; None where a ledger stands at its last row."""
        return self._journal.recorded

    def take_recorded(self) -> Row:
        """The next of the rows that are to be made again, counted as it is."""
        return self._journal.take_recorded()

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, said, learnt_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `answer` is a candidate's index where `said` is `label`; `learnt_at` is in seconds since
        the epoch, the price in micro-units of money.
        """
        return [
            {
                "item": self._journal.items.id(key[0]),
                "slot": key[1],
                "state": "late" if state.stage == "released" and state.late else state.stage,
                "answer": state.index,
                "said": state.said,
                "learnt_at": None if state.learnt_at is None else state.learnt_at / 1e6,
                "price": 0 if state.stage == "released" else state.price,
                "labeler": self._journal.private.name(state.labeler),
                "purpose": state.purpose,
            }
            for key, state in self._journal.pending.accounts.purchases.items()
        ]

    def bought(self, purpose: Purpose | None = None) -> list[str]:
        """The items bought for one purpose or for all, in the order of the first lease."""
        purchases = self._accounts.purchases.items()
        found = dict.fromkeys(
            key[0] for key, state in purchases if purpose in (None, state.purpose)
        )
        return [str(self._journal.items.id(surrogate)) for surrogate in found]

    def seen(self, item: str) -> bool:
        """Whether an item has a certificate, asked or skipped."""
        return self._journal.items.surrogate(item) in self._accounts.seen

    # The answers -------------------------------------------------------------------------------

    def said(self, purpose: Purpose | None = None) -> dict[str, int]:
        """Accepted answers by kind: `label`, `none`, `ambiguous`, `broken`.

        Those of all that is charged, or of one purpose; a corrected answer counts as what it
        was corrected to.
        """
        counts = Counter(
            state.said
            for state in self._journal.pending.accounts.purchases.values()
            if state.stage == "answered" and state.purpose in ((purpose,) if purpose else _CHARGED)
        )
        return {kind: counts[kind] for kind in get_args(Said)}

    def texts(self, item: str | None = None) -> list[Answer]:
        """The answers and corrections with a right text or a note; of one item or all."""
        return [
            answer
            for _, answer in self._answers(("answered", "late", "corrected"), with_texts=True)
            if (answer.text is not None or answer.note is not None) and item in (None, answer.item)
        ]

    def disputes(self) -> list[Answer]:
        """Answers that were kept uncharged and differ from the accepted one.

        They contradict it, or were too late to be paid where there is none. The same answer of
        the same labeler is listed once.
        """
        answers = list(self._answers(with_texts=True))
        accepted = {(each.item, each.slot) for row, each in answers if row.event == "answered"}
        found: dict[tuple[object, ...], Answer] = {}
        for answer in (each for row, each in answers if row.event == "late"):
            state = self._state(answer)
            agrees = state is not None and state.word == answer.word
            if not (agrees and (answer.item, answer.slot) in accepted):
                key = (answer.item, answer.slot, answer.labeler, answer.word)
                found.setdefault(key, answer)
        return list(found.values())

    def audited(self, *, now: bool = False) -> dict[str, Answer]:
        """The answer to each item of the audit, in the order of arrival.

        As corrected before the audit was first shown, without those set aside before; of an item
        asked again the first that is left. With `now` later corrections count as well.
        """
        found: dict[str, Answer] = {}
        for row, answer in self._answers(with_texts=True):
            state = self._state(answer)
            if row.event != "answered" or row.purpose != "audit" or state is None:
                continue
            aside = self._accounts.is_aside(state)
            word = state.measured if state.shown and not now else None if aside else state.word
            if word is not None:
                found.setdefault(answer.item, _as(answer, word))
        return found

    @property
    def standing(self) -> dict[str, str]:
        """The last of `STANDINGS` of each labeler who has one, by name."""
        name = self._journal.private.name
        return {str(name(code)): how for code, how in self._accounts.standing.items()}

    @property
    def set_aside(self) -> frozenset[str]:
        """The labelers whose answers are set aside, by name."""
        return frozenset(name for name, how in self.standing.items() if how == "set_aside")

    def label_of(self, item: str) -> int | None:
        """The label that refits learn of an item whose label was learnt; None for none."""
        return self._accounts.taught.get(self._journal.items.surrogate(item))

    def left_out(self, purpose: Purpose) -> list[str]:
        """Items with answers of one purpose, all of them set aside; none is open or was shown."""
        groups: dict[str, list[State]] = {}
        for key, state in self._accounts.purchases.items():
            if state.purpose == purpose and state.stage != "released":
                groups.setdefault(key[0], []).append(state)
        items, aside = self._journal.items, self._accounts.is_aside
        found = [i for i, each in groups.items() if all(aside(s) and not s.shown for s in each)]
        return [str(items.id(i)) for i in found if items.commitment(i) is not None]  # not erased

    def agreement(self) -> list[tuple[Answer, Answer]]:
        """Each two accepted answers to one item, uncorrected, lower slot first; none set aside."""
        offered, aside = self._offered(), self.set_aside
        alike: dict[tuple[str, int], list[Answer]] = {}
        for row, answer in self._answers():
            if row.event == "answered" and row.purpose in _CHARGED and row.labeler not in aside:
                key = (answer.item, offered.get((row.surrogate, answer.slot), 0))
                alike.setdefault(key, []).append(answer)
        pairs = []
        for found in alike.values():
            pairs += list(combinations(sorted(found, key=lambda answer: answer.slot), 2))
        return pairs

    def _offered(self) -> dict[tuple[str | None, int], int]:
        """How many classes had been added when a purchase was first made, where any had.

        An item that was asked again with more classes says nothing of agreement: the question has
        changed.
        """
        if not self._journal.pending.accounts.classes_added:
            return {}
        offered: dict[tuple[str | None, int], int] = {}
        added = 0
        for row in self._journal.rows(only=("class_added", "reserved")):
            added += row.event == "class_added"
            if row.event == "reserved":
                offered.setdefault((row.surrogate, row.slot or 0), added)
        return offered

    def _answers(
        self, events: Sequence[str] = ("answered", "late"), *, with_texts: bool = False
    ) -> Iterator[tuple[Row, Answer]]:
        """Every row of one of the `events` with its answer, in order."""
        beside = self._journal.private.texts() if with_texts else {}
        for row in self._journal.rows(only=events):
            if row.item is None:
                continue
            data = row.payload
            word = word_in(data)
            index = word if isinstance(word, int) else None
            kind = next(s for s in get_args(Said) if s == ("label" if index is not None else word))
            text, note = beside.get(str(data.get("words")), (None, None))
            token = int(data.get("given", row.token))
            who, price = str(row.labeler), row.price or 0
            yield row, Answer(row.item, row.slot or 0, token, index, who, price, kind, text, note)

    def _state(self, answer: Answer) -> State | None:
        return self._journal.pending.state(answer.item, answer.slot)

    def handed(self, keys: Iterable[str] | None = None) -> list[Handed]:
        """The rows handed out to people, in that order; none of erased items.

        Args:
            keys: of the rows wanted; unknown keys are ignored. None for all rows.
        """
        return self._journal.private.handed(keys)

    # Checks ------------------------------------------------------------------------------------

    def verify(self, heads: Mapping[str, Head] | None = None) -> None:
        """Verify the chain on disk, and compare it with the ends that it once had.

        Args:
            heads: those that are stored outside the database, by the name of the file that stores
                each; those of the saved arrays are compared as well.

        Raises:
            LedgerCorrupt: naming the first bad row, or the tail that was cut.
            LedgerError: an event that this version does not know.
        """
        self._journal.verify(heads or {})

    def arrays(self, seq: int | None = None) -> Iterator[Saved]:
        """The learner's saved arrays, newest first, or those that were saved after row `seq`."""
        return read_arrays(self._store, seq)

    def latest_arrays(self) -> tuple[Saved | None, list[str]]:
        """The newest whole arrays, if any, and a sentence for each damaged ones passed over."""
        warnings: list[str] = []
        for saved in self.arrays():
            if saved.whole:
                return saved, warnings
            warnings.append(
                f"the learner's arrays after row {saved.head.count} are damaged (they do not match"
                " their SHA-256) and were passed over: the run is rebuilt from those before them"
                " and the ledger"
            )
        return None, warnings

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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._store.close()  # pending entries may be lost; a second error would hide the first


def _as(answer: Answer, word: Word) -> Answer:
    """The answer with another content, unless it has it already."""
    if answer.word == word:
        return answer
    index = word if isinstance(word, int) else None
    said = next(kind for kind in get_args(Said) if kind == ("label" if index is not None else word))
    return replace(answer, index=index, said=said, text=None)
