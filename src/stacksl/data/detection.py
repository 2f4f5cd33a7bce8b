"""What shape a table has: native, MedQA, MMLU, preferences or classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stacksl.data.classes import BANK_ID, Bank
from stacksl.data.columns import find, guess_label, guess_prompt, refuse_several, require
from stacksl.data.shapes import (
    BankShape,
    ClassShape,
    LetteredShape,
    OptionsShape,
    PreferenceShape,
    Shape,
    letter_columns,
)
from stacksl.data.tables import Table
from stacksl.data.values import RowFault, gold_index, is_missing, listed, options
from stacksl.errors import DataError

SHAPES = ("native", "medqa", "options", "mmlu", "preferences", "classes")

_NATIVE = ("prompt", "candidates")
_MEDQA = ("question", "options", "answer_idx")


def shape_of(
    table: Table,
    wanted: str | None,
    given: Mapping[str, str],
    seed: int,
    classes: tuple[str, ...] | None,
    bank: Bank | None,
    id: str | None,
) -> Shape:
    """The shape of a table, decided on its columns and first rows.

    Args:
        table: the open file.
        wanted: a name of `SHAPES`, or None to find out.
        given: role to column, as the user says.
        seed: of the permutation of preferences.
        classes: a label set that is known already, so that no label column is needed.
        bank: the answers that all items share, if the run is over a bank.
        id: the column of the ids, if there is one.

    Raises:
        DataError: the file has no such columns, or is of a kind that cannot be read.
    """
    if not table.columns:
        first = next((row.fault for row in table.head if row.fault), "it has no columns")
        raise DataError(f"no row of the file can be parsed: the first says {first}")
    if "answer_bank_id" in table.columns and wanted is None and bank is None:
        raise DataError(
            "the file names its answers by 'answer_bank_id': give the bank of answers with --bank, "
            "or each item its own candidates"
        )
    free = classes is not None or bank is not None
    roles = {role: _checked(table, role, name, free) for role, name in given.items()}
    named = {role: name for role, name in roles.items() if name is not None}
    name = "bank" if bank is not None else wanted or _recognised(table, named)
    if bank is not None:
        return _banked(table, named, id, bank)
    if name in ("native", "medqa", "options"):
        return _options(table, name, named, id)
    if name == "mmlu":
        return _lettered(table, named, id)
    if name == "preferences":
        return _preferences(table, named, id, seed)
    return _classes(table, named, id, classes)


def _checked(table: Table, role: str, name: str, classes: bool) -> str | None:
    if role == "label" and classes and name not in table.columns:
        return None  # a file to predict has no labels
    return require(role, name, table.columns, table.head)


def _recognised(table: Table, given: Mapping[str, str]) -> str:
    columns = set(table.columns)
    if "candidates" in given:
        return "options"
    if {"chosen", "rejected"} <= columns or "responses" in columns:
        return "preferences"
    if columns.issuperset(_NATIVE):
        return "native"
    if columns.issuperset(_MEDQA):
        return "medqa"
    column = find("candidates", table.columns)
    if column is not None and any(_holds_options(r.values.get(column)) for r in table.head):
        return "options"
    if letter_columns(table.columns):
        return "mmlu"
    return "classes"


def _holds_options(value: Any) -> bool:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return isinstance(value, list | Mapping) and len(value) > 0


def _options(table: Table, name: str, given: Mapping[str, str], id: str | None) -> OptionsShape:
    columns = table.columns
    defaults = {
        "native": ("prompt", "candidates", "answer"),
        "medqa": ("question", "options", "answer_idx"),
        "options": (
            find("prompt", columns) or "prompt",
            find("candidates", columns) or "candidates",
            next((c for c in ("answer_idx", "answerKey") if c in columns), None)
            or find("label", columns),
        ),
    }[name]
    prompt = require("prompt", given.get("prompt", defaults[0] or "prompt"), columns, table.head)
    candidates = require(
        "candidates", given.get("candidates", defaults[1] or "candidates"), columns, table.head
    )
    # the first rows may all be without the answer or the id that later ones have
    label = given.get("label") or defaults[2]
    if name == "native" and label == "answer" and label not in columns:
        label = _named_label(table, candidates) or label
    return OptionsShape(
        name, prompt, candidates, label, id or ("id" if name != "options" else None)
    )


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


def _lettered(table: Table, given: Mapping[str, str], id: str | None) -> LetteredShape:
    letters = letter_columns(table.columns)
    if not letters:
        raise DataError(
            "format 'mmlu' expects columns A, B, C, ... or no header and a letter at the end of "
            f"each row, but the file has: {_listed(table)}"
        )
    prompt = given.get("prompt") or guess_prompt(table.columns, table.head, letters)
    free = [c for c in table.columns if c not in (*letters, prompt)]
    label = given.get("label") or next((c for c in ("answer", "target") if c in free), None)
    return LetteredShape(prompt, letters, label or find("label", free), id)


def _preferences(
    table: Table, given: Mapping[str, str], id: str | None, seed: int
) -> PreferenceShape:
    if "responses" not in table.columns:
        for name in ("chosen", "rejected"):
            require("responses", name, table.columns, table.head)
    prompt = given.get("prompt") or find("prompt", table.columns)
    if prompt is None and {"chosen", "rejected"} <= set(table.columns):
        return PreferenceShape(None, seed, id)
    prompt = prompt or "prompt"
    return PreferenceShape(require("prompt", prompt, table.columns, table.head), seed, id)


def _classes(
    table: Table, given: Mapping[str, str], id: str | None, classes: tuple[str, ...] | None
) -> ClassShape:
    taken = [name for name in (given.get("label"), id) if name]
    prompt = given.get("prompt") or guess_prompt(table.columns, table.head, taken)
    label = given.get("label") or guess_label(table.columns, table.head, [prompt, *taken])
    if label is None and classes is None:
        raise DataError(
            f"no column looks like the label: the file has {_listed(table)}; say which "
            "with --label-column, name the classes in a file with --classes, or give each item "
            "its own candidates"
        )
    if label is not None and classes is not None and "label" not in given:
        values = {str(row.values.get(label)).strip() for row in table.head}
        label = None if values.isdisjoint(classes) else label
    if label is not None:
        refuse_several(label, table.head)
    return ClassShape(prompt, label, id)


def _banked(table: Table, named: Mapping[str, str], id: str | None, bank: Bank) -> BankShape:
    label = named.get("label")
    if label is None:
        known = (*BANK_ID, find("label", table.columns))
        label = next((name for name in known if name in table.columns), None)
    taken = [name for name in (label, id) if name]
    prompt = named.get("prompt") or guess_prompt(table.columns, table.head, taken)
    return BankShape(prompt, label, bank, id)


def _listed(table: Table) -> str:
    return listed(table.columns, (row.values for row in table.head))
