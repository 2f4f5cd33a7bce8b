"""Short names of rows that no spreadsheet rewrites and no single typing error turns into another.

A key is letter, digit, letter, digit, ..., a hyphen and a check letter, such as `k7f3-q`. It is no
number, date, truth value or formula under any locale, since it begins with a letter, has a digit
next to it, and goes on; it holds no letters or digits that look alike (0 o, 1 i l, 5 s, 2 z, ...).

The check letter is the weighted sum of the others modulo 17: each letter or digit replaced by one
other, and each two of one kind exchanged, gives another sum, because 17 is a prime.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


_LETTERS = "acdfhjkmnpqrtvwxy"  # 17 of them
_DIGITS = "23456789"
_PAIR = len(_LETTERS) * len(_DIGITS)
_HYPHENS = dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")  # what a word processor makes of a hyphen
_SPARSE = 64  # times as many keys as rows, so that a key of another run is rarely one of this
_LONGEST = 8  # pairs: far more keys than rows


def new_key(number: int, rng: np.random.Generator, taken: Container[str] = ()) -> str:
    """A key that is not `taken`.

    Args:
        number: how many keys the run has given out; more of them make longer keys.
        rng: where the key comes from.
        taken: the keys that the run has given out.

    Example:
        >>> import numpy as np
        >>> is_key(new_key(0, np.random.default_rng(0)))
        True
    """
    pairs = 2
    while _PAIR**pairs < _SPARSE * (number + 1):
        pairs += 1
    while True:
        drawn = rng.integers(_PAIR, size=pairs).tolist()
        body = "".join(_LETTERS[n // len(_DIGITS)] + _DIGITS[n % len(_DIGITS)] for n in drawn)
        key = f"{body}-{_check(body)}"
        if key not in taken:
            return key


def clean_key(cell: str) -> str:
    """The text of a cell as a key is written: small letters, a plain hyphen, no white space."""
    return "".join(cell.split()).translate(_HYPHENS).lower()


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key and its check letter is right."""
    body, hyphen, check = text.partition("-")
    return has_form(text) and bool(hyphen) and check == _check(body)


def has_form(text: str) -> bool:
    """Whether `text` has the form of a key, with any check letter: safe to quote."""
    body, _, check = text.partition("-")
    return (
        4 <= len(body) <= 2 * _LONGEST
        and len(body) % 2 == 0
        and all(c in (_DIGITS if n % 2 else _LETTERS) for n, c in enumerate(body))
        and len(check) == 1
        and check in _LETTERS
    )


def _check(body: str) -> str:
    values = (_DIGITS.index(c) if n % 2 else _LETTERS.index(c) for n, c in enumerate(body))
    total = sum(weight * value for weight, value in enumerate(values, 1))
    return _LETTERS[total % len(_LETTERS)]
