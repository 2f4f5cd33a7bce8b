"""The reading half of a ledger: what was asked, who answered, what it cost, what is left."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast, get_args

from stacksl.errors import LedgerCorrupt, RunError
from stacksl.ledger.accounts import Accounts, Key, State, Terms
from stacksl.ledger.events import STORED, Entry, Row, parsed, read_decision, values_of, walk
from stacksl.ledger.purchases import Answer, AnswerKind, Head, Purchase, Purpose, Word, counted
from stacksl.ledger.store.database import Store
from stacksl.ledger.store.names import Items, PrivateTables
from stacksl.ledger.store.rows import check_rows
from stacksl.ledger.store.schema import ARRAYS, EVENTS, TERMS
from stacksl.ledger.store.settings import expect_digest, read_state
from stacksl.ledger.store.stored import Digests, Saved, edited, expect_stored, read_arrays
from stacksl.types import Decision

_COMPUTED = ("round", "refit", "refreshed")  # events of what a run decides or computes


class LedgerReader:
    """All that can be read of a ledger; only `rows` and `close` write the pending entries.

    Attributes:
        terms: what the run may spend, as it was made; its sums now are `accounts`.
        items: the items of the run.
        private: names, texts and rows handed out.
        head: the end of the chain on disk, as this process last saw it; `flush` first to have
            everything in it.
        entries: rows that are counted but not yet written, in order.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """Use `create` or `open` of a ledger."""
        self._store = store
        self._clock = clock
        terms = store.select(TERMS)
        if not terms:
            raise LedgerCorrupt(
                f"the ledger {store.name} should say what its run may spend, but does not: restore "
                "the file from a copy"
            )
        self.terms = Terms(*terms[0])
        self.items = Items(store)
        self.private = PrivateTables(store, self.items)
        self.head = Head(0, self.terms.genesis)
        self.entries: list[Entry] = []
        self._recorded: Recorded | None = None
        _ = self.accounts  # what cannot be counted is refused now

    # The sums ----------------------------------------------------------------------------------

    @cached_property
    def accounts(self) -> Accounts:
        """The sums over all rows and entries; deleted, they are counted again.

        Raises:
            LedgerError: the rows cannot be read, or contradict each other.
        """
        self.items.read()
        self.private.read()
        tail = self._tail()  # first: other processes may append
        accounts = self._counted(tail.count)
        accounts.count(self.entries)
        self.head = tail
        return accounts

    def _counted(self, count: int) -> Accounts:
        accounts = Accounts(self.terms.budget, self.terms.money, self.terms.price)
        for rows in self._store.pages(upto=count):
            accounts.count(rows)
        return accounts

    def _tail(self) -> Head:
        """The end of the chain on disk, which this process has seen or which follows that."""
        tail = self._store.tail() or Head(0, self.terms.genesis)
        if tail.count <= self.head.count and tail != self.head:
            raise LedgerCorrupt(
                f"the ledger {self._store.name} should have {self.head.count} rows, as this "
                f"process left it, but has {tail.count} other rows: it was cut or replaced"
            )
        return tail

    @property
    def made_from(self) -> Head:
        """The last row that is no note: what is made again of it names it again."""
        return self._store.tail(notes=False) or Head(0, self.terms.genesis)

    @property
    def told_head(self) -> Head:
        """`made_from` as files tell it: numbered without the rows `stored`.

        How often arrays are saved depends on where a run was cut off, and no file does.
        """
        count, tip = self.made_from
        return Head(count - self._store.count(EVENTS, "seq <= ? AND event = ?", count, STORED), tip)

    def place(self, head: Head) -> int | None:
        """The number of the row that a file tells of; None where the chain has no such row."""
        rows = self._store.select(EVENTS, ("seq",), "WHERE seq >= ? AND hash = ?", *head)
        return next((seq for (seq,) in rows), 0 if head.hash == self.terms.genesis else None)

    # The rows ----------------------------------------------------------------------------------

    def open_purchases(self) -> list[Purchase]:
        """All unanswered leases of every purpose, in the order of leasing."""
        identities, open_now = self.items.identities, self.accounts.open
        return [self._purchase(key, str(identities[key[0]].id)) for key in open_now]

    def _purchase(self, key: Key, item: str) -> Purchase:
        state = self.accounts.purchases[key]
        purpose = cast("Purpose", state.purpose)
        return Purchase(item, key[1], state.token, state.round or 0, purpose, state.price)

    def rows(self, after: int = 0, *, only: Sequence[str] = ()) -> Iterator[Row]:
        """The rows from `after` + 1 on, or those of the events `only`, in chain order.

        Pending entries are flushed first.
        """
        self.flush()
        upto = None if self.recorded is None else cast("Row", self.recorded.next).seq - 1
        return itertools.chain.from_iterable(self._pages(after, only, upto))

    def _pages(
        self, after: int, only: Sequence[str] = (), upto: int | None = None
    ) -> Iterator[list[Row]]:
        """The rows with ids and names, some thousands at a time."""
        for rows in self._store.pages(after, only=only, upto=upto):
            items = [self.items.identities[row.surrogate].id for row in rows]
            names = [self._name(row.code) for row in rows]
            triples = zip(rows, items, names, strict=True)
            yield parsed([replace(row, item=item, labeler=name) for row, item, name in triples])

    def _name(self, code: str | None) -> str | None:
        """The name for a code of the chain; a labeler without a code has its name there."""
        return None if code is None else self.private.names.get(code, code)

    def stand_at(self, count: int, *, stream: bool) -> None:
        """Stand at row `count` again, as if no later one had been recorded yet.

        What made the later rows is to make them again: each is then compared with the one on disk,
        and nothing is written before the last of them. For other rows see `take_recorded`.
        A `stream` takes its items one by one.
        """
        self.flush()
        if count >= self.made_from.count:
            return
        pages = self._store.pages(count, only=("round", "settings"), upto=self.head.count)
        events = (row.event for rows in pages for row in rows)
        decided = itertools.dropwhile(lambda event: event != "round", events)
        later_pages = self._pages(count, upto=self.head.count)
        self._recorded = Recorded(later_pages, changed="settings" in decided, stream=stream)
        self.accounts = self._counted(count)

    @property
    def recorded(self) -> Recorded | None:
        """The rows that are to be made again; None where a ledger stands at its last row."""
        if self._recorded is not None and self._recorded.next is None:
            self._recorded = None
        return self._recorded

    def take_recorded(self) -> Row:
        """The next of the rows that are to be made again, counted as it is."""
        assert self._recorded is not None, "a ledger stands before its last row"
        row = self._recorded.take()
        self.accounts.apply(row)
        return row

    def decisions(self, rounds: Iterable[int]) -> dict[int, Decision]:
        """The decisions of rounds, by round.

        Raises:
            LedgerCorrupt: one has none.
        """
        rounds = set(rounds)
        decisions = {}
        waiting = [e for e in self.entries if e.event == "round" and e.round in rounds]
        for row in (*waiting, *self._store.round_rows(rounds)):
            if row.round is not None and (item := self.items.identities[row.surrogate].id):
                decisions[row.round] = read_decision(row, item)
        for round in sorted(rounds - decisions.keys()):
            raise LedgerCorrupt(
                f"the row of round {round} should be in the ledger, but is not: restore "
                "the file from a copy"
            )
        return decisions

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, in the order of its first lease.

        Keys: `item, slot, state, answer, kind, learned_at, price, labeler, purpose`. The state is
        `open`, `answered`, `released`, or `late` (released, and answered too late to be paid);
        `answer` is a candidate's index where `kind` is `label`; `learned_at` is in seconds since
        the epoch, the price in micro-units of money.
        """
        rows: list[dict[str, object]] = []
        for (surrogate, slot), state in self.accounts.purchases.items():
            index = state.word if isinstance(state.word, int) else None
            rows.append(
                {
                    "item": self.items.identities[surrogate].id,
                    "slot": slot,
                    "state": "late" if state.stage == "released" and state.words else state.stage,
                    "answer": index,
                    "kind": state.word if index is None else "label",
                    "learned_at": None if state.learned_at is None else state.learned_at / 1e6,
                    "price": 0 if state.stage == "released" else state.price,
                    "labeler": self._name(state.labeler),
                    "purpose": state.purpose,
                }
            )
        return rows

    def accepted(self, *purposes: Purpose) -> list[dict[str, object]]:
        """The rows of `export` with an answer of nobody who is set aside, for `purposes` or all."""
        set_aside = self.set_aside
        return [
            row
            for row in self.export()
            if row["state"] == "answered" and row["labeler"] not in set_aside
            if not purposes or row["purpose"] in purposes
        ]

    def bought(self, purpose: Purpose | None = None) -> list[str]:
        """The items bought for one purpose or for all, in the order of the first lease."""
        purchases = self.accounts.purchases.items()
        surrogates = dict.fromkeys(
            key[0] for key, state in purchases if purpose in (None, state.purpose)
        )
        return [str(self.items.identities[surrogate].id) for surrogate in surrogates]

    def added(self, after: int) -> tuple[int, int]:
        """How many items to choose from, and how many classes, were added after row `after`."""
        rows = list(self.rows(after, only=("settings", "class_added")))
        items = sum(row.payload.get("pool", 0) for row in rows)
        return items, sum(row.event == "class_added" for row in rows)

    def has_decision(self, item: str) -> bool:
        """Whether an item has a decision record, asked or skipped."""
        return self.items.named().get(item) in self.accounts.seen

    # The answers -------------------------------------------------------------------------------

    def counts_by_kind(self, purposes: Sequence[str] = ("train", "audit")) -> dict[str, int]:
        """Accepted answers of `purposes`, by kind: `label`, `none`, `ambiguous`, `broken`.

        A corrected answer counts as what it was corrected to.
        """
        counts = Counter(
            "label" if isinstance(state.word, int) else state.word
            for state in self.accounts.purchases.values()
            if state.stage == "answered" and state.purpose in purposes
        )
        return {kind: counts[kind] for kind in get_args(AnswerKind)}

    def texts(self) -> list[Answer]:
        """The answers and corrections with a right text or a note."""
        answers = self._answers(("answered", "late", "corrected"))
        return [a for _, a in answers if a.text is not None or a.note is not None]

    def uncharged(self) -> tuple[list[Answer], list[Answer]]:
        """Answers that were kept uncharged: contradictions, and late ones, as `Ledger.take` says.

        The former differ from the accepted answer of the same labeler, as it is now corrected. The
        same answer of the same labeler is listed once.
        """
        disputed: dict[tuple[object, ...], Answer] = {}
        late: dict[tuple[object, ...], Answer] = {}
        for row, answer in self._answers(("late",)):
            state, key = self._state(row), (answer.item, answer.slot, answer.labeler, answer.word)
            if state is None or state.stage != "answered" or state.labeler != row.code:
                late.setdefault(key, answer)
            elif state.word != answer.word:
                disputed.setdefault(key, answer)
        return [*disputed.values()], [*late.values()]

    def audited(self, *, now: bool = False) -> dict[str, Word]:
        """What two people said of each item of the audit, else the first; see `audited_by_all`."""
        answers = self.audited_by_all(now=now).items()
        return {item: counted([answer.word for answer in slots]) for item, slots in answers}

    def audited_by_all(self, *, now: bool = False) -> dict[str, list[Answer]]:
        """The answers to each item of the audit, by one person each, by slot, without free texts.

        As corrected before the audit was first shown, without those set aside before. With `now`
        later corrections count as well. None of these counts until there is an answer `again`.
        """
        answers: dict[str, list[Answer]] = {}
        for (surrogate, slot), state in self.accounts.purchases.items():
            if state.purpose != "audit" or state.stage != "answered":
                continue
            is_aside = self.accounts.is_aside(state)
            word = state.measured if state.shown and not now else None if is_aside else state.word
            if word is not None:
                item = str(self.items.identities[surrogate].id)
                labeler = str(self._name(state.labeler))
                item_answers = answers.setdefault(item, [])
                if state.again:
                    item_answers[:] = [answer for answer in item_answers if answer.kind != "none"]
                lease, index = (item, slot, state.token), word if isinstance(word, int) else None
                kind = cast("AnswerKind", word if index is None else "label")
                item_answers.append(Answer(*lease, index, labeler, state.price, kind))
        return answers

    def second_looks(self) -> list[Purchase]:
        """Open leases of audited items that have answers which count, but for those `again`."""
        states, surrogates = self.accounts.purchases, self.items.surrogates
        leases = [lease for lease in self.open_purchases() if lease.purpose == "audit"]
        leases = [p for p in leases if not states[surrogates[p.item], p.slot].again]
        answered = self.audited_by_all() if leases else {}
        return [lease for lease in leases if lease.item in answered]

    @property
    def standing(self) -> dict[str, str]:
        """Whether each labeler was last `set_aside` or `kept`, if either, by name."""
        return {str(self._name(code)): event for code, event in self.accounts.standing.items()}

    @property
    def set_aside(self) -> frozenset[str]:
        """The labelers whose answers are set aside, by name."""
        return frozenset(name for name, event in self.standing.items() if event == "set_aside")

    @property
    def away(self) -> frozenset[str]:
        """The annotators who are away, by name."""
        presence = self.accounts.presence.items()
        return frozenset(str(self._name(code)) for code, event in presence if event == "away")

    @property
    def absent(self) -> frozenset[str]:
        """The annotators who get no new rows: those away or set aside."""
        return self.away | self.set_aside

    def label_of(self, item: str) -> int | None:
        """The label that refits learn of an item whose label was learned; None for none."""
        return self.accounts.learned_labels.get(self.items.surrogates[item])

    def agreement(self) -> list[tuple[Answer, Answer]]:
        """The first two accepted answers to each item that has two, uncorrected, lower slot first.

        Further ones say nothing of agreement, as they are asked for where two differ; nor do items
        of an audit, asked again where people and model differ. A pair with an answer set aside is
        left out. More classes are another question: the pair is of the last that two answered.
        """
        set_aside = self.set_aside
        by_question: dict[tuple[str, int], list[Answer]] = {}
        for row, answer in self._answers(("answered",)):
            if row.purpose == "train":
                state = self._state(row)
                key = (answer.item, 0 if state is None else state.classes_added)
                by_question.setdefault(key, []).append(answer)
        pairs: dict[str, tuple[Answer, Answer]] = {}
        for (item, _), answers in by_question.items():
            first, *further = sorted(answers, key=lambda answer: answer.slot)
            if further and not {first.labeler, further[0].labeler} & set_aside:
                pairs[item] = first, further[0]
        return [*pairs.values()]

    def _answers(self, events: Sequence[str]) -> Iterator[tuple[Row, Answer]]:
        """Every row of one of the `events` with its answer, in order."""
        texts = self.private.texts()
        for row in self.rows(only=events):
            data, index = row.payload, row.payload.get("index")
            kind = cast("AnswerKind", data.get("kind", "label"))
            text, note = texts.get(str(data.get("words")), (None, None))
            token = int(data.get("given", row.token or 0))
            labeler, price = str(row.labeler), row.price or 0
            lease = str(row.item), row.slot or 0, token
            yield row, Answer(*lease, index, labeler, price, kind, text, note)

    def _state(self, row: Row) -> State | None:
        return self.accounts.purchases.get((str(row.surrogate), row.slot or 0))

    # Checks ------------------------------------------------------------------------------------

    def verify(self, heads: Mapping[str, Head] | None = None, *, arrays: bool = False) -> None:
        """Verify the chain on disk and the other tables, and compare it with earlier ends.

        They are those of the saved arrays, and the `heads` that are stored outside the database, by
        the names of their files. With `arrays` damaged ones are an error, too: what restores them
        passes over these.

        Raises:
            LedgerCorrupt: naming the first bad row, or the tail that was cut.
        """
        accounts = Accounts(self.terms.budget, self.terms.money, self.terms.price)
        pages = self._store.pages(-math.inf)  # a row inserted below row 1 is none of the others
        stored: Digests = {}
        with self._store.reading():
            for rows in walk(self.terms.genesis, pages):
                for row in parsed(rows):
                    digest = row.payload.get("words")
                    if digest is not None and row.surrogate is not None:
                        self.private.check(row.surrogate, str(digest), row.seq)
                    for table, digests in row.payload.get(STORED, {}).items():
                        stored.setdefault(table, {}).update(digests)
                accounts.count(rows)
            saved = self.arrays()
            if saved is not None and saved.whole:  # the row after theirs has their digest
                cut = saved.head == self._store.tail()
                name = f"the row of the learner's arrays after row {saved.head.count}"
                end = Head(saved.head.count + 1, "") if cut else saved.head
                heads = {name: end, **(heads or {})}
            for name, head in (heads or {}).items():
                if self.place(head) is None:
                    raise LedgerCorrupt(
                        f"the ledger should have the row {head.count} that it had as {name} says,"
                        f" but has not: it was cut or rewritten, or {name} is of another run;"
                        " restore the one or the other from a copy"
                    )
            expect_digest(self._store)
            check_rows(self._store, one_by_one=True)
            expect_stored(self._store, stored)
            if arrays and saved is not None and not saved.whole:
                raise edited(self._store, ARRAYS, saved.head.count)
        read_state(self._store)

    def arrays(self) -> Saved | None:
        """The learner's saved arrays, which may be damaged; None before the first."""
        return read_arrays(self._store)

    def flush(self) -> None:
        """Commit the pending entries, where a ledger can have any."""


