"""The learner's arrays in the database of a run: looked at, damaged and deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.arrays import Saved


def saved_in(run: Path) -> list[Saved]:
    """All arrays that are kept, newest first."""
    with Ledger.open(run / "run.db", readonly=True) as ledger:
        return list(ledger.arrays())


def latest_in(run: Path) -> Saved:
    """The newest whole arrays."""
    with Ledger.open(run / "run.db", readonly=True) as ledger:
        saved, _ = ledger.latest_arrays()
    assert saved is not None
    return saved


def edit(run: Path, statement: str, *values: object) -> None:
    """Execute one statement on the database, which changes a row or several."""
    with closing(sqlite3.connect(run / "run.db")) as database:
        assert database.execute(statement, values).rowcount > 0
        database.commit()


def damage(run: Path, seq: int) -> None:
    """Flip one bit of the arrays after row `seq`."""
    (data,) = (saved.data for saved in saved_in(run) if saved.head.count == seq)
    spoilt = flipped(data, len(data) // 2)
    edit(run, "UPDATE arrays SET data = ? WHERE seq = ?", spoilt, seq)


def flipped(data: bytes, place: int) -> bytes:
    """Bytes with one bit of the byte at a place flipped."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def drop(run: Path, newest: int | None = None) -> None:
    """Delete all arrays there are, or so many of the newest."""
    most = -1 if newest is None else newest
    seqs = "SELECT seq FROM arrays ORDER BY seq DESC LIMIT ?"
    with closing(sqlite3.connect(run / "run.db")) as database:
        database.execute(f"DELETE FROM arrays WHERE seq IN ({seqs})", (most,))
        database.commit()
