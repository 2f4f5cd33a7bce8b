"""The interface of those who know the answers: at once, tomorrow, twice or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from stacksl.ledger.purchases import Answer, Purchase
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Request(Purchase):
    """A purchase with what is to be answered.

    Attributes:
        prompt: what the item asks.
        candidates: what can be answered, in the order in which it is shown.
        order: for each of them its index in the item's own list, which an `Answer` names.
    """

    prompt: str
    candidates: tuple[str, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, purchase: Purchase, item: Item, order: tuple[int, ...]) -> Request:
        """The request for a purchase of `item`, whose candidates are shown in this `order`."""
        p, candidates = purchase, tuple(item.candidates[index] for index in order)
        about = (p.item, p.slot, p.token, p.round, p.purpose, p.price)
        return cls(*about, item.prompt, candidates, order)

    def answer(self, position: int, labeler: str, price: int = 0) -> Answer:
        """The answer that the candidate shown at `position` is the right one."""
        return Answer(self.item, self.slot, self.token, self.order[position], labeler, price)


class Pending(NamedTuple):
    """Where answers are waited for: a `place`, such as the path of a sheet, and how many."""

    place: str
    open: int


@runtime_checkable
class Labeler(Protocol):
    """One who can be asked for labels.

    Attributes:
        name: as it stands in the ledger.
        repeatable: gives the same answer again, for free. Its answers need not be on disk before
            they are learnt from.
    """

    name: str
    repeatable: bool

    def ask(self, requests: Sequence[Request]) -> None:
        """Ask for labels; asking again with the same token asks nothing new."""
        ...

    def answers(self) -> list[Answer]:
        """What was answered since the last call: perhaps nothing, perhaps out of order."""
        ...

    def pending(self) -> list[Pending]:
        """Where answers are waited for; called when the run can go on with answers alone.

        Whoever gathers what is asked sends it now. A labeler that answers at once waits for none.
        """
        ...
