"""Formats of results: JSON for scripts, aligned facts for people."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.errors import RunWarning
from stacksl.report.wording import MICRO, count, money, plural

if TYPE_CHECKING:
    from stacksl.data import Dataset

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for line ends and tabs, and those that turn the direction of text."""


def as_json(value: object) -> str:
    """`value` as one line of JSON: paths as text, numbers that are not finite as null.

    Where stdout cannot take every character, all but ASCII is written in JSON's own escapes.
    """
    narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_plain(value), ensure_ascii=narrow, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # an array or a scalar of NumPy
        return _plain(value.tolist())
    if isinstance(value, Iterable):
        return [_plain(entry) for entry in value]
    return str(value)


def as_toml(value: object) -> str:
    r"""A number, a text or a list of these as TOML writes it.

    >>> as_toml(["a\x7f", 1, True])
    '["a\\u007f", 1, true]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def visible(text: str) -> str:
    r"""`text` with control characters escaped, so that no text of a file commands the terminal.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, one per line, the values below each other; a value of None is left out."""
    lines = [(name, visible(str(value))) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def with_labels(rows: int, blank: Mapping[str, int], place: str = "") -> str:
    """How many rows of a table at a `place` have labels; `blank` are those without, by source."""
    if not (without := sum(blank.values())):
        return f"{plural(rows, 'row')} with labels{place}"
    why = ", ".join(f"{count(n)} {source}" for source, n in blank.items() if n)
    return f"{plural(rows, 'row')}{place}, {count(without)} of them without a label: {why}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell, under `header`; None shows as nothing."""
    cells = [list(header), *([("" if c is None else visible(str(c))) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def share(value: float | None) -> str | None:
    """A share with three decimals, or None where there is none."""
    return None if value is None or not math.isfinite(value) else f"{value:.3f}"


def spent(result: Mapping[str, Any]) -> str | None:
    """What a run spent of its money, by its `status`; None where labels have no price."""
    if (amounts := result["money"]) is None:
        return None
    total, budget = (money(round(amounts[key] * MICRO)) for key in ("spent", "budget"))
    reserves = result["state"] != "finished" and result["spent"] > result["answered"]
    return f"{total} of {budget}, paid or reserved" if reserves else f"{total} of {budget}"


def quality(result: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What a status says: an earlier report, the model, and in two rows the table's labels."""
    names = {"stated": "New rows", "test": "On the test file"}
    if not result["evaluates"]:  # else the model that is judged is the other run's
        names["audit"] = "Final model" if result["column"] else "By the audit"
    names |= {"column": "Labels you had", "table": "Right in the table"}
    # A rule without an outcome.
    idle = " did not end the run" if result["state"] == "finished" else ""
    return [
        ("Last report", result["last_report"]),
        *((title, result[name]["sentence"]) for name, title in names.items() if result[name]),
        ("Stop rule", result["stopped"] or (result["stop_when"] and result["stop_when"] + idle)),
    ]


def gate(table: Mapping[str, Any]) -> str | None:
    """How labels are chosen by the settings in a `table`; None of a column, whose doubt chooses."""
    kind = [table.get(name) for name in ("mode", "lm.adapt", "lm.normalization")]
    draws = kind == ["pool", "lora", "auto"]
    start = ", after up to 25 labels drawn at random" if draws else ""
    return None if table.get("model_labels") else f"{table['gate.name']}{start}"


def rejected(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows of a file that cannot be used, and why."""
    return [{"row": row.row, "id": row.id, "reason": row.reason} for row in dataset.rejected]


@contextmanager
def printed_warnings() -> Iterator[None]:
    """What code warns its user of is printed as a sentence, without a place in the code."""
    others = warnings.showwarning

    def show(message: Any, *where: Any, **more: Any) -> None:
        if isinstance(message, UserWarning):
            warn([str(message)])
        else:
            others(message, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RunWarning)
        warnings.showwarning = show
        yield


def warn(sentences: Iterable[str]) -> None:
    """Warnings, one per line, on stderr; an empty one is none."""
    for sentence in filter(None, sentences):
        print(f"warning: {visible(sentence)}", file=sys.stderr)
