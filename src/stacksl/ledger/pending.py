"""Pending entries: counted in the accounts, not yet written to the chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Entry
from stacksl.ledger.purchases import Answer, Purchase, Purpose
from stacksl.ledger.state import Key, State
from stacksl.ledger.store.items import Items
from stacksl.ledger.store.private import PrivateTables


@dataclass(slots=True)
class Pending:
    """Entries that are counted but not yet chained, with the accounts and tables they change.

    Attributes:
        accounts: the sums over all rows and the entries.
        items: the run's items.
        private: the private tables beside the chain.
        clock: gives seconds since the epoch.
        entries: the entries to be written, in order.
    """

    accounts: Accounts
    items: Items
    private: PrivateTables
    clock: Callable[[], float]
    entries: list[Entry] = field(default_factory=list)

    def record(self, event: str, **fields: Any) -> None:
        """Count an entry and keep it to be written."""
        entry = Entry(time=int(self.clock() * 1e6), event=event, **fields)
        self.accounts.apply(entry)
        self.entries.append(entry)

    def record_of(self, key: Key, state: State, event: str, **fields: Any) -> None:
        """`record` of a purchase: its round, its purpose, and its last lease unless given."""
        fields = {"token": state.token, **fields}
        item, slot = key
        self.record(event, round=state.round, item=item, slot=slot, purpose=state.purpose, **fields)

    def state(self, item: str, slot: int) -> State | None:
        """The current state of a purchase, or None if it was never made."""
        return self.accounts.purchases.get((self.items.surrogate(item), slot))

    def slots(self, item: str) -> int:
        """How many slots of an item were ever leased."""
        return len(self.accounts.slots(self.items.surrogate(item)))

    def size(self, item: str) -> int | None:
        """K of an item, if known, added classes included."""
        size = self.items.size(self.items.surrogate(item))
        return size if self.accounts.classes is None else self.accounts.classes

    def purchase(self, key: Key) -> Purchase | None:
        """The last lease of a purchase; None where its item is no longer known."""
        item, state = self.items.id(key[0]), self.accounts.purchases[key]
        if item is None:
            return None
        purpose = next(p for p in get_args(Purpose) if p == state.purpose)
        return Purchase(item, key[1], state.token, state.round or 0, purpose, state.price)

    def words(self, answer: Answer) -> str | None:
        """The salted hash of the free texts of an answer; None where it has none."""
        surrogate = self.items.surrogate(answer.item)
        return self.items.words(surrogate, answer.text, answer.note)

    def is_recorded(self, answer: Answer) -> bool:
        """Whether the same answer was recorded before, accepted or late."""
        state = self.state(answer.item, answer.slot)
        if state is None:
            return False
        return (answer.token, answer.word, self.words(answer)) in state.words

    def answers_open_lease(self, answer: Answer) -> bool:
        """Whether the answer is on its purchase's open lease, or was recorded before."""
        state = self.state(answer.item, answer.slot)
        return self.is_recorded(answer) or (
            state is not None and state.stage == "open" and state.token == answer.token
        )
