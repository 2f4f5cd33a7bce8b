"""The protocol of labelers, whose answers may be late, repeated or missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from stacksl.ledger.purchases import Answer, Purchase
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Request(Purchase):
    """A purchase with the question to be answered.

    Attributes:
        prompt: the item's prompt.
        candidates: the possible answers; an `Answer` names one by its index.
    """

    prompt: str
    candidates: tuple[str, ...]


def requests_of(purchases: Iterable[tuple[Purchase, Item]]) -> list[Request]:
    """The requests for purchases, each given with its item."""
    return [
        Request(p.item, p.slot, p.token, p.round, p.purpose, p.price, item.prompt, item.candidates)
        for p, item in purchases
    ]


class Pending(NamedTuple):
    """The number of open answers at a `place`, such as the path of a sheet, and `why`, if known."""

    place: str
    open: int
    why: str = ""


@runtime_checkable
class Labeler(Protocol):
    """A source of labels: a person, a file, a model.

    Attributes:
        name: its name in the ledger.
        repeatable: gives the same answer again, for free. Its answers need not be on disk before
            they are learned from.
    """

    name: str
    repeatable: bool

    def ask(self, requests: Sequence[Request]) -> None:
        """Ask for labels; asking again with the same token asks nothing new."""

    def answers(self) -> Iterable[Answer]:
        """The answers since the last call, in any order; perhaps none.

        A list is entered at once. Of an iterator each answer is on disk before the next one is
        asked for: so should a labeler give answers that it cannot give again.
        """

    def pending(self) -> list[Pending]:
        """Where answers are open; called when the run cannot go on without answers.

        A labeler that collects requests sends them now. One that answers at once returns [].
        """
