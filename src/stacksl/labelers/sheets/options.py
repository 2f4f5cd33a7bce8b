"""A row's options as the cell that lists them."""

from __future__ import annotations

from functools import lru_cache

from stacksl.labelers.sheets.cells import visible
from stacksl.labelers.sheets.meaning import is_taken
from stacksl.labelers.sheets.signs import bare_numbers, sign


@lru_cache(maxsize=64)
def listed(options: tuple[str, ...]) -> str:
    """All options, a line each: `A) text`; lines of one option after its first are set in."""
    lines = [
        f"{sign(n, options)}) " + visible(text).replace("\n", "\n   ")
        for n, text in enumerate(options)
    ]
    return "\n".join([*lines, *_warning(options)])


@lru_cache(maxsize=64)
def pointed(options: tuple[str, ...], where: str) -> str:
    """Where the options are listed, in place of a list that is too long for a cell."""
    ways = f"number (1 to {len(options)}) or name" if bare_numbers(options) else "name"
    return "\n".join([f"{ways} of one of the classes in the {where}", *_warning(options)])


def _warning(options: tuple[str, ...]) -> list[str]:
    """A line for options whose text is the letter or number of another, or a word like `none`."""
    if not is_taken(options):
        return []
    return [
        "(the text of some option is a letter, a number or a word such as none: that text alone "
        f"means that option; write {sign(0, options)}) for the first option, [none] for none)"
    ]
