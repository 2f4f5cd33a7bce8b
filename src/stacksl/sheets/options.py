"""A row's options as the cell that lists them."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.sheets.cells import visible
from stacksl.sheets.meaning import is_taken
from stacksl.sheets.rows import letter

__all__ = ["listed", "pointed"]


def listed(options: Sequence[str]) -> str:
    """All options, a line each: `A) text`; lines of one option after its first are set in."""
    lines = [
        f"{letter(n, len(options))}) " + visible(text).replace("\n", "\n   ")
        for n, text in enumerate(options)
    ]
    return "\n".join([*lines, *_warning(options)])


def pointed(options: Sequence[str], classes: str) -> str:
    """Where the options are listed, in place of a list that is too long for a cell."""
    words = f"number (1 to {len(options)}) or name of one of the classes in the file {classes}"
    return "\n".join([words, *_warning(options)])


def _warning(options: Sequence[str]) -> list[str]:
    """A line for options whose text is the letter or number of another, or a word like `none`."""
    if not is_taken(options):
        return []
    first = letter(0, len(options))
    return [
        f"(some options read like a letter, a number or a word such as none: such an answer means "
        f"the option of just that text; write {first}) for the first line, [none] for none of them)"
    ]
