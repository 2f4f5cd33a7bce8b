"""A question as cells of a sheet, and the cell of an answer back.

A spreadsheet shows our cells and neither runs nor rewrites them. One that begins with `=`, `+`,
`-`, `@`, a tab or a carriage return may be run as a formula; one that reads as a number, a date or
a truth value is rewritten. Such a cell gets an apostrophe before it. A program that expects another
separator than the file's splits cells at it and at line breaks, quoted or not: there a no-break
space is put before the sign. `plain` removes both.

An answer is a letter, a number, the text of an option, or a word. The text of exactly one option
takes precedence. Any other answer must have one meaning: one that could mean two things is a
`Misread`, never a guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.errors import SettingsError
from stacksl.labelers.sheets.rows import SheetRow
from stacksl.ledger.purchases import AnswerKind

if TYPE_CHECKING:
    from stacksl.data import Classes

LETTERED = 26  # options that have letters; with more of them, all have numbers

_BARE_LETTER = re.compile(r"[a-z]", re.IGNORECASE | re.ASCII)
_BARE_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*")
LIMIT = 32_767  # UTF-16 units that a cell of Excel holds
_BREAKS = 253  # line breaks that it holds
_ROOM = 200  # UTF-16 units kept free for the words that say that the text goes on
_CUT = "[... the text is longer than a cell: ask for the page, which shows all of it]"
_SHORT = 40  # characters; nothing longer reads as a value

_MONTH = r"(?:jan|feb|f[eé]v|m[aä]r|apr|avr|ma[iy]|jun|jui|jul|aug|ao[uû]|sep|o[ck]t|nov|d[eé][cz])"
_RUNS = re.compile(r"[\s\ufeff\"]*[=+\-@＝＋－＠]|[\t\r]")
_REWRITTEN = re.compile(
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

_NONE = re.compile(r"\[?none(?: of (?:these|them|the above))?\]?(?:\s*[:：](.*))?", re.I | re.S)
_AMBIGUOUS = re.compile(r"\[?(?:ambiguous|\?+)\]?", re.I)
_BROKEN = re.compile(r"\[?broken(?: item)?\]?", re.I)
_LETTER = re.compile(r"[(\[]?([a-z])[)\].:]?", re.I | re.A)
_NUMBER = re.compile(r"[(\[#]?([0-9]{1,6})(?:[.,]0{1,2})?[)\].:]?")  # 2, 2), #2, and 2.0 or 2,0
_LINE = re.compile(r"[(\[]?([a-z]|[0-9]{1,6})(?:[)\]]\s*|[.:]\s+)(\S.*)", re.I | re.A | re.S)
_BARE = re.compile(r"[0-9]+(?:[.,]0{0,2})?:?")  # without a bracket
_VALUE = re.compile(r"([+-]?)([0-9]+)(?:[.,]([0-9]+))?")
_BY_SPREADSHEET = re.compile(  # by a spreadsheet: an error value, a formula, a power of ten, a date
    r"#[A-Z0-9/_]+[!?]?|Err:[0-9]+|=.+|[0-9]+(?:[.,][0-9]+)?[eE][+-]?[0-9]+"
    r"|[0-9]{1,4}[./-]\s?(?:[0-9]{1,2}|[^\W\d]{3,9})(?:[./-]\s?[0-9]{0,4})?|[^\W\d]{3,9}[./-][0-9]{2,4}",
    re.S,
)

_CORRECTED = {"©": "C", "®": "R", "€": "E"}  # what programs make of (c), (r) and (e)
_UNSEEN = "\u200b\u200e\u200f\u2060\ufeff"  # found in copied text
_EDGES = re.compile(rf"^[\s{_UNSEEN}]+|[\s{_UNSEEN}]+$")
_NOTHING = dict.fromkeys(map(ord, _UNSEEN), "")

_Positions = Mapping[Any, list[int]]


# Texts and cells -------------------------------------------------------------------------------


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


def plain(cell: str) -> str:
    """The text that `guarded` made the cell of; a cell that it did not make stays as it is."""
    text = cell[1:] if cell.startswith("'") and _needs_guard(cell[1:]) else cell
    return _INNER_BACK.sub("\\1", text)


def _needs_guard(cell: str) -> bool:
    bare = cell.lstrip("'")  # one that looks guarded gets a second guard, or `plain` would err
    return bool(_RUNS.match(bare)) or (len(bare) <= _SHORT and bool(_REWRITTEN.match(bare)))


def is_too_long(cell: str) -> bool:
    """Whether Excel would cut the cell: by its length, or by its number of line breaks."""
    units = len(cell.encode("utf-16-le")) // 2
    return units > LIMIT or cell.count("\n") > _BREAKS


def shortened(cell: str) -> str:
    """The cell, or the beginning of one that is too long, and where it goes on."""
    if not is_too_long(cell):
        return cell
    lines = "\n".join(cell.split("\n")[: _BREAKS - 2])
    units = lines.encode("utf-16-le")[: 2 * (LIMIT - _ROOM)]
    return units.decode("utf-16-le", errors="ignore") + "\n" + _CUT


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
    return len(options) <= LETTERED and not all(_BARE_LETTER.fullmatch(text) for text in texts)


@lru_cache(maxsize=64)
def bare_numbers(options: tuple[str, ...]) -> bool:
    """Whether a number without a bracket may mean a position: not where all texts are numbers."""
    return not all(_BARE_NUMBER.fullmatch(spaced(text)) for text in options)


def spaced(text: str) -> str:
    """The text as answers are compared with it: composed, and with single spaces."""
    return " ".join(unicodedata.normalize("NFC", visible(text)).split())


# Questions -------------------------------------------------------------------------------------


def question_cells(row: SheetRow, list_name: str | None, *, guard: bool) -> tuple[str, str, str]:
    """The cells `key`, `prompt` and `options`; the `list_name` has the options of long rows.

    They get a `guard` where a spreadsheet could run or rewrite them, as cells of CSV.
    """
    if list_name is not None and len(row.options) > LETTERED:
        options = pointed(row.options, list_name)
    else:
        options = listed(row.options)
    prompt = visible(row.prompt)
    prompt_cell, options_cell = (guarded(prompt), guarded(options)) if guard else (prompt, options)
    return row.key, shortened(prompt_cell), shortened(options_cell)


def class_cells(classes: Classes, *, guard: bool) -> list[tuple[str, str, str]]:
    """The classes as a table with a header: `number, name, description`; `guard` as above."""
    pairs = zip(classes.names, classes.descriptions, strict=True)
    rows = [(str(number), name, text) for number, (name, text) in enumerate(pairs, 1)]
    if guard:
        rows = [(n, guarded(visible(name)), guarded(visible(text))) for n, name, text in rows]
    return [("number", "name", "description"), *rows]


@lru_cache(maxsize=64)
def listed(options: tuple[str, ...]) -> str:
    """All options, a line each: `A) text`; lines of one option after its first are set in."""
    lines = [
        f"{sign(n, options)}) " + visible(text).replace("\n", "\n   ")
        for n, text in enumerate(options)
    ]
    return "\n".join([*lines, *_warning(options)])


@lru_cache(maxsize=64)
def pointed(options: tuple[str, ...], list_name: str) -> str:
    """Where the options are listed, in place of a list that is too long for a cell."""
    ways = f"number (1 to {len(options)}) or name" if bare_numbers(options) else "name"
    return "\n".join([f"{ways} of one of the classes in the {list_name}", *_warning(options)])


def _warning(options: tuple[str, ...]) -> list[str]:
    """A line for options whose text is the letter or number of another, or a word like `none`."""
    if not is_taken(options):
        return []
    return [
        "(the text of some option is a letter, a number or a word such as none: that text alone "
        f"means that option; write {sign(0, options)}) for the first option, [none] for none)"
    ]


# Answers ---------------------------------------------------------------------------------------


class Misread(ValueError):
    """Why an answer was not understood; its message is the sentence for the user."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """An answer: a label at a 0-based `position`, or a word with the right `text` if given."""

    kind: AnswerKind
    position: int | None = None
    text: str | None = None


def understood(
    cell: str, options: tuple[str, ...], first: int | None = None, classes: bool = False
) -> Meaning:
    """What the cell `answer` says about options that were shown in this order.

    Args:
        cell: as it was returned.
        options: as they are now.
        first: how many of them its first file had, where more were added since: the answer means
            what it meant there, if it meant anything.
        classes: whether the options are names of classes, which a message may quote.

    Raises:
        Misread: it is none of what is understood, or could be two things.
    """
    try:
        return _meaning(cell, options[:first], classes)
    except Misread:
        if first in (None, len(options)):
            raise
    return _meaning(cell, options, classes)


def _meaning(cell: str, options: tuple[str, ...], classes: bool) -> Meaning:
    cell = visible(cell).strip()
    bare = _EDGES.sub("", plain(cell))
    exact, loose, _ = _texts(options)
    for form in dict.fromkeys((cell, plain(cell))):
        matches = exact.get(spaced(form), [])
        if len(matches) > 1:
            raise Misread(
                f"{len(matches)} options have this text: answer with the letter or the number, "
                f"{sign(matches[0], options)}) or {sign(matches[1], options)})"
            )
        if matches:
            return Meaning("label", matches[0])
    meanings = list(dict.fromkeys(_readings(bare, options)))
    if not meanings:
        raise Misread(_why_none(bare, options, classes))
    if len(meanings) > 1:
        raise Misread(
            f"the answer {quoted(cell)} could mean {' or '.join(_in_words(m) for m in meanings)}: "
            f"write {sign(0, options)}) for the first option, or [none], [ambiguous], [broken]"
        )
    right_text = meanings[0].text
    if right_text is not None and (positions := loose.get(_loose(right_text))):
        raise Misread(
            f"none of these was answered with the text of option {positions[0] + 1} as the right"
            f" one: answer {positions[0] + 1}, or none alone"
        )
    return meanings[0]


def is_taken(options: tuple[str, ...]) -> bool:
    """Whether the text of an option reads as the letter or number of another, or as a word."""
    return any(_other_meanings(n, options) for n in range(len(options)))


def expect_unlike_answers(position: int, classes: tuple[str, ...]) -> None:
    """Check that the name of a class reads neither as another's letter or number nor as a word."""
    for meaning in _other_meanings(position, classes):
        raise SettingsError(
            f"a class needs a name that means nothing else as an answer, but '{classes[position]}'"
            f" means {_in_words(meaning)} on a sheet: choose another name"
        )