# Rows that are made again ------------------------------------------------------------------------


class Recorded:
    """Rows in their order, each taken once.

    Attributes:
        changed: whether settings, items or classes change behind a decision among the rows.
        stream: whether decisions are those of a stream, which takes items one by one.
    """

    def __init__(self, pages: Iterator[list[Row]], *, changed: bool, stream: bool) -> None:
        self._pages, self.changed, self.stream = pages, changed, stream
        self._blurred = False
        self._rows: deque[Row] = deque()

    @property
    def next(self) -> Row | None:
        """The next row; None behind the last one."""
        return next(self.upcoming(), None)

    @property
    def comparable(self) -> bool:
        """Whether what the next row records comes out the same to the bit.

        Where settings, items or classes have changed since, it does not: a pool chose from other
        items, and a final model was made of others, from which the next refit starts. A stream's
        rounds before such a model do.
        """
        row = self.next
        streamed = self.stream and row is not None and row.event == "round" and not self._blurred
        return not self.changed or streamed

    def upcoming(self) -> Iterator[Row]:
        """The next row and those after it; none of them is taken."""
        number = 0
        while True:
            if number == len(self._rows):
                self._rows.extend(next(self._pages, ()))
            if number == len(self._rows):
                return
            yield self._rows[number]
            number += 1

    def take(self) -> Row:
        """Take the `next` row, which there should be."""
        return self._rows.popleft()

    def same(self, entry: Entry) -> Row:
        """Take the next row, which should be the `entry` that was made again.

        Raises:
            RunError: it is another one.
        """
        row = next(self.upcoming())
        if self.comparable or entry.event not in _COMPUTED:
            differ = values_of(entry)[1:] != values_of(row)[1:]  # all but the time
        else:
            made = (entry.event, entry.round, entry.surrogate)
            differ = made != (row.event, row.round, row.surrogate)
        if differ:
            place = f"round {row.round}" if row.event == "round" else f"row {row.seq} of the ledger"
            replayed = f"the event '{entry.event}' with {entry.text}"
            if entry.event == row.event and entry.surrogate != row.surrogate:
                replayed = "a decision about another item"
            raise RunError(
                f"{place} was recorded as the event '{row.event}' with {row.text}, but the replay"
                f" got {replayed}: the run was made by other versions or on another machine (see"
                " `stacksl status RUN --settings`)"
            )
        self._blurred |= self.changed and bool(row.payload.get("tune"))
        return self._rows.popleft()
