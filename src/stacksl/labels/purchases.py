"""The words of buying a label: a purchase, its answer, and the item they speak of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Answer", "Head", "ItemRecord", "Purchase", "Purpose"]

Purpose = Literal["train", "audit", "owned"]


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item as the ledger knows it: its id and a text that it can be recognised by.

    Attributes:
        id: the item's id, unique within the run.
        content: a canonical text of the prompt and its candidates, and of its answer where that
            is the file's own. The ledger never stores it, only a hash of it with a salt of its
            own.
        size: K, the number of candidates, or None where it is not known; an answer outside
            [0, K) is refused.
    """

    id: str
    content: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Purchase:
    """A lease: one label that was paid for in advance and may be answered.

    Attributes:
        item, slot: what is bought; the slot tells several labels of one item apart.
        token: the fencing token. Every new lease of the same (item, slot) raises it by one.
        round: the round whose certificate justifies it.
        purpose: `train`, `audit` or `owned`.
        price: the most it may cost, in micro-units of money.
    """

    item: str
    slot: int
    token: int
    round: int
    purpose: Purpose
    price: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a labeler says about a purchase.

    Attributes:
        item, slot, token: the purchase that is answered, by the token it was asked with.
        index: the answer, an index into the item's full list of candidates.
        labeler: who answered.
        price: what it cost, in micro-units of money; at most the purchase's price.
    """

    item: str
    slot: int
    token: int
    index: int
    labeler: str
    price: int = 0


class Head(NamedTuple):
    """The end of the chain: how many rows it has, and the hash of the last one."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    hash: str