def _other_meanings(position: int, options: tuple[str, ...]) -> list[Meaning]:
    text = spaced(options[position])
    return [m for m in (*_words(text), *_signs(text, options)) if m != Meaning("label", position)]


def quoted(cell: str) -> str:
    """The cell for a message: itself if it is a letter or a number, else its length alone."""
    return f"'{cell}'" if len(cell) <= 3 else f"({len(cell)} characters)"


def _readings(cell: str, options: tuple[str, ...]) -> Iterator[Meaning]:
    """All that a cell may mean which is not an option's exact text."""
    words = [*_words(cell)]
    yield from words
    if words and cell.startswith("["):
        return
    yield from _signs(cell, options)
    _, loose, values = _texts(options)
    if line := _LINE.fullmatch(cell):  # copied whole: `B) its text`
        position = _position(line[1], options)
        if position in loose.get(_loose(plain(line[2])), []):
            yield Meaning("label", position)
    positions = [*loose.get(_loose(cell), []), *values.get(_value(cell), [])]
    yield from (Meaning("label", position) for position in positions)


def _words(cell: str) -> Iterator[Meaning]:
    if none := _NONE.fullmatch(cell):
        yield Meaning("none", text=_EDGES.sub("", plain((none[1] or "").strip())) or None)
    elif _AMBIGUOUS.fullmatch(cell):
        yield Meaning("ambiguous")
    elif _BROKEN.fullmatch(cell):
        yield Meaning("broken")


