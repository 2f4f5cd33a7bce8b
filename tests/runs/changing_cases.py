"""Runs that are given something else on their way, and the files they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run

from ..ledgers import bought
from ..tables import write_table
from .conftest import class_items
from .people_cases import Row, gold, texts_of, write_pool

POOL = pytest.mark.parametrize("mode", ["pool", pytest.param("stream", marks=pytest.mark.slow)])
"""Both, the stream in `make test-slow`: where others play the same step in a stream."""


def finished(folder: Path, *, count: int = 160, **settings: Any) -> Run:
    """A finished run of the oracle."""
    items, answers = class_items(count)
    wanted = {"budget": 20, "open_questions": 10, "mode": "pool", "class_names": False} | settings
    return run(items, answers, out=folder / "run", **wanted)


def audits(done: Run) -> list[str]:
    return [str(row["item"]) for row in bought(done, purpose="audit")]


def labeled(path: Path, *, ids: bool, first: int, count: int, seed: int = 5) -> Path:
    """A file of sentences with their classes."""
    plain = texts_of(write_pool(path.parent, count, seed=seed, first=first))
    rows = [(name, text, gold(text)) for name, text in plain.items()]
    first_column = 0 if ids else 1
    header = ("id", "text", "label")[first_column:]
    return write_table(path, header, [row[first_column:] for row in rows])


def purchases(made: Run) -> list[tuple[object, ...]]:
    """What was bought and how it was answered; times and random names left out."""
    names = ("item", "slot", "state", "kind", "answer", "purpose")
    return [tuple(row[name] for name in names) for row in bought(made)]


def unnamed(row: Row) -> str:
    """What a colleague says who misses a class and does not name it."""
    topic = gold(row["prompt"])
    return topic if topic in row["options"] else "none"


def two_of(folder: Path) -> str:
    """A file of two of the three topics of the pool."""
    (folder / "two.txt").write_text("bread\nsea\n", encoding="utf-8")
    return str(folder / "two.txt")
