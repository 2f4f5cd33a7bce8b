"""A recorded run is played again bit for bit, and a decision or refit that differs is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import run
from stacksl.core.heads.coverage import most_covering
from stacksl.errors import RunError
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.queries import LedgerReader

from ..ledgers import rows_of
from ..saved_arrays import latest_in
from .conftest import Finished, class_items


def edited(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Row, dict[str, Any]], dict[str, Any] | None]
) -> None:
    """Let ledgers read rows with other payloads, where `change` gives one, as if never hashed."""
    pages = LedgerReader._pages

    def read(self: LedgerReader, *given: Any, **more: Any) -> Iterator[list[Row]]:
        for rows in pages(self, *given, **more):
            for place, row in enumerate(rows):
                if (payload := change(row, dict(row.payload))) is not None:
                    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
                    rows[place] = replace(row, text=text)
            yield rows

    monkeypatch.setattr(LedgerReader, "_pages", read)
    monkeypatch.setattr(LedgerReader, "verify", lambda *given, **more: None)


@pytest.mark.parametrize(
    "edit", [("statistic", 0.125), ("threshold", 9.0), ("choice", None), ("state", [0.0, 1.0, 2.0])]
)
def test_a_decision_that_differs_is_named(classes: Finished, monkeypatch, edit) -> None:
    name, value = edit

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        if row.event != "round" or row.round != 17:
            return None
        return payload | {name: (payload["choice"] + 1) % 3 if name == "choice" else value}

    edited(monkeypatch, change)
    with pytest.raises(
        RunError, match="round 17 was .* but the replay got .*status RUN --settings"
    ):
        classes.run.replay()


def test_replay_notices_another_learner(tmp_path: Path) -> None:
    items, answers = class_items(60)
    done = run(items, answers, budget=12, out=tmp_path / "run")
    assert done.replay()["labels"] == 12
    saved = latest_in(done.path)
    theta = np.array(saved.arrays["scorer/theta"])
    theta[0, 0] += 1e-12
    with Ledger.open(done.path / "run.db") as ledger:
        ledger.save_arrays(saved.round, {**saved.arrays, "scorer/theta": theta})
    with pytest.raises(RunError, match="scorer/theta"):
        done.replay()


def test_another_labels_learned_changes_a_later_decision(classes: Finished, monkeypatch) -> None:
    spot = rows_of(classes.run, "learned")[0].seq

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        return {"index": (payload["index"] + 1) % 3} if row.seq in (spot, spot - 1) else None

    edited(monkeypatch, change)
    with pytest.raises(RunError, match="was recorded as"):
        classes.run.replay()


def test_batches_and_refits_of_a_pool_are_made_again_and_what_differs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"mode": "pool", "budget": 30, "open_questions": 7, "audit": 0}
    done = run(*class_items(40), out=tmp_path / "run", **settings)
    before = rows_of(done)
    assert sum(row.event == "refit" for row in before) > 2
    assert done.replay()["labels"] == 30
    assert rows_of(done) == before, "nothing is written twice"
    monkeypatch.setattr(
        "stacksl.runs.loop.choosers.most_covering",
        lambda *given: (found := most_covering(*given))._replace(items=found.items[::-1]),
    )
    with pytest.raises(
        RunError, match="round 1 was recorded .* the replay got a decision about another item"
    ):
        done.replay()


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_finished_run_is_replayed_in_whole(request, which) -> None:
    finished = request.getfixturevalue(which)
    told = finished.run.replay()
    count, refits = (12, 2) if which == "classes" else (10, 1)  # names make a head at the start
    assert told == {
        "rows": len(finished.items) + count + refits,
        "rounds": len(finished.items),
        "labels": count,
        "after": 0,
    }
