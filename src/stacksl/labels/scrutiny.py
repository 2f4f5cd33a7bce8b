"""What an answer must be: in whole numbers, one of the candidates, at a price that was agreed.

Everything here speaks of the answer alone; whether its purchase exists is `exchange`'s business.
"""

from __future__ import annotations

import operator

from stacksl.errors import LabelerError
from stacksl.labels.purchases import Answer

__all__ = ["expect_candidate", "expect_price", "whole", "whole_answer"]


def whole(value: object, what: str) -> int:
    """`value` as a plain integer; 0.9 is not 0, and 2.0 is not 2.

    Raises:
        LabelerError: it is not an integer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]  # what has no index is refused
    except TypeError:
        raise LabelerError(
            f"{what} should be a whole number, came {value!r}: a labeler answers in integers"
        ) from None


def whole_answer(answer: Answer) -> Answer:
    """The answer with plain integers for its numbers.

    Raises:
        LabelerError: one of them is not whole, or the price is negative.
    """
    who = f"of the answer to item '{answer.item}' by '{answer.labeler}'"
    slot, token, index, price = (
        whole(getattr(answer, name), f"the {name} {who}")
        for name in ("slot", "token", "index", "price")
    )
    if price < 0:
        raise LabelerError(
            f"the price {who} should be 0 micro-units or more, came {price}: "
            "a labeler is paid and never pays"
        )
    return Answer(answer.item, slot, token, index, answer.labeler, price)


def expect_candidate(item: str, index: int, size: int | None) -> None:
    """Check that an answer names one of its item's K = `size` candidates.

    Raises:
        LabelerError: it does not.
    """
    if index < 0 or (size is not None and index >= size):
        count = "its candidates" if size is None else f"its {size} candidates"
        raise LabelerError(
            f"the answer to item '{item}' should be the index of one of {count}, came {index}"
        )


def expect_price(answer: Answer, most: int) -> None:
    """Check that an answer costs no more than was reserved for it.

    Raises:
        LabelerError: it is dearer.
    """
    if answer.price > most:
        raise LabelerError(
            f"'{answer.labeler}' asks {answer.price} micro-units for item '{answer.item}', at "
            f"most {most} were reserved: set a price that covers every answer"
        )
