"""Which column is the prompt, the label or the id: by name, then by content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from statistics import mean
from typing import TYPE_CHECKING, Any

from stacksl.data.values import RowFault, is_missing, listed, text
from stacksl.errors import DataError, SettingsError, unknown_name

if TYPE_CHECKING:
    from stacksl.data.tables import Row

ROLES = ("prompt", "label", "id", "candidates")

_PROMPTS = """prompt text question sentence query utterance question_stem instruction input message
content title review comment description body document"""
_LABELS = """label_text label_name label category class intent topic target answer gold sentiment
tag labels categories classes intents topics tags y"""
_NAMES = {
    "prompt": _PROMPTS.split(),
    "label": _LABELS.split(),
    "id": ["id", "_id", "uid", "guid", "item_id", "example_id", "question_id", "qid"],
    "candidates": ["candidates", "options", "choices", "endings"],
}
_ID_WORDS = ("id", "uuid", "guid", "uid", "qid")
_CASE = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # ticket|Id, URL|Id


class Column(str):
    """The name of a column, with its `type` in a Parquet file, or its `header` as it was given."""

    __slots__ = ("header", "type")
    header: str
    type: Any


def check_roles(columns: Mapping[str, str] | None) -> dict[str, str]:
    """The mapping that the user gave, as a dict of known roles.

    Raises:
        SettingsError: a key that is no role, or one column for prompt and label.
    """
    for role in columns or {}:
        if role not in ROLES:
            raise unknown_name("column role", role, ROLES)
    if columns and "prompt" in columns and columns["prompt"] == columns.get("label"):
        raise SettingsError(
            f"prompt and label should be different columns, got '{columns['label']}' for both"
        )
    return dict(columns or {})


def roles_of(text: str) -> dict[str, str]:
    """The columns that a text such as `text=message,label=topic` names, by their roles.

    Raises:
        SettingsError: it has another form, or a role that is none.

    >>> roles_of("text=message,label=topic")
    {'prompt': 'message', 'label': 'topic'}
    """
    pairs = [[side.strip() for side in part.split("=", 1)] for part in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise SettingsError(f"columns are named as in text=message,label=topic, got '{text}'")
    return check_roles({"prompt" if role == "text" else role: name for role, name in pairs})


def usual_columns(usual: Mapping[str, str], columns: Sequence[str]) -> dict[str, str]:
    """The `usual` columns by role, without an id, a label or options that the file does not have.

    For a prompt that it does not have stands the column whose name says that it holds one, or the
    only one of a file without a header.
    """
    free = ("id", "label", "candidates")
    by_role = {role: name for role, name in usual.items() if role not in free or name in columns}
    if "prompt" in by_role and by_role["prompt"] not in columns:
        texts = columns[0] if tuple(columns) == ("column 1",) else by_role["prompt"]
        by_role["prompt"] = find("prompt", columns) or texts
    return by_role


def find(role: str, columns: Sequence[str]) -> str | None:
    """The column whose name says that it holds `role`, in any case of letters."""
    lower = {name.lower().strip(): name for name in reversed(columns)}
    return next((lower[n] for n in _NAMES[role] if n in lower), None)


def names_columns(cells: Sequence[str]) -> bool:
    """Whether one of the cells of a first row is a usual name of a column."""
    return any(find(role, cells) for role in ROLES)


def require(role: str, name: str, columns: Sequence[str]) -> str:
    """`name`, if it is one of the `columns`.

    Raises:
        DataError: it is not; names the columns there are and the nearest one.
    """
    if name in columns:
        return name
    matches = get_close_matches(name, columns, n=1)
    hint = f"did you mean '{matches[0]}'? " if matches else ""
    flag = f"; say which with --{role}-column" if role in ("prompt", "label", "id") else ""
    raise DataError(
        f"there is no column '{name}' for the {role}: {hint}the file has {listed(columns)}{flag}"
    )


def is_plain_id(column: str) -> bool:
    """Whether the column is called `id`: then it is the id, whether or not its cells are unique."""
    return column.strip().lower() == "id"


def guess_id(columns: Sequence[str], head: Sequence[Row], taken: Sequence[str]) -> str | None:
    """The id's column: `id`, else the first that is named like one and unique in the `head`."""
    free = [c for c in columns if c not in taken and is_named_id(c)]
    plain_id = next(filter(is_plain_id, free), None)
    return plain_id or next((c for c in free if _is_unique(c, head)), None)


def is_named_id(column: str) -> bool:
    """Whether the last word is that of an id: `ticket_id`, `Ticket ID`, `ticketId`, not `paid`."""
    words = re.findall(r"[^\W_]+", _CASE.sub(" ", column))
    return "".join(words[-1:]).lower() in _ID_WORDS


def _is_unique(column: str, head: Sequence[Row]) -> bool:
    """Whether no two rows have the same value; one without may be unusable."""
    try:
        ids = [text(row.get(column), "the id") for _, row, fault in head if fault is None]
    except RowFault:
        return False
    filled = [id for id in ids if id]
    return 0 < len(filled) == len({*filled})


def guess_prompt(columns: Sequence[str], head: Sequence[Row], taken: Sequence[str]) -> str:
    """The prompt's column: one with a known name, mostly filled, else that of the longest texts."""
    free = [c for c in columns if c not in taken]
    empty = {c: sum(is_missing(row.values.get(c)) for row in head) for c in free}
    column = find("prompt", [c for c in free if 2 * empty[c] <= len(head)]) or find("prompt", free)
    if column is not None:
        return column
    texts = [c for c in free if find("label", [c]) is None and not is_named_id(c)]
    if not texts:
        raise DataError(
            f"no column looks like the prompt: the file has {listed(columns)}; "
            "say which with --prompt-column, or columns={'prompt': NAME} in Python"
        )
    return max(
        texts, key=lambda c: mean([len(str(row.values.get(c) or "")) for row in head] or [0])
    )


def guess_label(columns: Sequence[str], head: Sequence[Row], taken: Sequence[str]) -> str | None:
    """The label's column: by its name, else the only one not `taken` if its values repeat."""
    free = [c for c in columns if c not in taken and c != find("id", [c])]
    column = find("label", free)
    if column is not None:
        return column
    if len(free) != 1:
        return None
    values = {str(row.values.get(free[0])) for row in head if row.fault is None}
    return free[0] if len(values) <= max(2, len(head) // 2) else None


def refuse_several(label: str, head: Sequence[Row]) -> None:
    """Refuse a column whose cells hold several labels each: lists, or names joined by | ; or ,.

    Raises:
        DataError: the data is multi-label.
    """
    cells = [row.values.get(label) for row in head if row.fault is None]
    lists: list[object] = [c for c in cells if isinstance(c, list | tuple) and len(c) > 1]
    texts = [c.strip() for c in cells if isinstance(c, str)]
    lists.extend(t for t in texts if t[:1] == "[" and t[-1:] == "]" and "," in t)
    if not lists and not any(_joined(texts, separator) for separator in "|;,"):
        return
    raise DataError(
        f"the column '{label}' gives several labels per item, and multi-label data is not "
        "supported: give one label per item, or pick another column with --label-column"
    )


def _joined(texts: Sequence[str], separator: str) -> bool:
    """Whether the cells are lists: fewer names than there are combinations of them."""
    lists = {t for t in texts if separator in t.strip(separator)}
    names = {name.strip() for t in texts for name in t.split(separator)}
    share = sum(t in lists for t in texts) / max(1, len(texts))
    return len(lists) > 1 and share >= 0.1 and len(names) < len(set(texts))
