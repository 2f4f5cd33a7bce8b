"""Words planted in one item, the files that hold them, and runs that stop before their end."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stacksl import Item
from stacksl.api import Run, run
from stacksl.labelers.protocol import Request
from stacksl.ledger.ledger import Ledger

from ...ledgers import handed_rows, rows_of
from ..conftest import pair_items
from ..people_cases import read_rows, write_rows

CANARY = "zyxwvutzyx"
ID, PROMPT, OPTION, RIGHT, NOTE = (CANARY + w for w in ("id", "prompt", "option", "right", "note"))


def write_items(path: Path, count: int, canary: int | None) -> Path:
    """Questions with options of their own; item number `canary` is the one to forget."""
    plain, answers = pair_items(count)
    items = plain if canary is None else with_canary(plain, canary)
    with path.open("w", encoding="utf-8") as file:
        for item, before in zip(items, plain, strict=True):
            row = {"id": item.id, "prompt": item.prompt, "candidates": item.candidates}
            file.write(json.dumps({**row, "answer": answers[before.id]}) + "\n")
    return path


def with_canary(items: Sequence[Item], place: int) -> list[Item]:
    """Items in which number `place` is the one to forget."""
    found = list(items)
    options = tuple(f"{OPTION} {k}" for k in range(len(items[place].candidates)))
    found[place] = Item(ID, f"{items[place].prompt}, {PROMPT} at length", options)
    return found


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
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        ledger.verify()


def stopping(answers: Mapping[str, int], after: int | None) -> Callable[[Request], int]:
    """Who answers what the data file says, and gives up after so many answers."""
    asked = itertools.count(1)

    def oracle_of_a_test(request: Request) -> int:
        if after is not None and next(asked) > after:
            raise KeyboardInterrupt
        return answers[request.item]

    return oracle_of_a_test


def oracle_of(data: Path) -> Mapping[str, int]:
    from stacksl.data import read

    return read(data).answers


def learned_of(made: Run) -> dict[str, int]:
    """The items learned so far and their rounds, in order."""
    rounds = {r.item: r.round for r in rows_of(made, "round")}
    return {str(r.item): rounds[r.item] or 0 for r in rows_of(made, "learned")}


def fill(sheet: Path) -> Path:
    """The colleague's copy of a sheet: notes everywhere, and of the canary none is right once."""
    rows = read_rows(sheet)
    for row in rows:
        mine = PROMPT in row["prompt"]
        wrong = mine and sheet.name.endswith("anna.csv")
        row["answer"] = f"[none]: {RIGHT}" if wrong else "a"
        row["note"] = NOTE if mine else "fine"
    copy = sheet.parents[2] / "answers" / sheet.name
    copy.parent.mkdir(exist_ok=True)
    return write_rows(copy, rows)


def asked_by_people(folder: Path, *, until: str) -> tuple[Path, Run]:
    """A run whose two people were both asked for the canary, and its data."""
    plan: dict[str, Any] = {
        "mode": "pool",
        "open_questions": 6,
        "budget": 16,
        "audit": 0,
        "labeler": "file",
        "sheets.format": "csv",
    }
    plan |= {"annotators": "anna,ben", "sheets.overlap": 3}
    plain = run(write_items(folder / "plain.jsonl", 24, None), out=folder / "plain", **plan)
    asked = Counter(row.item for row in handed_rows(plain))
    for canary in (int(item[1:]) for item, times in asked.items() if times == 2):
        data = write_items(folder / "data.jsonl", 24, canary)  # another prompt: it may be left out
        made = run(data, out=folder / "r", **plan)
        sheets = sorted((folder / "r" / "ask").glob("*-*.csv"))
        if sum(PROMPT in sheet.read_text(encoding="utf-8") for sheet in sheets) == 2:
            break
        shutil.rmtree(folder / "r")
    done: set[Path] = set()
    while until == "finished" and made.status()["state"] == "waiting":
        new = [s for s in sorted((folder / "r" / "ask").glob("0*.csv")) if s not in done]
        assert new, "the run waits, and nobody is asked"
        done.update(new)
        made.answer(*map(fill, new))
    assert made.status()["state"] == until
    return data, made
