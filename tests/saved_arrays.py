"""The database of a run: its tables looked at, damaged and deleted, most of all the arrays."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.settings import Setting
from stacksl.ledger.store.stored import Saved


def latest_in(run: Path) -> Saved:
    """The saved arrays, which may be damaged."""
    with Ledger.open(run / "run.db", readonly=True) as ledger:
        saved = ledger.arrays()
    assert saved is not None
    return saved


def edit(place: Path, statement: str, *values: object) -> None:
    """Execute one statement on a database, or that of a run, which changes a row or several."""
    with closing(sqlite3.connect(place / "run.db" if place.is_dir() else place)) as database:
        assert database.execute(statement, values).rowcount != 0
        database.commit()


def damage(run: Path) -> None:
    """Flip one bit of the saved arrays."""
    data = latest_in(run).data
    edit(run, "UPDATE arrays SET data = ?", flipped(data, len(data) // 2))


def set_of(run: Path, name: str, value: Any) -> None:
    """Set one of the settings of a run."""
    with Ledger.open(run / "run.db") as ledger:
        ledger.change_settings({name: Setting(value)})


def flipped(data: bytes, place: int) -> bytes:
    """Bytes with one bit of the byte at a place flipped."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def drop(run: Path) -> None:
    """Delete the saved arrays."""
    edit(run, "DELETE FROM arrays")


def filled_places(path: Path, tables: tuple[str, ...]) -> list[int]:
    """Where the pages of some tables of a database hold something."""
    marks = ", ".join("?" for _ in tables)
    with closing(sqlite3.connect(path)) as database:
        (size,) = next(database.execute("PRAGMA page_size"))
        query = f"SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name IN ({marks})"
        roots = [root for (root,) in database.execute(query, tables)]
    data = path.read_bytes()
    pages = list(roots)
    for root in pages:  # grows: an interior page names those below it
        start = (root - 1) * size
        if data[start] == 5:
            cells = int.from_bytes(data[start + 3 : start + 5])
            spots = [int.from_bytes(data[start + 12 + 2 * n :][:2]) for n in range(cells)]
            pages += [int.from_bytes(data[start + spot :][:4]) for spot in spots]
            pages.append(int.from_bytes(data[start + 8 : start + 12]))
    inside = (n for page in pages for n in range((page - 1) * size, page * size))
    return [place for place in inside if data[place]]
