"""The words of buying a label: a purchase, its answer, and the item they speak of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from stacksl.types import Decision, Label

Purpose = Literal["train", "audit", "owned"]
Outcome = Literal["accepted", "repeated", "late", "disputed"]
Said = Literal["label", "none", "ambiguous", "broken"]

Word = int | str
"""What an answer says: the index of a candidate, or one of the other words of `Said`."""


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
        round: the round whose certificate justifies it; 0 where none does (audit, owned).
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
        index: the answer, an index into the item's full list of candidates; None unless `said`
            is `label`.
        labeler: who answered.
        price: what it cost, in micro-units of money; at most the purchase's price.
        said: `label` (one of the candidates), `none` (of the candidates is right), `ambiguous`
            (the item), or `broken` (the item). Each is charged once; only a label is learnt.
        text: the right text, where none of the candidates is it.
        note: anything the labeler wants to say.
    """

    item: str
    slot: int
    token: int
    index: int | None
    labeler: str
    price: int = 0
    said: Said = "label"
    text: str | None = None
    note: str | None = None

    @property
    def word(self) -> Word:
        """What it says: the candidate's index, or which other answer it is."""
        return self.said if self.index is None else self.index


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one answer that was given to the ledger.

    Attributes:
        answer: as it was taken.
        outcome: `accepted` (and charged), `repeated` (it says what was recorded before), `late`
            (it cannot be paid any more) or `disputed` (it contradicts the accepted answer). The
            last two are kept uncharged, and so is a repetition with other free texts.
        lesson: the certificate and the label to be learnt; None where nothing is to be learnt:
            of an audit, of an answer that names no candidate, of an item that was learnt before.
    """

    answer: Answer
    outcome: Outcome
    lesson: tuple[Decision, Label] | None = None


@dataclass(frozen=True, slots=True)
class Dispute:
    """An answer that came and was not charged, beside the one that was.

    Attributes:
        accepted: the purchase's accepted answer; None where it has none (the answer came too late
            to be paid).
        came: the answer that was kept uncharged.
    """

    accepted: Answer | None
    came: Answer


@dataclass(frozen=True, slots=True)
class Handed:
    """One lease as it was handed to a person: a row of a sheet.

    Attributes:
        key: the row's short key, unique within the run.
        item, slot, token: the lease.
        annotator: who got it, by name.
        sheet: the number of the sheet.
        order: the item's candidates in the order in which they were shown, by their indices.
    """

    key: str
    item: str
    slot: int
    token: int
    annotator: str
    sheet: int
    order: tuple[int, ...]


class Head(NamedTuple):
    """The end of the chain: how many rows it has, and the hash of the last one."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    hash: str