def _signs(cell: str, options: tuple[str, ...]) -> Iterator[Meaning]:
    """The option of a letter or of a number from 1, as the row's options have them."""
    normal_cell = _CORRECTED.get(cell) or unicodedata.normalize("NFKC", cell)
    match = _LETTER.fullmatch(normal_cell)
    if match is None and (bare_numbers(options) or not _BARE.fullmatch(normal_cell)):
        match = _NUMBER.fullmatch(normal_cell)
    position = None if match is None else _position(match[1], options)
    if position is not None:
        yield Meaning("label", position)


def _position(mark: str, options: tuple[str, ...]) -> int | None:
    if mark.isdigit():
        position = int(mark) - 1
    else:
        position = ord(mark.upper()) - ord("A") if has_letters(options) else -1
    return position if 0 <= position < len(options) else None


@lru_cache(maxsize=64)
def _texts(options: tuple[str, ...]) -> tuple[_Positions, _Positions, _Positions]:
    """The positions of a row's options by exact text, by text in any case, and by value."""
    exact, loose, values = defaultdict(list), defaultdict(list), defaultdict(list)
    for position, text in enumerate(options):
        exact[spaced(text)].append(position)
        loose[_loose(text)].append(position)
        if (value := _value(text)) is not None:
            values[value].append(position)
    return dict(exact), dict(loose), dict(values)


