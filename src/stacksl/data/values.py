"""One cell of a file as text, options or a gold index; a fault in it is a `RowFault`.

No message quotes a cell, which may be private: rows and columns have numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_DIGITS = 18  # more than an index has; Python refuses to read thousands of them


_WORDS, _CHARACTERS = 3, 30  # what a column's name has at most; a text has more

_CELL = re.compile(r"yes|no|true|false|[-+]?[\d.,]+%?")

_LISTED = 20  # columns that a message lists


class RowFault(ValueError):
    """Why one row cannot be used; its message is the reason that is reported."""


_NO_VALUE = "#N/A"  # what spreadsheet programs write where there is none


def one_line(sentence: str) -> str:
    """A sentence on one line, even where it quotes line breaks."""
    return " ".join(sentence.splitlines())


def normal(prompt: str) -> str:
    """A prompt without differences of case and white space."""
    return " ".join(prompt.split()).casefold()


def listed(columns: Sequence[str]) -> str:
    """The names of the first `columns` of a file for a message, as `named` writes them."""
    names = ", ".join(named(name, columns) for name in columns[:_LISTED])
    excess = len(columns) - _LISTED
    return f"{names} and {excess:,} more" if excess > 0 else names


def named(column: str, columns: Sequence[str]) -> str:
    """The name of a column for a message; by number where any name looks like a text.

    A file without a header has its first row for names, and then the short ones are private too.
    """
    if any(is_long(name) or _CELL.fullmatch(name.strip().lower()) for name in columns):
        return f"number {columns.index(column) + 1}"
    return column


def is_long(column: str) -> bool:
    """Whether a cell is longer than the name of a column, so that it is a text."""
    return len(column.split()) > _WORDS or len(column) > _CHARACTERS


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: None, NaN, pandas.NA, #N/A, or only white space."""
    if isinstance(value, str):
        return value.strip() in ("", _NO_VALUE)
    try:
        return value is None or (not hasattr(value, "__len__") and bool(value != value))
    except TypeError:  # of pandas.NA, which is neither true nor false
        return True


def is_utf8(text: str) -> bool:
    """Whether a text holds no surrogate, which stands for a byte that is not UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(value: Any, subject: str) -> str:
    """A cell as text, without white space around it; a number becomes its digits.

    Raises:
        RowFault: the value is a list or an object, or its bytes are not UTF-8.
    """
    if is_missing(value):
        return ""
    if isinstance(value, str):
        clean_text = value.strip()
    elif isinstance(value, bool):
        return "true" if value else "false"
    elif isinstance(value, float) and value.is_integer():
        return str(int(value))
    elif hasattr(value, "__len__"):  # a list, bytes or an array
        raise RowFault(f"{subject} is not text: {type(value).__name__}")
    else:
        clean_text = str(value)
    if not is_utf8(clean_text):
        raise RowFault(f"bad encoding: {subject} is not UTF-8")
    if "\0" in clean_text:
        raise RowFault(f"bad encoding: {subject} holds a NUL byte")
    return clean_text


def options(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """An item's options and the keys that name them (`A`, `B`, ... where the file has none).

    Accepts a list, `{key: text}`, `{"text": [...], "label": [...]}`, or one of these as JSON text.
    """
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowFault("bad JSON: in the options") from None
    if isinstance(value, Mapping) and isinstance(value.get("text"), list | tuple):
        keys, texts = value.get("label"), value["text"]
        if not isinstance(keys, list | tuple | None):
            raise RowFault(f"bad options: their labels are no list, but {type(keys).__name__}")
        if keys is None or len(keys) != len(texts):
            keys = _letters(len(texts))
    elif isinstance(value, Mapping):
        keys, texts = list(value), list(value.values())
    elif isinstance(value, list | tuple):
        keys, texts = _letters(len(value)), value
    else:
        raise RowFault("no options: a list of candidates was expected")
    return tuple(text(t, "an option") for t in texts), tuple(text(k, "a key") for k in keys)


def _letters(count: int) -> list[str]:
    return [chr(ord("A") + i) if i < 26 else str(i) for i in range(count)]


def gold_index(value: Any, candidates: Sequence[str], keys: Sequence[str]) -> int | None:
    """The index of the gold answer, given as a 0-based index, a key such as `B`, or its text.

    A number is an index. Text is first compared with the candidates, then with the keys; digits
    that are neither are an index.

    Raises:
        RowFault: it names no candidate.
    """
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value, len(candidates))
    answer = text(value, "the answer")
    if answer in candidates:
        return candidates.index(answer)
    if answer in keys:
        return keys.index(answer)
    if answer.isdecimal() and answer.isascii() and len(answer) <= _DIGITS:
        return _in_range(int(answer), len(candidates))
    raise RowFault(
        f"gold out of range: the answer is none of the {len(candidates)} options, and neither the"
        " letter nor the number of one"
    )


def _in_range(index: int, count: int) -> int:
    if not 0 <= index < count:
        raise RowFault(f"gold out of range: {index} of {count} options, counted from 0")
    return index
