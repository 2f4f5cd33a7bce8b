"""A text as a cell that a spreadsheet shows and neither runs nor rewrites, and back; its sign.

A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return may be run as a formula; one
that reads as a number, a date or a truth value is rewritten. Such a cell gets an apostrophe
before it. A program that expects another separator than the file's splits cells at it and at line
breaks, quoted or not: there a no-break space is put before the sign. `plain` removes both.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LETTERED = 26  # options that have letters; with more of them, all have numbers

_LETTER = re.compile(r"[a-z]", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*")
LIMIT = 32_767  # UTF-16 units that a cell of Excel holds
_BREAKS = 253  # line breaks that it holds
_ROOM = 200  # UTF-16 units kept free for the words that say where the text goes on
_SHORT = 40  # characters; nothing longer reads as a value

_MONTH = r"(?:jan|feb|f[eé]v|m[aä]r|apr|avr|ma[iy]|jun|jui|jul|aug|ao[uû]|sep|o[ck]t|nov|d[eé][cz])"
_RUNS = re.compile(r"[\s\ufeff\"]*[=+\-@＝＋－＠]|[\t\r]")
_VALUE = re.compile(
    r"\s*(?:[\d.,:/%\s-]*\d[\d.,:/%\s-]*(?:e[+-]?\d+|[ap]m)?"  # 007, 1e5, 3-4, 12:30 pm, 50 %
    rf"|\d+[\s./-]*{_MONTH}[a-zéû]*[\s./-]*\d*|{_MONTH}[a-zéû]*[\s./-]*\d+"  # 4 March, Mar-04
    r"|true|false|wahr|falsch|vrai|faux)\s*$",
    re.IGNORECASE,
)
_SPLITS = r"(?<=[\n;\t,])([ \u00a0\ufeff\"]*)"
_SIGN = r"(?=[=+\-@＝＋－＠])"
_INNER = re.compile(_SPLITS + _SIGN)
_INNER_BACK = re.compile(_SPLITS + "\u00a0" + _SIGN)

_PICTURES: dict[int, str] = {code: chr(0x2400 + code) for code in range(32)}
_PICTURES |= {0x7F: "\u2421"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
_PICTURES |= {ord("\t"): "\t", ord("\n"): "\n"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def visible(text: str) -> str:
    """The text without what a cell cannot hold: NUL and its like as ␀, line breaks as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_PICTURES)


def guarded(text: str) -> str:
    """The `visible` text as a cell that is shown as it stands; `plain` undoes it.

    Example:
        >>> guarded("=1+1"), plain(guarded("=1+1")), guarded("twice 2")
        ("'=1+1", '=1+1', 'twice 2')
    """
    cell = _INNER.sub("\\1\u00a0", text)
    return f"'{cell}" if _needs_guard(cell) else cell


def inert(text: str) -> str:
    """The text as a cell that is never run as a formula; numbers and dates stay as they are.

    For tables that programs read too.

    Example:
        >>> inert("=1+1"), inert("007")
        ("'=1+1", '007')
    """
    cell = _INNER.sub("\\1\u00a0", visible(text))
    return f"'{cell}" if _RUNS.match(cell.lstrip("'")) else cell


def plain(cell: str) -> str:
    """The text that `guarded` made the cell of; a cell that it did not make stays as it is."""
    text = cell[1:] if cell.startswith("'") and _needs_guard(cell[1:]) else cell
    return _INNER_BACK.sub("\\1", text)


def _needs_guard(cell: str) -> bool:
    bare = cell.lstrip("'")  # one that looks guarded gets a second guard, or `plain` would err
    return bool(_RUNS.match(bare)) or (len(bare) <= _SHORT and bool(_VALUE.match(bare)))


def is_too_long(cell: str) -> bool:
    """Whether Excel would cut the cell: by its length, or by its number of line breaks."""
    units = len(cell.encode("utf-16-le")) // 2
    return units > LIMIT or cell.count("\n") > _BREAKS


def shortened(cell: str, words: str) -> str:
    """The beginning of a cell that is too long, and `words` after it that say where it goes on."""
    lines = "\n".join(cell.split("\n")[: _BREAKS - 2])
    units = lines.encode("utf-16-le")[: 2 * (LIMIT - _ROOM)]
    return units.decode("utf-16-le", errors="ignore") + "\n" + words


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
