"""Numbers as people write them, and text of the data made harmless."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping

MICRO = 1_000_000
NEW_AUDIT = 80  # labels added to a finished run from which some of them are a new audit
# C0 and C1 controls but tab and newline, and lone surrogates: HTML and UTF-8 have no place for them
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` with characters that a page cannot hold replaced by the replacement character."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def excerpt(text: str, length: int) -> str:
    """At most `length` characters of `text` on one line, cut at a word where one is near.

    >>> excerpt("what is the  exchange rate today?", 16)
    'what is the…'
    """
    flat = " ".join(clean(text[: 8 * length]).split())
    if len(flat) <= length:
        return flat
    cut = flat[: length - 1]
    whole_words = cut.rsplit(" ", 1)[0]
    return (whole_words if len(whole_words) > length // 2 else cut).rstrip() + "…"


_MARKS = re.compile(r"([\\`*_{}\[\]<>()#|~!&$])")


def plain(text: str) -> str:
    """`text` on one line with Markdown's marks escaped, so that it is read as it was written.

    >>> plain("a *b* <script>")
    'a \\\\*b\\\\* \\\\<script\\\\>'
    """
    return _MARKS.sub(r"\\\1", excerpt(text, 200))


def plain_sentence(text: str) -> str:
    """A sentence of the run with markup made harmless; code spans stay as they are."""
    return " ".join(text.replace("<", "&lt;").replace("[", r"\[").split())


def fence(text: str) -> str:
    """The fence of a Markdown block that may hold `text`, which may hold fences itself."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def count(value: int) -> str:
    """A whole number with thousands apart.

    >>> count(10003)
    '10,003'
    """
    return f"{value:,}"


def plural(value: int, noun: str, plural_noun: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "label"), plural(0, "class", "classes")
    ('1 label', '0 classes')
    """
    return f"{count(value)} {noun if value == 1 else plural_noun or noun + 's'}"


def clear_of(n: int, unclear: int, noun: str) -> str:
    """How many rows a share was measured on: those with a clear answer, where some have none.

    >>> clear_of(20, 5, "item"), clear_of(20, 0, "item")
    ('the 15 clear ones among 20 items', '20 items')
    """
    clear = f"the {count(n - unclear)} clear {'one' if n - unclear == 1 else 'ones'} among "
    return (clear if unclear else "") + plural(n, noun)


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 0..1 in percent; a dash where there is none.

    >>> percent(0.8744), percent(None)
    ('87.4%', '–')
    """
    if share is None:
        return "–"
    return f"{100 * share:.{digits}f}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant figures, without an exponent where it can be read.

    >>> number(1234.5), number(0.01234), number(-0.5), number(1e-9), number(None)
    ('1,234', '0.0123', '-0.5', '1e-09', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def money(micro: int) -> str:
    """An amount of micro-units; more than two decimals only where they are needed.

    >>> money(2_500_000_000), money(1_500), money(0)
    ('$2,500.00', '$0.0015', '$0.00')
    """
    dollars, micros = divmod(abs(micro), MICRO)
    decimals = f"{micros:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micro < 0 else ''}${dollars:,}.{decimals}"


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """A 95% interval in words.

    >>> interval(0.8649, 0.8881)
    '86.5% to 88.8%'
    """
    return f"{percent(low, digits)} to {percent(high, digits)}"


def spread(low: float, high: float, look: int = 0, digits: int = 1) -> str:
    """The interval of an audited accuracy in words; the lower bound at a `look` of many.

    >>> spread(0.8649, 0.8881), spread(0.8649, 1.0, 2)
    ('95% interval 86.5% to 88.8%', 'at least 86.5% in 95 of 100 runs')
    """
    return at_least(low, digits) if look else f"95% interval {interval(low, high, digits)}"


def at_least(low: float, digits: int = 1) -> str:
    """A lower bound in words."""
    return f"at least {percent(low, digits)} in 95 of 100 runs"


def duration(seconds: float | None) -> str:
    """A time, in the unit that reads best; a dash where there is none.

    >>> duration(0.0421), duration(7.25), duration(754), duration(9000), duration(None)
    ('0.0421 s', '7.25 s', '12 min 34 s', '2 h 30 min', '–')
    """
    if seconds is None or seconds < 60:
        return "–" if seconds is None else f"{number(seconds)} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{count(hours)} h {minutes_left} min" if hours else f"{minutes} min {seconds_left} s"


def memory(size: int) -> str:
    """A number of bytes in MiB, or in GiB from one on.

    >>> memory(599_650_304), memory(9_000_000_000)
    ('572 MiB', '8.38 GiB')
    """
    return f"{number(size / 2**30)} GiB" if size >= 2**30 else f"{number(size / 2**20)} MiB"


def change_call(run: str, settings: Mapping[str, object], *, python: bool) -> str:
    """How a run is changed: a command, or in `python` where an object made there answers."""
    if python:
        args = "".join(f"{name}={value!r}, " for name, value in settings.items())
        return f"stacksl.Run.open({run!r}).change({args}labeler=...)"
    args = "".join(f" --{k.replace('_', '-')} {shlex.quote(str(v))}" for k, v in settings.items())
    return f"stacksl change {shlex.quote(run)}{args}"


def of_run(sentence: str, run: str) -> str:
    """A sentence with the `run` in place of RUN in its commands, made by `change_call`."""
    return sentence.replace(" RUN ", f" {shlex.quote(run)} ").replace("'RUN'", repr(run))


def unasked(rows: int, run: str) -> str:
    """Why a second look cannot go on, at so many rows of it or at all, and what makes it go on."""
    lack = "Fewer than two annotators are left, so no second look can measure the accuracy"
    lack = f"Nobody is left to ask about {plural(rows, 'row')} of the second look" if rows else lack
    call = f"stacksl change {shlex.quote(run)}"
    ways = f"`{call} --add-annotator NAME`, or call one who is away back with `{call} --back NAME`"
    return f"{lack}: add a person with {ways}."
