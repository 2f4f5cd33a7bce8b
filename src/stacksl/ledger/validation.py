"""Validation of an answer: whole numbers, one of the candidates, at most the agreed price.

Only the answer itself is validated here; `transactions` checks that its purchase exists.
"""

from __future__ import annotations

import operator
from typing import get_args

from stacksl.errors import LabelerError
from stacksl.ledger.purchases import Answer, Said


def whole(value: object, what: str, why: str = "a labeler answers in integers") -> int:
    """`value` as a plain integer; 0.9 is not 0, and 2.0 is not 2.

    Raises:
        LabelerError: it is not an integer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]  # TypeError is handled
    except TypeError:
        raise LabelerError(f"{what} should be a whole number, got {value!r}: {why}") from None


def whole_answer(answer: Answer) -> Answer:
    """The answer with plain integers for its numbers, and None for free texts that are empty.

    Raises:
        LabelerError: a number is not whole, the price is negative, or index, free texts and the
            kind of answer do not belong together.
    """
    who = f"of the answer to item '{answer.item}' by '{answer.labeler}'"
    slot, token, price = (
        whole(getattr(answer, name), f"the {name} {who}") for name in ("slot", "token", "price")
    )
    index = _index(answer, who)
    text, note = (_free(getattr(answer, name), f"the {name} {who}") for name in ("text", "note"))
    if text is not None and answer.said != "none":
        raise LabelerError(
            f"the right text {who} belongs to said='none' alone, got '{answer.said}': "
            "leave it out, or put it in the note"
        )
    if price < 0:
        raise LabelerError(
            f"the price {who} should be 0 micro-units or more, got {price}: a labeler never pays"
        )
    return Answer(answer.item, slot, token, index, answer.labeler, price, answer.said, text, note)


def _index(answer: Answer, who: str) -> int | None:
    """The candidate a label names, a plain integer; None for the other kinds of answer."""
    if answer.said not in get_args(Said):
        raise LabelerError(
            f"the kind {who} should be one of {', '.join(get_args(Said))}, got another: "
            "use one of these"
        )
    if answer.said == "label":
        return whole(answer.index, f"the index {who}")
    if answer.index is not None:
        raise LabelerError(
            f"the index {who} should be None, since it says '{answer.said}' and names no "
            "candidate: leave one of them out"
        )
    return None


def _free(text: object, what: str) -> str | None:
    """A free text, None where it is empty; it is never quoted."""
    if text is not None and not isinstance(text, str):
        raise LabelerError(f"{what} should be a text or None, got a {type(text).__name__}")
    return text or None


def expect_candidate(item: str, index: int, size: int | None) -> None:
    """Check that an answer names one of its item's K = `size` candidates.

    Raises:
        LabelerError: it does not.
    """
    if index < 0 or (size is not None and index >= size):
        count = "its candidates" if size is None else f"its {size} candidates"
        raise LabelerError(
            f"the answer to item '{item}' should be the index of one of {count}, got {index}"
        )


def expect_price(answer: Answer, most: int) -> None:
    """Check that an answer costs no more than was reserved for it.

    Raises:
        LabelerError: it costs more.
    """
    if answer.price > most:
        raise LabelerError(
            f"the price of item '{answer.item}' by '{answer.labeler}' should be at most the "
            f"{most} micro-units reserved, got {answer.price}: set a price that covers every answer"
        )
