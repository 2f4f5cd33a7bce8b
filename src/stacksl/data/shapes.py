"""Shapes: which columns of a table hold what, and how a row gives prompt, candidates and answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from stacksl.data.columns import find, guess_label, guess_prompt, refuse_several, require
from stacksl.data.tables import Table
from stacksl.data.values import RowFault, gold_index, is_missing, listed, options, text
from stacksl.errors import DataError

SHAPES = ("options", "mmlu", "classes")

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ANSWERS = ("answer_idx", "answerKey", "answer")  # columns that name one of an item's options


class Draft(NamedTuple):
    """A parsed row. Without `candidates` the classes of the file are meant, and `label` is
    one of them, or empty.
    """

    prompt: str
    candidates: tuple[str, ...] | None = None
    gold: int | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of one kind are read.

    Attributes:
        name: the shape's name in `Dataset.format`.
        columns: role to the column read for it.
        draft: the parsed row of these values by column, and with this id; it raises `RowFault`
            where the row cannot be used.
        also_read: columns that are read and have no role of their own.
    """

    name: str
    columns: dict[str, str]
    draft: Callable[[Mapping[str, Any], str], Draft]
    also_read: tuple[str, ...] = ()


def shape_of(
    table: Table,
    shape_name: str | None,
    roles: Mapping[str, str],
    classes: tuple[str, ...] | None,
    id: str | None,
) -> Shape:
    """The shape of a table: the one that is named, else decided on its columns and first rows.

    The user gave the `roles` their columns. No label is needed where the `classes` are known.

    Raises:
        DataError: the file has no such columns, or is of a kind that cannot be read.
    """
    if not table.columns:
        fault = next((row.fault for row in table.head if row.fault), "it has no columns")
        raise DataError(f"no row of the file can be parsed: the first says {fault}")
    columns = {}
    for role, column in roles.items():
        if role == "label" and classes is not None and column not in table.columns:
            continue  # a file to predict has no labels
        columns[role] = require(role, column, table.columns)
    name = shape_name or _recognized(table, columns, classes)
    if name == "options":
        return _options(table, columns, id)
    if name == "mmlu":
        return _lettered(table, columns, id)
    return _classes(table, columns, id, classes)


def _recognized(table: Table, roles: Mapping[str, str], classes: tuple[str, ...] | None) -> str:
    column = find("candidates", table.columns)
    has_list = column is not None and any(_holds_options(r.values.get(column)) for r in table.head)
    if has_list or "candidates" in roles or {"prompt", "candidates"} <= {*table.columns}:
        return "options"
    if not _letter_columns(table.columns):
        return "classes"
    if "answer" in table.columns:
        return "mmlu"
    draft = _lettered(table, roles, None).draft
    for row in table.head:
        with suppress(RowFault):
            texts = {*(draft(row.values, "").candidates or ())}
            if len(texts) > 1 and texts <= {*(classes or texts)}:
                return "mmlu"
    return "classes"  # the columns have no options, but are called A and B


def _holds_options(value: Any) -> bool:
    try:
        return bool(options(value)[0])
    except RowFault:
        return False


def _roles(**columns: str | None) -> dict[str, str]:
    """Role to column, without the roles that have none."""
    return {role: column for role, column in columns.items() if column is not None}


# --- a fixed set of candidates -----------------------------------------------------------------


def _classes(
    table: Table, roles: Mapping[str, str], id: str | None, classes: tuple[str, ...] | None
) -> Shape:
    """A prompt and a label of a fixed set: the classes become every item's candidates."""
    used_columns = [name for name in (roles.get("label"), id) if name]
    prompt = roles.get("prompt") or guess_prompt(table.columns, table.head, used_columns)
    label = roles.get("label") or guess_label(table.columns, table.head, [prompt, *used_columns])
    if label is None and classes is None:
        raise DataError(
            f"no column looks like the label: the file has {listed(table.columns)}"
            "; name it with --label-column; without labels give a file of classes with --classes"
            " (`stacksl topics` proposes some), or each item its own candidates"
        )

    def label_of(values: Mapping[str, Any]) -> str:
        cell = values.get(label) if label else None
        if isinstance(cell, list | tuple):
            if len(cell) > 1:
                raise RowFault("several labels: multi-label data is not supported")
            cell = cell[0] if cell else None
        return text(cell, "the label")

    if label is not None and classes is not None and "label" not in roles:
        labels = set()
        for row in table.head:
            with suppress(RowFault):
                labels.add(label_of(row.values))
        label = None if labels.isdisjoint(classes) else label
    if label is not None:
        refuse_several(label, table.head)

    def draft(values: Mapping[str, Any], id: str) -> Draft:
        return Draft(text(values.get(prompt), "the prompt"), label=label_of(values))

    return Shape("classes", _roles(prompt=prompt, label=label, id=id), draft)


