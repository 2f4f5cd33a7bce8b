"""Saved arrays: bits as they were, damage passed over, and the ledger alone when none is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt
from stacksl.files.arrays import to_bytes
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Head, ItemRecord
from stacksl.ledger.store.stored import SAVED_STATES

from ..saved_arrays import damage, edit, saved_in

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
    found, warnings = ledger.latest_arrays()
    assert (found.head, found.round, warnings) == (head, 5, [])
    arrays = found.arrays
    for name, array in ARRAYS.items():
        assert arrays[name].shape == array.shape, "a scalar stays a scalar"
        assert arrays[name].dtype == array.dtype
        assert arrays[name].tobytes() == array.tobytes()


def test_the_newest_few_are_kept(ledger: Ledger) -> None:
    heads = save(ledger, 4, 6, 8, 10)
    assert [saved.head for saved in ledger.arrays()] == heads[: -SAVED_STATES - 1 : -1]
    assert [saved.round for saved in ledger.arrays(heads[-2].count)] == [4]
    assert list(ledger.arrays(heads[0].count)) == []


def test_arrays_of_the_same_row_are_replaced(ledger: Ledger) -> None:
    heads = save(ledger, 4, 6)
    end = ledger.head
    ledger.save_arrays(9, ARRAYS)
    assert [saved.head for saved in ledger.arrays()] == [end, heads[0]]
    assert [saved.round for saved in ledger.arrays()] == [9, 2]


def test_equal_arrays_that_were_saved_last_are_left(ledger: Ledger) -> None:
    save(ledger, 4, 6)
    end = ledger.head
    save(ledger, 6)
    assert ledger.head == end


def test_the_last_whole_arrays_alone_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    heads = save(ledger, 4, 6)
    damage(tmp_path, heads[1].count)
    ledger.keep_last_arrays()
    assert [saved.head for saved in ledger.arrays()] == heads[:1]


def test_edited_arrays_with_a_digest_of_their_own_are_told(ledger: Ledger, tmp_path: Path) -> None:
    old, new = save(ledger, 4, 6)
    saved = next(ledger.arrays())
    forged = saved._replace(data=to_bytes({**saved.arrays, "theta": np.zeros((3, 4))}))
    change = "UPDATE arrays SET data = ?, digest = ? WHERE seq = ?"
    edit(tmp_path, change, forged.data, forged.digest, new.count)
    found, _ = ledger.latest_arrays()
    assert found.head == old, "a resume starts from those before"
    with pytest.raises(LedgerCorrupt, match=f"row {new.count} of the table 'arrays'"):
        ledger.verify(arrays=True)


def model_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (path / "model").iterdir()}


@pytest.mark.parametrize(("which", "spare"), [("classes", 0), ("pairs", 1)])
def test_a_run_goes_on_from_what_is_left(request, spoil, which, spare) -> None:
    """With no arrays left, the ledger alone rebuilds θ, the head and the report."""
    finished = request.getfixturevalue(which)
    again = spoil(finished)
    saved = saved_in(again.path)
    assert len(saved) == SAVED_STATES
    for each in saved[: SAVED_STATES - spare]:
        damage(again.path, each.head.count)
    before = model_of(again.path)
    for path in (again.path / "model").iterdir():
        path.unlink()
    again.resume()
    assert model_of(again.path) == before
    status = again.status()
    assert status["state"] == "finished"
    said = [w for w in status["warnings"] if "are damaged" in w]
    assert len(said) == SAVED_STATES - spare
    assert all("passed over" in w for w in said)
