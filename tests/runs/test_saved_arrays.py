"""Saved arrays: bits as they were, damage passed over, and the ledger alone when none is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.files.arrays import to_bytes
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Head, ItemRecord

from ..saved_arrays import damage, edit, latest_in

ARRAYS = {
    "round": np.array(7),
    "theta": np.random.default_rng(0).normal(size=(3, 4)),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "head.coef": np.array([np.nan, -0.0, np.inf]),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger of twenty items."""
    items = [ItemRecord(f"q{n}", f"text {n}", 3) for n in range(20)]
    with Ledger.create(tmp_path / "run.db", run="r", budget=20, items=items) as made:
        yield made


def save(ledger: Ledger, *labels: int) -> list[Head]:
    """Save arrays after each so many labels were asked for; where in the chain that was."""
    heads = []
    for count in labels:
        ledger.reserve([f"q{n}" for n in range(len(ledger.open_purchases()), count)])
        ledger.save_arrays(count // 2, {**ARRAYS, "n": np.array(count)})
        heads.append(ledger.made_from)
    return heads


def test_arrays_come_back_bit_for_bit(ledger: Ledger) -> None:
    (head,) = save(ledger, 10)
    found = ledger.arrays()
    assert found is not None
    assert (found.head, found.round, found.whole) == (head, 5, True)
    arrays = found.arrays
    for name, array in ARRAYS.items():
        assert arrays[name].shape == array.shape, "a scalar stays a scalar"
        assert arrays[name].dtype == array.dtype
        assert arrays[name].tobytes() == array.tobytes()


def test_the_newest_alone_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    """Two would show what was learned between them, also of an item that is erased later."""
    assert ledger.arrays() is None
    heads = save(ledger, 4, 6)
    found = ledger.arrays()
    assert found is not None
    assert (found.head, found.round) == (heads[1], 3)
    end = ledger.head
    ledger.save_arrays(9, ARRAYS)
    found = ledger.arrays()
    assert found is not None
    assert (found.head, found.round) == (end, 9)
    with closing(sqlite3.connect(tmp_path / "run.db")) as database:
        assert database.execute("SELECT count(*) FROM arrays").fetchone() == (1,)


def test_equal_arrays_that_were_saved_last_are_left(ledger: Ledger) -> None:
    save(ledger, 4, 6)
    end = ledger.head
    save(ledger, 6)
    assert ledger.head == end


def test_edited_arrays_are_told(ledger: Ledger, tmp_path: Path) -> None:
    (head,) = save(ledger, 4)
    saved = latest_in(tmp_path)
    forged = to_bytes({**saved.arrays, "theta": np.zeros((3, 4))})
    edit(tmp_path, "UPDATE arrays SET data = ?", forged)
    assert not latest_in(tmp_path).whole
    with pytest.raises(LedgerCorrupt, match=f"row {head.count} of the table 'arrays'"):
        ledger.verify(arrays=True)
    ledger.verify()


def model_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (path / "model").iterdir()}


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_run_goes_on_without_its_arrays(request, spoil, which) -> None:
    """The ledger alone rebuilds θ, the head and the report."""
    finished = request.getfixturevalue(which)
    again = spoil(finished)
    damage(again.path)
    before = model_of(again.path)
    for path in (again.path / "model").iterdir():
        path.unlink()
    again.resume()
    assert model_of(again.path) == before
    status = again.status()
    assert status["state"] == "finished"
    said = [w for w in status["warnings"] if "are damaged" in w]
    assert len(said) == 1
    assert "passed over" in said[0]
