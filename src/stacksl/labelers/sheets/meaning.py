"""The meaning of an answer: a letter, a number, the text of an option, or a word.

The text of exactly one option takes precedence. Any other answer must have one meaning: one that
could mean two things is a `Misread`, never a guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from stacksl.labelers.sheets.cells import bare_numbers, has_letters, plain, sign, spaced, visible
from stacksl.labelers.sheets.rows import Said

_NONE = re.compile(r"\[?none(?: of (?:these|them|the above))?\]?(?:\s*[:：](.*))?", re.I | re.S)
_AMBIGUOUS = re.compile(r"\[?(?:ambiguous|\?+)\]?", re.I)
_BROKEN = re.compile(r"\[?broken(?: item)?\]?", re.I)
_LETTER = re.compile(r"[(\[]?([a-z])[)\].:]?", re.I | re.A)
_NUMBER = re.compile(r"[(\[#]?([0-9]{1,6})(?:[.,]0{1,2})?[)\].:]?")  # 2, 2), #2, and 2.0 or 2,0
_LINE = re.compile(r"[(\[]?([a-z]|[0-9]{1,6})(?:[)\]]\s*|[.:]\s+)(\S.*)", re.I | re.A | re.S)
_BARE = re.compile(r"[0-9]+(?:[.,]0{0,2})?:?")  # without a bracket
_VALUE = re.compile(r"([+-]?)([0-9]+)(?:[.,]([0-9]+))?")
_DATE = re.compile(
    r"[0-9]{1,4}[./-]\s?(?:[0-9]{1,2}|[^\W\d]{3,9})(?:[./-]\s?[0-9]{0,4})?|[^\W\d]{3,9}[./-][0-9]{2,4}"
)
_ERROR = re.compile(r"#[A-Z0-9/_]+[!?]?|Err:[0-9]+")
_POWER = re.compile(r"[0-9]+(?:[.,][0-9]+)?e[+-]?[0-9]+", re.I)

_CORRECTED = {"©": "C", "®": "R", "€": "E"}  # what programs make of (c), (r) and (e)
_UNSEEN = "\u200b\u200e\u200f\u2060\ufeff"  # found in copied text
_EDGES = re.compile(rf"^[\s{_UNSEEN}]+|[\s{_UNSEEN}]+$")
_NOTHING = dict.fromkeys(map(ord, _UNSEEN), "")


class Misread(ValueError):
    """Why an answer was not understood; its message is the sentence for the user."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """An answer: a label at a 0-based `position`, or a word with the right `text` if given."""

    said: Said
    position: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class _Texts:
    """The positions of a row's options by exact text, by text in any case, and by value."""

    exact: Mapping[str, list[int]]
    loose: Mapping[str, list[int]]
    values: Mapping[Decimal, list[int]]


def understood(cell: str, options: tuple[str, ...]) -> Meaning:
    """What the cell `answer` says about options that were shown in this order.

    Raises:
        Misread: it is none of what is understood, or could be two things.
    """
    cell = visible(cell).strip()
    bare = _EDGES.sub("", plain(cell))
    texts = _texts(options)
    for form in dict.fromkeys((cell, plain(cell))):
        exact = texts.exact.get(spaced(form), [])
        if exact:
            return Meaning("label", _single(exact, options))
    meanings = list(dict.fromkeys(_readings(bare, options)))
    if not meanings:
        raise Misread(_why_none(bare, options))
    if len(meanings) > 1:
        raise Misread(
            f"the answer {quoted(cell)} could mean {' or '.join(_said(m) for m in meanings)}: "
            f"write {sign(0, options)}) for the first option, or [none], [ambiguous], [broken]"
        )
    _check_right_text(meanings[0], texts)
    return meanings[0]


def is_taken(options: tuple[str, ...]) -> bool:
    """Whether the text of an option reads as the letter or number of another, or as a word."""
    return any(
        meaning != Meaning("label", n)
        for n, text in enumerate(options)
        for meaning in (*_words(spaced(text)), *_signs(spaced(text), options))
    )


def quoted(cell: str) -> str:
    """The cell for a message: itself if it is a letter or a number, else its length alone."""
    return f"'{cell}'" if len(cell) <= 3 else f"({len(cell)} characters)"


def _readings(cell: str, options: tuple[str, ...]) -> Iterator[Meaning]:
    """All that a cell may mean which is not an option's exact text."""
    if cell.startswith("["):
        words = list(_words(cell))
        if words:
            yield from words
            return
    yield from _words(cell)
    yield from _signs(cell, options)
    yield from _whole_lines(cell, options)
    texts = _texts(options)
    value = _value(cell)
    found = [
        *texts.loose.get(_loose(cell), []),
        *([] if value is None else texts.values.get(value, [])),
    ]
    yield from (Meaning("label", position) for position in found)


