"""What `forget` refuses, and a call that was cut off, which the next one finishes."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from stacksl.api import Run
from stacksl.errors import RunError, RunLocked
from stacksl.ledger.ledger import Ledger
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.storage.folder import WAIT
from stacksl.runs.storage.tombstones import TOMBSTONES

from ..conftest import Finished
from .forgetting_cases import drop


def test_what_is_refused(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made, item = spoil(pairs), pairs.items[5]
    with pytest.raises(RunError, match="knows no item 'p999'"):
        forget(made.path, "p999")
    token = WAIT.set(0.0)
    with made.folder.locked(), pytest.raises(RunLocked, match="is held by"):
        forget(made.path, item.id)
    WAIT.reset(token)
    drop(made.path / "data.jsonl", item.id)
    with pytest.raises(RunError, match="no longer has the item 'p5'.*--data"):
        forget(made.path, item.id, data=str(made.path / "data.jsonl"))
    assert not (made.path / TOMBSTONES).exists()
    shutil.copy(pairs.run.path / "data.jsonl", made.path)
    name = forget(made.path, item.id).name
    for gone in (item.id, name):
        with pytest.raises(RunError, match="knows no item"):
            forget(made.path, gone)
    (made.path / "run.db").unlink()
    with pytest.raises(RunError, match=r"has no run\.db.*from a copy"):
        forget(made.path, item.id)


def test_a_call_that_was_cut_off_is_finished_by_the_next(
    pairs: Finished, spoil: Callable[[Finished], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, item = spoil(pairs), pairs.items[5]

    def cut_off(self: Ledger, item: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "forget", cut_off)
        with pytest.raises(KeyboardInterrupt):
            forget(made.path, item.id)
    for use in (made.resume, made.replay):
        with pytest.raises(RunError, match="interrupted: finish it with `stacksl forget"):
            use()
    told = forget(made.path, item.id)
    assert told.name in (made.path / TOMBSTONES).read_text()
    assert made.resume().status()["state"] == "finished"
    assert item.prompt.encode() not in (made.path / "report.html").read_bytes()
