"""The sums over the rows of a chain, by which each further row is allowed or refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import EVENTS, PURPOSES, Entry, canonical
from stacksl.ledger.purchases import AnswerKind, Word

DROPPED: Final = "dropped"  # why a lease was released for good

Key = tuple[str, int]
"""A purchase: the item's surrogate and the slot."""

_OF_PURCHASES: Final = {
    "reserved": ("released",),  # or none before
    "released": ("open",),
    "answered": ("open", "released"),
    "late": ("released", "answered"),
    "corrected": ("answered",),
    "learned": ("answered",),
}
"""The events of a purchase, each with the stages that it may follow."""


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
        """The hash that row 1 of the chain follows; it covers the terms."""
        return sha256(canonical(["stacksl ledger", *astuple(self)]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class State:
    """The current state of one purchase.

    Attributes:
        stage: `open` (leased), `released` (leased before, not now), `answered`.
        token: of its last lease.
        round: the round of its last lease; None where no decision record justifies it.
        price: micro-units, the most it may cost while open, what it cost once answered.
        words: (token, content, hash of the free texts) of every answer, to recognize one that is
            repeated.
        dropped: whether its last lease was dropped: an answer to it comes too late.
        word, labeler, learned_at: of the accepted answer; the word follows corrections.
        corrections: how often the answer was corrected.
        classes_added: how many classes had been added when it was first leased.
        again: whether it was asked for again since a class was added.
        shown: of an audit: whether a result with this answer was shown; `measured` is the answer
            that it was measured by, None where it was left out.
    """

    stage: Literal["open", "released", "answered"]
    token: int
    round: int | None
    purpose: str
    price: int
    words: frozenset[tuple[int, Word, str | None]] = frozenset()
    dropped: bool = False
    word: Word | None = None
    labeler: str | None = None
    learned_at: int | None = None
    corrections: int = 0
    classes_added: int = 0
    again: bool = False
    shown: bool = False
    measured: Word | None = None

    @property
    def index(self) -> int | None:
        """The candidate that the accepted answer names; None where it names none."""
        return self.word if isinstance(self.word, int) else None


@dataclass(slots=True)
class Accounts:
    """The sums over a chain, kept row by row.

    Every counter is a view: `apply` is the one way it changes, for rows being written and for
    rows being read back alike, and `apply` refuses a row that the rows before do not allow.

    Attributes:
        budget: labels; money, price: micro-units (`money` may be None), the price at which a label
            is reserved. A `budget` row changes them.
        asked: labels of purpose `train`, or `again` of an audit, answered and promised.
        answered, reserved: labels paid for, and labels promised, of the purposes that cost.
        paid, promised: the same in money, a promise at the most it may cost.
        last_round: the highest round with a decision record.
        epoch: how often the features were renewed.
        classes, classes_added: K after the last class that was added (None before), and how often.
        doubled: how many items to train on have a second slot.
        looks: how often the audit was looked at to decide whether to stop, the last time when
            labels to train on `looked_at` had been asked for.
        reached: whether the last look lets the run stop; None where its model is no more the last
            one, or what is wanted has changed.
        seen: the surrogates of the items with a decision record.
        learned_labels: by the surrogate of each item whose label was learned, the label that
            refits learn of it now; None where they learn none.
        standing, presence: whether each labeler was last `set_aside` or `kept`, and `away` or
            `back`, if either, by the name in the chain.
    """

    budget: int
    money: int | None
    price: int
    purchases: dict[Key, State] = field(default_factory=dict)
    open: dict[Key, None] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    reserved: int = 0
    paid: int = 0
    promised: int = 0
    last_round: int = 0
    epoch: int = 0
    classes: int | None = None
    classes_added: int = 0
    doubled: int = 0
    looks: int = 0
    looked_at: int = 0
    reached: bool | None = None
    seen: set[str] = field(default_factory=set)
    learned_labels: dict[str, int | None] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)
    presence: dict[str, str] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """Labels answered and open reservations."""
        return self.answered + self.reserved

    @property
    def spent_money(self) -> int:
        """Money paid and promised, in micro-units."""
        return self.paid + self.promised

    @property
    def left(self) -> int:
        """Labels that can still be bought: by the budget in labels, and by the one in money."""
        labels = self.budget - self.spent
        if self.money is not None and self.price > 0:
            labels = min(labels, (self.money - self.spent_money) // self.price)
        return max(labels, 0)

    @property
    def further(self) -> int:
        """Labels of audits, answered or promised, beyond the first of each item."""
        return sum(
            key[1] > 0 and state.purpose == "audit" and state.stage != "released"
            for key, state in self.purchases.items()
            if not state.again
        )

    def affords(self, price: int) -> bool:
        """Whether one more label at `price` stays within both budgets."""
        if self.spent + 1 > self.budget:
            return False
        return self.money is None or self.spent_money + price <= self.money

    def count(self, entries: Iterable[Entry]) -> None:
        """Count further rows.

        Raises:
            LedgerCorrupt: an event is unknown, or the rows before one do not allow it.
        """
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Count one more row; see `count`."""
        if entry.event not in EVENTS or entry.purpose not in (None, *PURPOSES):
            raise impossible(entry, "there is no such event or purpose")
        if entry.event in _OF_PURCHASES:
            if entry.surrogate is None or entry.slot is None or entry.token is None:
                raise impossible(entry, "it names no purchase")
            self._apply_to((entry.surrogate, entry.slot), entry)
            return
        match entry.event:
            case "round":
                self.last_round = max(self.last_round, entry.round or 0)
                if entry.surrogate is not None:
                    self.seen.add(entry.surrogate)
            case "refreshed":
                if entry.number != self.epoch + 1:
                    raise impossible(entry, "its epoch does not follow the last one")
                self.epoch = entry.number
            case "refit":
                self.reached = None
            case "looked":
                if entry.number != self.looks + 1:
                    raise impossible(entry, "its number does not follow the last one")
                self.looks, self.looked_at = entry.number, self.asked
                self.reached = bool(entry.payload.get("reached"))
            case "settings" if "stop_when" in entry.payload:
                self.reached, self.looked_at = None, 0
            case "budget":
                self.reached = None if self.reached is None else False  # more is to be bought
                labels, money = whole_of(entry, "budget"), entry.payload.get("money")
                money = None if money is None else whole_of(entry, "money")
                if labels < self.spent or (money is not None and money < self.spent_money):
                    raise impossible(entry, "it is below what is spent")
                self.budget, self.money = labels, money
            case "class_added":
                size = whole_of(entry, "size")
                if entry.number != self.classes_added + 1 or size <= (self.classes or 0):
                    raise impossible(entry, "it does not follow the class that was added last")
                self.classes, self.classes_added = size, entry.number
            case "set_aside" | "kept":
                self.standing[str(entry.code)] = entry.event
            case "away" | "back":
                self.presence[str(entry.code)] = entry.event
            case "shown":
                for key, state in self.purchases.items():
                    if state.purpose == "audit" and state.stage == "answered" and not state.shown:
                        measured = None if self.is_aside(state) else state.word
                        self.purchases[key] = replace(state, shown=True, measured=measured)
            case "relabeled":
                surrogate, index = entry.surrogate, entry.payload.get("index")
                if surrogate not in self.learned_labels or index != self.label_of(surrogate):
                    raise impossible(entry, "the answers to its item do not give that label")
                self.learned_labels[surrogate] = index

    def _apply_to(self, key: Key, entry: Entry) -> None:
        state = self.purchases.get(key)
        if state is None and entry.event == "reserved":
            purpose, added = entry.purpose or "train", self.classes_added
            state = State("released", 0, None, purpose, 0, classes_added=added)
        if state is None or state.stage not in _OF_PURCHASES[entry.event]:
            stage = "was never made" if state is None else f"is {state.stage}"
            raise impossible(entry, f"its purchase {stage}")
        if entry.purpose is not None and entry.purpose != state.purpose:
            raise impossible(entry, f"its purchase is for '{state.purpose}'")
        match entry.event:
            case "reserved":
                new_state = self._leased(key, state, entry)
            case "released":
                self._close(key, state)
                dropped = entry.payload.get("reason") == DROPPED
                new_state = replace(state, stage="released", dropped=dropped)
            case "answered":
                new_state = self._answered(key, state, entry)
            case "late":
                new_state = replace(state, words=state.words | {word_of(entry)})
            case "corrected":
                if entry.number != state.corrections + 1:
                    raise impossible(entry, "its number does not follow the last one")
                word = word_of(entry)
                is_remeasured = entry.payload.get("named") and state.measured is not None
                new_state = replace(
                    state,
                    word=word[1],
                    words=state.words | {word},
                    measured=word[1] if is_remeasured else state.measured,
                    corrections=entry.number,
                )
            case _:  # learned
                if state.learned_at is not None or key[0] in self.learned_labels:
                    raise impossible(entry, "it was learned before")
                if not self.is_learnable(state):
                    raise impossible(entry, "its answer cannot be learned")
                new_state = replace(state, learned_at=entry.micros)
                self.learned_labels[key[0]] = state.index
        self.purchases[key] = new_state

    def _leased(self, key: Key, state: State, entry: Entry) -> State:
        """Promise a label; the purchase after it."""
        if entry.token != state.token + 1:
            raise impossible(entry, "its token does not follow the last one")
        price, token = price_of(entry), state.token + 1
        self._expect_payable(entry, price)
        again = state.again or (state.classes_added > 0 and "again" in entry.payload)
        lease = State("open", token, entry.round, state.purpose, price, state.words)
        lease = replace(lease, classes_added=state.classes_added, again=again)
        self.open[key] = None
        self.doubled += token == 1 and key[1] == 1 and state.purpose == "train"
        self._promise(lease, 1)
        return lease

    def _answered(self, key: Key, state: State, entry: Entry) -> State:
        """Pay for an answer; the purchase after it."""
        paid, word = price_of(entry), word_of(entry)
        if paid > state.price:
            raise impossible(entry, "it cost more than was reserved")
        if state.stage == "open":
            self._close(key, state)
        else:
            self._expect_payable(entry, paid)
        if state.purpose != "owned":
            self.answered += 1
            self.paid += paid
            self.asked += state.again or state.purpose == "train"
        answered = replace(state, stage="answered", price=paid, words=state.words | {word})
        return replace(answered, word=word[1], labeler=entry.code)

    def _expect_payable(self, entry: Entry, price: int) -> None:
        """An owned label costs nothing; any other must fit."""
        if entry.purpose == "owned":
            if price:
                raise impossible(entry, "an owned label costs nothing")
        elif not self.affords(price):
            raise impossible(entry, "the budget is spent")

    def _close(self, key: Key, state: State) -> None:
        del self.open[key]
        self._promise(state, -1)

    def _promise(self, state: State, sign: int) -> None:
        if state.purpose != "owned":
            self.reserved += sign
            self.promised += sign * state.price
            self.asked += sign * (state.again or state.purpose == "train")

    # What refits learn ------------------------------------------------------------------------

    def label_of(self, item: str) -> int | None:
        """The label that refits should learn of an item (by its surrogate); None for none.

        That of the answer that was learned first, else of the first slot that can be learned.
        """
        slots = [state for _, state in self.slots(item) if self.is_learnable(state)]
        slots.sort(key=lambda state: state.learned_at is None)
        return slots[0].index if slots else None

    def slots(self, item: str) -> list[tuple[Key, State]]:
        """The purchases of an item, by its surrogate, in the order of their slots."""
        purchases: list[tuple[Key, State]] = []
        while (state := self.purchases.get((item, len(purchases)))) is not None:
            purchases.append(((item, len(purchases)), state))
        return purchases

    def is_learnable(self, state: State) -> bool:
        """Whether an answer can be learned: it names a candidate, of nobody who is set aside."""
        if state.stage != "answered" or state.index is None or state.purpose == "audit":
            return False
        return not self.is_aside(state)

    def is_aside(self, state: State) -> bool:
        """Whether an answer is of a labeler who is set aside."""
        return state.stage == "answered" and self.standing.get(state.labeler or "") == "set_aside"


def price_of(entry: Entry) -> int:
    """The price of a row, in micro-units; 0 where it has none.

    Raises:
        LedgerCorrupt: it is negative.
    """
    price = entry.price or 0
    if price < 0:
        raise impossible(entry, f"its price is {price}, not 0 micro-units or more")
    return price


def whole_of(entry: Entry, name: str) -> int:
    """An integer of the row's payload.

    Raises:
        LedgerCorrupt: it is not an integer.
    """
    number = entry.payload.get(name)
    if type(number) is not int:
        raise impossible(entry, f"its {name} is {number!r}, not a whole number")
    return number


def word_of(entry: Entry) -> tuple[int, Word, str | None]:
    """The lease of an answer, its content, and the hash of its free texts.

    Raises:
        LedgerCorrupt: the row holds no valid answer.
    """
    data = entry.payload
    token = whole_of(entry, "given") if "given" in data else entry.token or 0
    texts = data.get("words")
    word: Any = data.get("index", data.get("kind"))
    if type(word) is int or word in get_args(AnswerKind)[1:]:
        return token, word, texts if isinstance(texts, str) else None
    raise impossible(entry, f"its index is {data.get('index')!r}, not a whole number")


def impossible(entry: Entry, why: str) -> LedgerCorrupt:
    """The error for a row that the rows before it do not allow."""
    return LedgerCorrupt(
        f"the ledger cannot hold the event '{entry.event}' of round {entry.round}, "
        f"token {entry.token}: {why}; restore the file from a copy"
    )