def _loose(text: str) -> str:
    return unicodedata.normalize("NFC", spaced(text.translate(_NOTHING)).casefold())


def _value(text: str) -> Decimal | None:
    """The number that a text writes; None where its separator may be one of thousands."""
    match = _VALUE.fullmatch(text.strip())
    if match is None or (match[3] and len(match[3]) == 3 and match[2].strip("0")):
        return None
    return Decimal(f"{match[1]}{match[2]}.{match[3] or 0}")


def _in_words(meaning: Meaning) -> str:
    if meaning.position is not None:
        return f"option {meaning.position + 1}"
    return "none of these" if meaning.kind == "none" else f"the word {meaning.kind}"


def _why_none(cell: str, options: tuple[str, ...], classes: bool) -> str:
    count = len(options)
    marks = f"letter A to {sign(count - 1, options)}" if has_letters(options) else "number"
    normal_cell = unicodedata.normalize("NFKC", cell)
    if _BY_SPREADSHEET.fullmatch(normal_cell):
        return (
            f"the answer {quoted(cell)} is a date, a number, a formula or an error that the"
            f" spreadsheet made of what was typed: write the option's {marks}"
        )
    if _LINE.fullmatch(normal_cell):
        return (
            f"the answer {quoted(cell)} has words after a letter or number that are not that "
            "option's text: write the letter or number alone, and remarks in the column note"
        )
    if _NUMBER.fullmatch(normal_cell) and bare_numbers(options):
        return f"the answer {quoted(cell)} is no option's number: they go from 1 to {count}"
    texts = {_loose(text): number for number, text in enumerate(options)}
    positions = [texts[text] for text in get_close_matches(_loose(cell), texts, n=1)]
    suggestions = [
        f"{sign(n, options)})" + (f" {spaced(options[n])}" if classes else "") for n in positions
    ]
    hint = f"did you mean {suggestions[0]}? Write" if suggestions else "write"
    return (
        f"the answer {quoted(cell)} is not understood: {hint} a {marks}, the text of an option, "
        "none, ambiguous or broken"
    )
