"""What the rows of a chain add up to: purchases, what they cost, what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.labels.rows import EVENTS, LATER_EVENTS, LATER_PURPOSES, Entry

__all__ = ["Accounts", "Key", "State", "refuse_later"]

Key = tuple[str, int]
"""A purchase: the item's surrogate and the slot."""


@dataclass(frozen=True, slots=True)
class State:
    """One purchase as it stands.

    Attributes:
        stage: `open` (leased), `released` (leased before, not now), `answered`.
        token: of its last lease.
        round: the round of its last lease.
        price: micro-units, the most it may cost while open, what it cost once answered.
        labels: every (token, index) that came, so that one that comes twice is known.
        late: answers kept without being charged.
        index, labeler, learnt_at: of the accepted answer; the index follows corrections.
        corrections: how often the answer was corrected.
    """

    stage: Literal["open", "released", "answered"]
    token: int
    round: int | None
    purpose: str
    price: int
    labels: frozenset[tuple[int, int]] = frozenset()
    late: int = 0
    index: int | None = None
    labeler: str | None = None
    learnt_at: int | None = None
    corrections: int = 0


@dataclass(slots=True)
class Accounts:
    """The sums over a chain, kept row by row.

    Every counter is a view: `apply` is the one way it changes, for rows being written and for
    rows being read back alike, and `apply` refuses a row that the rows before do not allow.

    Attributes:
        budget: labels; money, price: micro-units (`money` may be None).
        answered, reserved: labels paid for, and labels promised.
        paid, promised: the same in money, a promise at the most it may cost.
        learnt: labels handed to the learner.
        last_round: the highest round with a certificate.
        epoch: how often the features were renewed.
        seen: the surrogates of the items with a certificate.
    """

    budget: int
    money: int | None
    price: int
    purchases: dict[Key, State] = field(default_factory=dict)
    open: dict[Key, None] = field(default_factory=dict)
    answered: int = 0
    reserved: int = 0
    paid: int = 0
    promised: int = 0
    learnt: int = 0
    last_round: int = 0
    epoch: int = 0
    seen: set[str] = field(default_factory=set)
    _undo: dict[Key, State | None] | None = None
    _fresh: list[str] = field(default_factory=list)

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

    def affords(self, price: int) -> bool:
        """Whether one more label at `price` stays within both budgets."""
        fits = self.money is None or self.spent_money + price <= self.money
        return fits and self.spent + 1 <= self.budget

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Whatever is applied inside is taken back if the block raises."""
        sums = (self.answered, self.reserved, self.paid, self.promised)
        rest = (self.learnt, self.last_round, self.epoch, dict(self.open))
        self._undo, self._fresh = {}, []
        try:
            yield
        except BaseException:
            self._take_back(self._undo, self._fresh)
            self.answered, self.reserved, self.paid, self.promised = sums
            self.learnt, self.last_round, self.epoch, self.open = rest
            raise
        finally:
            self._undo = None

    def _take_back(self, undo: dict[Key, State | None], fresh: list[str]) -> None:
        self.seen.difference_update(fresh)
        for key, state in undo.items():
            if state is None:
                del self.purchases[key]
            else:
                self.purchases[key] = state

    def apply(self, entry: Entry) -> None:
        """Count one more row.

        Raises:
            LedgerError: the row's event or purpose is not read by this version.
            LedgerCorrupt: the rows before do not allow it.
        """
        refuse_later(entry.event, entry.purpose)
        if entry.event == "round":
            self._certified(entry)
        elif entry.event == "refreshed":
            self._refreshed(entry)
        elif entry.event in _EFFECTS:
            if entry.item is None or entry.slot is None or entry.token is None:
                raise self._impossible(entry, "it names no purchase")
            _EFFECTS[entry.event](self, (entry.item, entry.slot), entry)

    def _certified(self, entry: Entry) -> None:
        self.last_round = max(self.last_round, entry.round or 0)
        if entry.item is not None and entry.item not in self.seen:
            self.seen.add(entry.item)
            self._fresh.append(entry.item)

    def expect_epoch(self, entry: Entry) -> None:
        """Hold a certificate against the epoch that it names.

        Raises:
            LedgerCorrupt: the rows before it make another.
        """
        named = self._whole(entry, "epoch", 0)
        if named != self.epoch:
            raise self._impossible(entry, f"it names epoch {named} in epoch {self.epoch}")

    def _refreshed(self, entry: Entry) -> None:
        if entry.number != self.epoch + 1:
            raise self._impossible(entry, "its epoch does not follow the last one")
        self.epoch = entry.number

    def _reserved(self, key: Key, entry: Entry) -> None:
        before = self.purchases.get(key)
        if before is not None and before.stage != "released":
            raise self._impossible(entry, f"its purchase is {before.stage}")
        if entry.token != (before.token if before else 0) + 1:
            raise self._impossible(entry, "its token does not follow the last one")
        price = self._price(entry)
        if not self.affords(price):
            raise self._impossible(entry, "the budget is spent")
        fresh = State("open", entry.token or 1, entry.round, entry.purpose or "train", price)
        if before is not None:
            fresh = replace(fresh, labels=before.labels, late=before.late)
        self._put(key, fresh)
        self.open[key] = None
        self.reserved += 1
        self.promised += price

    def _released(self, key: Key, entry: Entry) -> None:
        before = self._at(key, entry, "open")
        self._close(key, before)
        self._put(key, replace(before, stage="released"))

    def _answered(self, key: Key, entry: Entry) -> None:
        before = self._at(key, entry, "open", "released")
        paid, index = self._price(entry), self._whole(entry, "index")
        given = self._whole(entry, "given", entry.token)
        if paid > before.price:
            raise self._impossible(entry, "it cost more than was reserved")
        if before.stage == "open":
            self._close(key, before)
        elif not self.affords(paid):
            raise self._impossible(entry, "the budget is spent")
        labels = before.labels | {(given, index)}
        self._put(
            key,
            replace(
                before,
                stage="answered",
                price=paid,
                labels=labels,
                index=index,
                labeler=entry.labeler,
            ),
        )
        self.answered += 1
        self.paid += paid

    def _late(self, key: Key, entry: Entry) -> None:
        before = self._at(key, entry, "released", "answered")
        labels = before.labels | {(entry.token or 0, self._whole(entry, "index"))}
        self._put(key, replace(before, labels=labels, late=before.late + 1))

    def _corrected(self, key: Key, entry: Entry) -> None:
        before = self._at(key, entry, "answered")
        if entry.number != before.corrections + 1:
            raise self._impossible(entry, "its number does not follow the last one")
        index = self._whole(entry, "index")
        self._put(key, replace(before, index=index, corrections=entry.number))

    def _learnt(self, key: Key, entry: Entry) -> None:
        before = self._at(key, entry, "answered")
        if before.learnt_at is not None:
            raise self._impossible(entry, "it was learnt before")
        self._put(key, replace(before, learnt_at=entry.time))
        self.learnt += 1

    def _at(self, key: Key, entry: Entry, *stages: str) -> State:
        state = self.purchases.get(key)
        if state is None or state.stage not in stages:
            was = "was never made" if state is None else f"is {state.stage}"
            raise self._impossible(entry, f"its purchase {was}")
        return state

    def _close(self, key: Key, state: State) -> None:
        del self.open[key]
        self.reserved -= 1
        self.promised -= state.price

    def _put(self, key: Key, state: State) -> None:
        if self._undo is not None:
            self._undo.setdefault(key, self.purchases.get(key))
        self.purchases[key] = state

    def _price(self, entry: Entry) -> int:
        price = entry.price or 0
        if not isinstance(price, int) or price < 0:
            raise self._impossible(entry, f"its price is {price!r}, not 0 micro-units or more")
        return price

    def _whole(self, entry: Entry, name: str, otherwise: int | None = None) -> int:
        """An integer of the row's payload."""
        number = entry.data().get(name, otherwise)
        if not isinstance(number, int):
            raise self._impossible(entry, f"its {name} is {number!r}, not a whole number")
        return number

    @staticmethod
    def _impossible(entry: Entry, why: str) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"the ledger cannot hold the event '{entry.event}' of round {entry.round}, "
            f"token {entry.token}: {why}; restore the file from a copy"
        )


_EFFECTS: dict[str, Callable[[Accounts, Key, Any], None]] = {
    "reserved": Accounts._reserved,
    "released": Accounts._released,
    "answered": Accounts._answered,
    "late": Accounts._late,
    "corrected": Accounts._corrected,
    "learnt": Accounts._learnt,
}


def refuse_later(event: str, purpose: str | None) -> None:
    """Stop at what this version neither writes nor replays.

    Raises:
        LedgerError: naming the event or the purpose.
    """
    if event not in EVENTS:
        raise LedgerCorrupt(f"the ledger knows the events {', '.join(EVENTS)}; came '{event}'")
    if event in LATER_EVENTS:
        raise LedgerError(
            f"rows of event '{event}' are not written or replayed by this version: "
            "use the version that wrote the ledger"
        )
    if purpose in LATER_PURPOSES:
        raise LedgerError(
            f"purchases of purpose '{purpose}' are not written or replayed by this version: "
            "use the version that wrote the ledger"
        )
