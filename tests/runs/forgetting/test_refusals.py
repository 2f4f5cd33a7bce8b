"""What `forget` refuses, and a call that was cut off, which the next one finishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stacksl.api import Run
from stacksl.errors import LedgerError, RunError, RunLocked
from stacksl.ledger.store.database import Store
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.storage.folder import WAIT

from ..conftest import Finished


def test_what_is_refused(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made, item = spoil(pairs), pairs.items[5]
    with pytest.raises(RunError, match="knows no item 'p999'"):
        forget(made.path, "p999")
    token = WAIT.set(0.0)
    with made.folder.locked(), pytest.raises(RunLocked, match="is held by"):
        forget(made.path, item.id)
    WAIT.reset(token)
    name = forget(made.path, item.id).name
    for gone in (item.id, name):
        with pytest.raises(RunError, match="knows no item"):
            forget(made.path, gone)
    (made.path / "run.db").unlink()
    with pytest.raises(RunError, match=r"has no run\.db.*from a copy"):
        forget(made.path, item.id)


def test_a_reader_in_the_way_leaves_the_mark_alone(
    pairs: Finished, spoil: Callable[[Finished], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, item = spoil(pairs), pairs.items[5]

    def busy(self: Store) -> None:
        raise LedgerError("the ledger is read by another process")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "wipe", busy)
        for command in (lambda: forget(made.path, item.id), lambda: Run.open(made.path)):
            with pytest.raises(LedgerError, match="read by another process"):
                command()
            assert made.folder.erasing(), "what is left are bytes in the database"
            assert not made.folder.has_results()
    with pytest.raises(RunError, match="any command on the run finishes it"):
        made.resume()
    assert Run.open(made.path).resume().status()["state"] == "finished"
    assert item.prompt.encode() not in (made.path / "run.db").read_bytes()
