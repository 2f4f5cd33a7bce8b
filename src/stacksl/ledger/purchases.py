"""The types of buying a label: item, purchase, answer, receipt, dispute; what an answer must be.

Only the answer itself is validated here; the ledger checks that its purchase exists.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from stacksl.errors import LabelerError, kind_of
from stacksl.types import Decision, Label

Purpose = Literal["train", "audit", "owned"]
Outcome = Literal["accepted", "repeated", "late", "disputed"]
AnswerKind = Literal["label", "none", "ambiguous", "broken"]
Skip = Literal["unsure", "unfamiliar", "upsetting", "other"]  # why somebody passes a row on

Word = int | str
"""The content of an answer: the index of a candidate, or one of the other kinds of `AnswerKind`."""


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item as a run's database keeps it, with all that its file says of it.

    Attributes:
        id: the item's id, unique within the run.
        prompt: its text.
        size: K, the number of candidates; an answer outside [0, K) is refused.
        candidates: their texts; None for the run's classes.
        answer: the file's own, an index of the candidates, where it has one.
        unknown: an answer of the file that is none of the candidates.
        model: the class that a model gave it, where one did.
        part: the number of the file that it was in.
    """

    id: str
    prompt: str
    size: int
    candidates: Sequence[str] | None = None
    answer: int | None = None
    unknown: str | None = None
    model: int | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class Purchase:
    """A lease: one label that is reserved and may be answered.

    Attributes:
        item, slot: what is bought; the slot distinguishes several labels of one item.
        token: the fencing token. Every new lease of the same (item, slot) raises it by one.
        round: the round whose decision justifies it; 0 where there is none, as for all purposes
            but `train`.
        purpose: `train`, `audit` or `owned`.
        price: the most it may cost, in micro-units of money.
    """

    item: str
    slot: int
    token: int
    round: int
    purpose: Purpose
    price: int

    def answer(self, index: int | None, labeler: str, price: int = 0) -> Answer:
        """The answer that the candidate of this index is the right one, or that none is."""
        kind: AnswerKind = "none" if index is None else "label"
        return Answer(self.item, self.slot, self.token, index, labeler, price, kind)


@dataclass(frozen=True, slots=True)
class Answer:
    """A labeler's answer to a purchase.

    Attributes:
        item, slot, token: the purchase that is answered, by the token it was asked with.
        index: the answer, an index into the item's full list of candidates; None unless `kind`
            is `label`.
        labeler: who answered.
        price: what it cost, in micro-units of money; at most the purchase's price.
        kind: `label` (one of the candidates), `none` (of the candidates is right), `ambiguous`
            (the item), or `broken` (the item). Each is charged once; only a label is learned.
        text: the right text, where none of the candidates is it.
        note: any remark of the labeler.
    """

    item: str
    slot: int
    token: int
    index: int | None
    labeler: str
    price: int = 0
    kind: AnswerKind = "label"
    text: str | None = None
    note: str | None = None

    @property
    def word(self) -> Word:
        """The candidate's index, or the kind of another answer."""
        return self.kind if self.index is None else self.index


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one answer that the ledger took.

    Attributes:
        answer: as it was taken.
        outcome: `accepted` (and charged), `repeated` (the same was recorded before), `late`
            (somebody else's was accepted before, or no budget is left) or `disputed` (it
            contradicts the accepted answer of the same labeler). The last two are kept uncharged,
            and so is a repetition with other free texts.
        example: the decision and the label to be learned; None where nothing is to be learned:
            of an item that measures or was learned before, of an answer that names no candidate.
        relabels: whether refits learn it in place of a label that was withdrawn.
    """

    answer: Answer
    outcome: Outcome
    example: tuple[Decision, Label] | None = None
    relabels: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """One lease as handed out to a person: a row of a sheet.

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

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    hash: str


def settled(answers: Sequence[Word]) -> Word | None:
    """What two people said, of one answer each in their order; None while no two agree."""
    return next((word for i, word in enumerate(answers) if word in answers[:i]), None)


def counted(answers: Sequence[Word]) -> Word:
    """The answer that counts: what two people said, else the first."""
    return answers[0] if (agreed := settled(answers)) is None else agreed


def whole(value: object, name: str) -> int:
    """`value` as a plain integer; 0.9 is not 0, and 2.0 is not 2.

    Raises:
        LabelerError: it is not an integer.
    """
    try:
        return operator.index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]  # TypeError is handled
    except TypeError:
        raise LabelerError(
            f"{name} should be a whole number, got {value!r}: a labeler answers in integers"
        ) from None


def whole_answer(answer: Answer) -> Answer:
    """The answer with plain integers for its numbers, and None for free texts that are empty.

    Raises:
        LabelerError: a number is not whole, the price is negative, or index, free texts and the
            kind of the answer do not belong together.
    """
    if not isinstance(answer, Answer):
        raise LabelerError(
            "a labeler should give answers made by `request.answer(...)`, got"
            f" {kind_of(answer)}: correct its `answers`, then resume"
        )
    whose = f"of the answer to item '{answer.item}' by '{answer.labeler}'"
    slot, token, price = (
        whole(getattr(answer, name), f"the {name} {whose}") for name in ("slot", "token", "price")
    )
    if answer.kind not in get_args(AnswerKind):
        raise LabelerError(
            f"the kind {whose} should be one of {', '.join(get_args(AnswerKind))}, got another: "
            "use one of these"
        )
    is_label = answer.kind == "label"
    index = whole(answer.index, f"the index {whose}") if is_label else None
    text, note = (_free(getattr(answer, name), f"the {name} {whose}") for name in ("text", "note"))
    if index != answer.index or (text is not None and answer.kind != "none"):
        raise LabelerError(
            f"the index {whose} belongs only to kind='label' and the right text only to"
            f" kind='none', got '{answer.kind}': leave them out, or put the text in the note"
        )
    if price < 0:
        raise LabelerError(
            f"the price {whose} should be 0 micro-units or more, got {price}: a labeler never pays"
        )
    return Answer(answer.item, slot, token, index, answer.labeler, price, answer.kind, text, note)


def _free(text: object, name: str) -> str | None:
    """A free text, None where it is empty; it is never quoted."""
    if text is not None and not isinstance(text, str):
        raise LabelerError(f"{name} should be a text or None, got {kind_of(text)}")
    return text or None