def _words(cell: str) -> Iterator[Meaning]:
    if none := _NONE.fullmatch(cell):
        yield Meaning("none", text=_EDGES.sub("", plain((none[1] or "").strip())) or None)
    elif _AMBIGUOUS.fullmatch(cell):
        yield Meaning("ambiguous")
    elif _BROKEN.fullmatch(cell):
        yield Meaning("broken")


def _signs(cell: str, options: tuple[str, ...]) -> Iterator[Meaning]:
    """The option of a letter or of a number from 1, as the row's options have them."""
    wide = _CORRECTED.get(cell) or unicodedata.normalize("NFKC", cell)
    found = _LETTER.fullmatch(wide)
    if found is None and (bare_numbers(options) or not _BARE.fullmatch(wide)):
        found = _NUMBER.fullmatch(wide)
    position = None if found is None else _position(found[1], options)
    if position is not None:
        yield Meaning("label", position)


def _position(mark: str, options: tuple[str, ...]) -> int | None:
    if mark.isdigit():
        position = int(mark) - 1
    else:
        position = ord(mark.upper()) - ord("A") if has_letters(options) else -1
    return position if 0 <= position < len(options) else None


def _whole_lines(cell: str, options: tuple[str, ...]) -> Iterator[Meaning]:
    """The option of a line copied whole: `B) its text`."""
    found = _LINE.fullmatch(cell)
    position = None if found is None else _position(found[1], options)
    if found is None or position is None:
        return
    if _loose(plain(found[2])) == _loose(options[position]):
        yield Meaning("label", position)


@lru_cache(maxsize=64)
def _texts(options: tuple[str, ...]) -> _Texts:
    exact, loose, values = defaultdict(list), defaultdict(list), defaultdict(list)
    for position, text in enumerate(options):
        exact[spaced(text)].append(position)
        loose[_loose(text)].append(position)
        if (value := _value(text)) is not None:
            values[value].append(position)
    return _Texts(dict(exact), dict(loose), dict(values))


def _loose(text: str) -> str:
    return unicodedata.normalize("NFC", spaced(text.translate(_NOTHING)).casefold())


def _value(text: str) -> Decimal | None:
    """The number that a text writes; None where its separator may be one of thousands."""
    found = _VALUE.fullmatch(text.strip())
    if found is None or (found[3] and len(found[3]) == 3 and found[2].strip("0")):
        return None
    return Decimal(f"{found[1]}{found[2]}.{found[3] or 0}")


def _single(positions: list[int], options: tuple[str, ...]) -> int:
    if len(positions) > 1:
        raise Misread(
            f"{len(positions)} options have this text: answer with the letter or the number, "
            f"{sign(positions[0], options)}) or {sign(positions[1], options)})"
        )
    return positions[0]


def _check_right_text(meaning: Meaning, texts: _Texts) -> None:
    if meaning.text is not None and (found := texts.loose.get(_loose(meaning.text))):
        raise Misread(
            f"none of these was answered with the text of option {found[0] + 1} as the right one: "
            f"answer {found[0] + 1}, or none alone"
        )


def _said(meaning: Meaning) -> str:
    if meaning.position is not None:
        return f"option {meaning.position + 1}"
    return "none of these" if meaning.said == "none" else f"the word {meaning.said}"


def _why_none(cell: str, options: tuple[str, ...]) -> str:
    count = len(options)
    marks = f"letter A to {sign(count - 1, options)}" if has_letters(options) else "number"
    wide = unicodedata.normalize("NFKC", cell)
    if _ERROR.fullmatch(wide):
        return f"the answer is an error value of the spreadsheet: write the option's {marks}"
    if wide.startswith("=") and len(wide) > 1:
        return f"the answer is a formula: write the option's {marks} as text"
    if _POWER.fullmatch(wide) or _DATE.fullmatch(wide):
        return (
            f"the answer {quoted(cell)} reads like a date or a number that a spreadsheet made of "
            f"what was typed: write the option's {marks}"
        )
    if _LINE.fullmatch(wide):
        return (
            f"the answer {quoted(cell)} has words after a letter or number that are not that "
            "option's text: write the letter or number alone, and remarks in the column note"
        )
    if _NUMBER.fullmatch(wide) and not bare_numbers(options):
        return f"the answer {quoted(cell)} is none of the options, which are numbers: write {marks}"
    if _NUMBER.fullmatch(wide):
        return f"the answer {quoted(cell)} is no option's number: they go from 1 to {count}"
    return (
        f"the answer {quoted(cell)} is not understood: write a {marks}, the text of an option, "
        "none, ambiguous or broken"
    )
