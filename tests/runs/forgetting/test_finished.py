"""A finished run forgets an item: its report, its model, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from stacksl.api import run
from stacksl.runs.changes.forgetting import forget

from ..conftest import class_items


def test_the_final_model_is_fitted_again_without_its_label(tmp_path: Path) -> None:
    """And on every label that is bought afterwards."""
    items, answers = class_items(60)
    made = run(items, answers, budget=12, out=tmp_path / "run", features="hashing", mode="pool")
    before = (made.folder.model / "head.safetensors").read_bytes()
    with made.ledger as ledger:
        learnt = [row for row in ledger.rows() if row.event == "learnt"]
    forget(made.path, str(learnt[4].item))
    made.resume()
    assert (made.folder.model / "head.safetensors").read_bytes() != before
    left = {item.id: answers[item.id] for item in items if item.id != learnt[4].item}
    made.change(budget=14, labeler=lambda request: left[request.item])
    with made.ledger as ledger:
        last = [row.payload for row in ledger.rows() if row.event == "refit"][-1]
    assert (last["labels"], last["tune"]) == (13, True)
