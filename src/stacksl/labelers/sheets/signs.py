"""The letter or number before an option, chosen so that it is not taken for the option's text."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from stacksl.labelers.sheets.cells import visible

LETTERED = 26  # options that have letters; with more of them, all have numbers

_LETTER = re.compile(r"[a-z]", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*")


def sign(position: int, options: tuple[str, ...]) -> str:
    """The mark of the option at the 0-based `position`: `A` to `Z`, or its number from 1.

    Example:
        >>> sign(1, ("yes", "no")), sign(1, ("B", "A"))
        ('B', '2')
    """
    return chr(ord("A") + position) if has_letters(options) else str(position + 1)


@lru_cache(maxsize=64)
def has_letters(options: tuple[str, ...]) -> bool:
    """Whether the options have letters before them: not if they are letters, or too many."""
    texts = (spaced(text) for text in options)
    return len(options) <= LETTERED and not all(_LETTER.fullmatch(text) for text in texts)


@lru_cache(maxsize=64)
def bare_numbers(options: tuple[str, ...]) -> bool:
    """Whether a number without a bracket may mean a position: not where all texts are numbers."""
    return not all(_NUMBER.fullmatch(spaced(text)) for text in options)


def spaced(text: str) -> str:
    """The text as answers are compared with it: composed, and with single spaces."""
    return " ".join(unicodedata.normalize("NFC", visible(text)).split())
