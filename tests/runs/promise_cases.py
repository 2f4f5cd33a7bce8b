"""Runs with the stop rule `right=R` over small tables, and what each look found."""

from __future__ import annotations

from typing import Any

from stacksl.api import Run

from ..ledgers import rows_of
from .conftest import class_items

ITEMS, ANSWERS = class_items(300)
PLAN: dict[str, Any] = {"budget": 260, "mode": "pool", "stop_when": "right=90%"}
PEOPLE: dict[str, Any] = {
    "count": 240,
    "budget": 230,
    "open_questions": 40,
    "class_names": True,
    "stop_when": "right=85%",
}
THREE = {**PEOPLE, "budget": 400, "annotators": "anna,ben,carl"}


def looks(made: Run) -> list[dict[str, Any]]:
    """What each look found."""
    return [dict(row.payload) for row in rows_of(made, "looked")]
