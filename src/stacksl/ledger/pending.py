"""The book with entries that are counted but not chained yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from stacksl.ledger.accounts import Accounts
from stacksl.ledger.events import Entry
from stacksl.ledger.purchases import Answer, Purchase, Purpose
from stacksl.ledger.state import Key, State
from stacksl.ledger.store.items import Register
from stacksl.ledger.store.private import Annex


@dataclass(slots=True)
class Drafts:
    """The book with entries that are counted but not chained yet.

    Attributes:
        accounts: what all rows and the entries add up to.
        register: the items.
        annex: what lies beside the chain.
        clock: gives seconds since the epoch.
        entries: what waits to be written, in order.
    """

    accounts: Accounts
    register: Register
    annex: Annex
    clock: Callable[[], float]
    entries: list[Entry] = field(default_factory=list)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """What is recorded inside is taken back if the block raises."""
        before = len(self.entries)
        try:
            with self.accounts.tentative(), self.annex.tentative():
                yield
        except BaseException:
            del self.entries[before:]
            raise

    def record(self, event: str, **fields: Any) -> None:
        """Count an entry and keep it for writing."""
        entry = Entry(time=int(self.clock() * 1e6), event=event, **fields)
        self.accounts.apply(entry)
        self.entries.append(entry)

    def state(self, item: str, slot: int) -> State | None:
        """A purchase as it stands, or None if it was never made."""
        return self.accounts.purchases.get((self.register.surrogate(item), slot))

    def slots(self, item: str) -> int:
        """How many slots of an item were ever leased."""
        surrogate, count = self.register.surrogate(item), 0
        while (surrogate, count) in self.accounts.purchases:
            count += 1
        return count

    def size(self, item: str) -> int | None:
        """K of an item, if known; with every class that was added."""
        size = self.register.size(self.register.surrogate(item))
        return size if self.accounts.classes is None else self.accounts.classes

    def purchase(self, key: Key) -> Purchase | None:
        """The last lease of a purchase; None where its item is not known any more."""
        item, state = self.register.id(key[0]), self.accounts.purchases[key]
        if item is None:
            return None
        purpose = next(p for p in get_args(Purpose) if p == state.purpose)
        return Purchase(item, key[1], state.token, state.round or 0, purpose, state.price)

    def words(self, answer: Answer) -> str | None:
        """The salted hash of the free texts of an answer; None where it has none."""
        surrogate = self.register.surrogate(answer.item)
        return self.register.words(surrogate, answer.text, answer.note)

    def came_before(self, answer: Answer) -> bool:
        """Whether this very answer was recorded already, accepted or late."""
        state = self.state(answer.item, answer.slot)
        if state is None:
            return False
        return (answer.token, answer.word, self.words(answer)) in state.words

    def answers_open_lease(self, answer: Answer) -> bool:
        """Whether the answer came, or comes, on the lease it was asked with."""
        state = self.state(answer.item, answer.slot)
        return self.came_before(answer) or (
            state is not None and state.stage == "open" and state.token == answer.token
        )
