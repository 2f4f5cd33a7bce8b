"""Tickets with a column of labels, and runs over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import stacksl

from .people_cases import Row, write_rows

TOPICS = ("branches", "cards", "loans", "rates")
COUNT = 160


def tickets(count: int = COUNT, right: float = 0.85) -> list[dict[str, str]]:
    """Texts that name their topic, and labels of a model that takes some for the next topic."""
    rng, rows = np.random.default_rng(5), []
    for n in range(count):
        topic = n % 4
        said = topic if rng.random() < right else (topic + 1) % 4
        word = TOPICS[topic][:4]
        text = f"{word}{rng.integers(6)} {word}x w{rng.integers(9)} n{n}"
        row = {"ticket_id": f"T{n}", "text": text, "gpt": TOPICS[said], "truth": TOPICS[topic]}
        rows.append(row)
    return rows


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    return write_rows(folder / "tickets.csv", rows)


def column_run(data: Any, folder: Path, **settings: Any) -> stacksl.Run:
    """A run in `folder` over the column `gpt` of a file, a frame or rows, which `truth` answers."""
    data = str(write(folder, data)) if isinstance(data, list) else data
    given = {"model_labels": "gpt", "labeler": "oracle", "columns.label": "truth", "seed": 3}
    given |= {"features": "hashing", "audit": 40, "budget": 80, "out": folder / "run"}
    return stacksl.run(data, **{k: v for k, v in (given | settings).items() if v is not None})


def without_truth(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows as people get them, whose answers are not in the file."""
    return [{name: value for name, value in row.items() if name != "truth"} for row in rows]


def facts_of(run: stacksl.Run) -> dict[str, Any]:
    return dict(json.loads((run.path / "facts.json").read_text()))


def truth(row: Row) -> str:
    return next(topic for topic in TOPICS if row["prompt"].startswith(topic[:4]))


PEOPLE: Mapping[str, Any] = dict.fromkeys(("labeler", "columns.label", "budget"))
PEOPLE = {**PEOPLE, "sheets.format": "csv"}
THREE = {**PEOPLE, "annotators": "anna,ben,cleo", "open_questions": 40}
