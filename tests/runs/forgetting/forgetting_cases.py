"""Words planted in one item, the files that hold them, and runs that stop before their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from stacksl.api import Run
from stacksl.labels.labelers import Pending
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Head, Purchase
from stacksl.runs.checkpoints import heads

from ..conftest import pair_items

CANARY = "zyx"
ID, PROMPT, OPTION, RIGHT, NOTE = (CANARY + w for w in ("id", "prompt", "option", "right", "note"))


def write_items(path: Path, count: int, canary: int | None) -> Path:
    """Questions with options of their own; item number `canary` is the one to forget."""
    items, answers = pair_items(count)
    with path.open("w", encoding="utf-8") as file:
        for n, item in enumerate(items):
            row = {"id": item.id, "prompt": item.prompt, "candidates": list(item.candidates)}
            if n == canary:
                row |= {"id": ID, "prompt": f"{item.prompt}, {PROMPT} at length"}
                row["candidates"] = [f"{OPTION} {k}" for k in range(len(item.candidates))]
            file.write(json.dumps({**row, "answer": answers[item.id]}) + "\n")
    return path


def drop(path: Path, id: str = ID) -> None:
    """The user deletes a row."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["id"] != id]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept), encoding="utf-8")


def holding(*places: Path) -> set[str]:
    """The names of the files that hold a canary, read as bytes; of tables their cells, too."""
    import pyarrow.parquet as pq

    found = set()
    for place in places:
        for path in (p for p in place.rglob("*") if p.is_file()):
            told = path.read_bytes().lower()
            if path.suffix == ".parquet":  # it may be compressed
                told += repr(pq.read_table(path).to_pydict()).encode()
            if CANARY.encode() in told or CANARY in path.name:
                found.add(path.name)
    return found


def verify(path: Path) -> None:
    with Ledger.open(path / "ledger.db", readonly=True) as ledger:
        ledger.verify(Head(*mark) for mark in heads(path / "checkpoints"))


class Stopping:
    """Who answers what the data file says, and gives up after so many answers."""

    name = "oracle of a test"
    repeatable = True

    def __init__(self, answers: Mapping[str, int], after: int | None) -> None:
        self._answers, self._left = answers, after
        self._asked: dict[tuple[str, int], Purchase] = {}

    def ask(self, purchases: Sequence[Purchase]) -> None:
        self._asked |= {(each.item, each.token): each for each in purchases}

    def answers(self) -> list[Answer]:
        asked, self._asked = self._asked, {}
        if self._left is not None:
            self._left -= len(asked)
            if self._left < 0:
                raise KeyboardInterrupt
        return [
            Answer(p.item, p.slot, p.token, self._answers[p.item], self.name)
            for p in asked.values()
        ]

    def pending(self) -> list[Pending]:
        return []


def oracle_of(data: Path) -> Mapping[str, int]:
    from stacksl.data import read

    return read(data).answers


def learnt_of(made: Run) -> dict[str, int]:
    """The items learnt so far and their rounds, in order."""
    with made.ledger as ledger:
        rounds = {r.item: r.round for r in ledger.rows() if r.event == "round"}
        return {str(r.item): rounds[r.item] or 0 for r in ledger.rows() if r.event == "learnt"}
