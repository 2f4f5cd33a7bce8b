"""A stream that was stopped goes on without the item, as far as it can be computed again."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.runs.changes.forgetting import forget

from ..conftest import class_items
from .forgetting_cases import learnt_of, oracle_of, stopping, verify, write_items


def stopped(folder: Path, kind: str, after: int, **settings: Any) -> tuple[Path, Run]:
    """A stream that was stopped after so many labels, without saved arrays, and its data."""
    data = write_items(folder / "data.jsonl", 60, None)
    if kind == "classes":
        items, answers = class_items(60)
        rows = [{"text": i.prompt, "label": i.candidates[answers[i.id]]} for i in items]
        data = folder / "data.csv"
        with data.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("text", "label"))
            writer.writeheader()
            writer.writerows(rows)
    spec = {"budget": 24, "audit": 0, "mode": "stream", "checkpoint_every": 1000, **settings}
    with pytest.raises(KeyboardInterrupt):
        run(data, out=folder / "r", labeler=stopping(oracle_of(data), after), **spec)
    return data, Run(folder / "r")


@pytest.mark.parametrize("kind", ["pairs", "classes"])
def test_a_stream_goes_on_and_is_replayed_from_there(tmp_path: Path, kind: str) -> None:
    data, made = stopped(tmp_path, kind, after=9)
    learnt = learnt_of(made)
    item = list(learnt)[4]
    told = forget(made.path, item)
    assert told.learnt
    answers = oracle_of(data)
    data.unlink()
    made.resume(labeler=stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    verify(made.path)
    again = made.replay()
    with made.ledger as ledger:
        later = [row for row in ledger.rows(again["after"]) if row.event == "round"]
    assert 0 < len(later) < 60
    assert again["rows"] >= len(later)
    assert item not in learnt_of(made)


@pytest.mark.parametrize("gate", ["margin", "llf"])
def test_the_learner_is_what_it_was_when_the_item_was_forgotten(tmp_path: Path, gate: str) -> None:
    """The one that goes on after it is that of a run that was resumed without forgetting.

    The scale of the gate `llf` was calibrated on the first items, this one among them.
    """
    data, made = stopped(tmp_path, "pairs", after=9, gate=gate)
    other = Run(shutil.copytree(made.path, tmp_path / "other"))
    with made.ledger as ledger:
        rounds = [row for row in ledger.rows() if row.event == "round"]
    seen = [row.item for row in rounds if gate == "llf" or not row.decision().asked]
    forget(made.path, str(seen[0]))
    for each in (made, other):
        each.resume(labeler=stopping(oracle_of(data), None))
    arrays = [each.folder.model / "online.safetensors" for each in (made, other)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()
    assert [*learnt_of(made).values()][-9:] == [*learnt_of(other).values()][-9:]
    assert made.replay()["after"] > other.replay()["after"] == 0