# --- options of each item ----------------------------------------------------------------------


def _options(table: Table, roles: Mapping[str, str], id: str | None) -> Shape:
    """A prompt with its own list of options in one column, and the answer in another."""
    columns = table.columns
    prompt = roles.get("prompt") or find("prompt", columns) or "prompt"
    candidates = roles.get("candidates") or find("candidates", columns) or "candidates"
    require("prompt", prompt, columns)
    require("candidates", candidates, columns)
    label = roles.get("label") or next((c for c in _ANSWERS if c in columns), None)
    # the first rows may all be without the answer or the id that later ones have
    label, id = label or _named_label(table, candidates) or _ANSWERS[-1], id or "id"

    last_cell: Any = None  # a tuple that many items share is read once
    texts, keys = tuple[str, ...](), tuple[str, ...]()

    def draft(values: Mapping[str, Any], id: str) -> Draft:
        nonlocal last_cell, texts, keys
        question, cell = text(values.get(prompt), "the prompt"), values.get(candidates)
        if cell is not last_cell or not isinstance(cell, tuple):
            if is_missing(cell):
                raise RowFault("no options: the candidates are missing")
            texts, keys = options(cell)
            last_cell = cell
        return Draft(question, texts, gold_index(values.get(label), texts, keys))

    columns_read = {"prompt": prompt, "candidates": candidates, "label": label, "id": id}
    return Shape("options", columns_read, draft)


def _named_label(table: Table, candidates: str) -> str | None:
    """The column of a label's name, if it names options in the first rows wherever it is filled."""
    label = find("label", table.columns)
    if label is None:
        return None
    try:
        for row in table.head:
            if row.fault is None and not is_missing(row.values.get(candidates)):
                gold_index(row.values.get(label), *options(row.values[candidates]))
    except RowFault:
        return None
    return label


def _lettered(table: Table, roles: Mapping[str, str], id: str | None) -> Shape:
    """A prompt, one column an option (A, B, C, ...), and the letter of the answer.

    Empty columns at the end are no options.
    """
    letters = _letter_columns(table.columns)
    if not letters:
        raise DataError(
            "format 'mmlu' expects columns A, B, C, ... or no header and a letter at the end of "
            f"each row, but the file has: {listed(table.columns)}"
        )
    prompt = roles.get("prompt") or guess_prompt(table.columns, table.head, letters)
    free = [c for c in table.columns if c not in (*letters, prompt)]
    label = roles.get("label") or next((c for c in ("answer", "target") if c in free), None)
    label = label or find("label", free)

    def draft(values: Mapping[str, Any], id: str) -> Draft:
        cells = [text(values.get(name), "an option") for name in letters]
        while cells and not cells[-1]:
            cells.pop()
        keys = [letter.upper() for letter in _LETTERS[: len(cells)]]
        answer = values.get(label) if label else None
        letter = text(answer, "the answer").upper()
        gold = keys.index(letter) if letter in keys else gold_index(answer, cells, keys)
        return Draft(text(values.get(prompt), "the prompt"), tuple(cells), gold)

    return Shape("mmlu", _roles(prompt=prompt, label=label, id=id), draft, letters)


def _letter_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that are options A, B, C, ... (also option_a, option1, choice 1), in order."""
    by_letter: dict[str, str] = {}
    for name in columns:
        bare = name.strip().lower()
        for prefix in ("option", "choice", "answer"):
            if bare.startswith(prefix) and len(bare) > len(prefix):
                bare = bare.removeprefix(prefix).strip(" _-")
        if len(bare) == 1 and bare in _LETTERS:
            by_letter.setdefault(bare, name)
        elif bare != name.strip().lower() and re.fullmatch("[1-9]", bare):
            by_letter.setdefault(_LETTERS[int(bare) - 1], name)
    run = []
    for letter in _LETTERS:
        if letter not in by_letter:
            break
        run.append(by_letter[letter])
    return tuple(run) if len(run) >= 2 else ()
