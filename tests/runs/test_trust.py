"""What must never pass in silence: a lost ledger, edited items, future labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stacksl.api import Run, list_runs, prepare, run
from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger

from ..saved_arrays import latest_in
from .conftest import class_items


class Cut(Exception):
    """The moment at which a run is cut off."""


@pytest.mark.parametrize("phase", ["features", "rounds"])
def test_warnings_survive_a_kill(tmp_path, phase) -> None:
    items, answers = class_items(60)
    test = (items[:3], {item.id: answers[item.id] for item in items[:3]})
    plan = prepare(items, answers, test=test, out=tmp_path / "run", settings={"budget": 20})
    assert any("3 of 3 test prompts" in warning for warning in plan.warnings)

    def cut(progress) -> None:
        if progress.phase == phase:
            raise Cut

    with pytest.raises(Cut):
        plan.start(cut)
    done = Run(tmp_path / "run").resume()
    assert any("3 of 3 test prompts" in warning for warning in done.status()["warnings"])


def test_the_curve_knows_nothing_of_later_labels(tmp_path) -> None:
    """Its point at n labels is the final model of a run whose budget was n, bought alike."""
    items, answers = class_items(80)
    test = class_items(40, seed=9)
    options = {"gate": "first", "order": "file", "test": test}
    whole = run(items, answers, budget=60, out=tmp_path / "whole", **options)
    part = run(items, answers, budget=30, out=tmp_path / "part", **options)
    curve = {p["labels"]: p["accuracy"] for p in facts(whole)["curve"]}
    assert curve[30] == facts(part)["test"]["accuracy"]


def facts(done: Run) -> dict:
    return json.loads((done.path / "facts.json").read_text())


def test_replay_notices_another_learner(tmp_path) -> None:
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


def test_one_broken_run_hides_no_other(tmp_path) -> None:
    items, answers = class_items(40)
    run(items, answers, budget=4, out=tmp_path / "a")
    run(items, answers, budget=4, out=tmp_path / "b")
    (tmp_path / "a" / "run.db").write_text("no database")
    states = {Path(row["run"]).name: row["state"] for row in list_runs(tmp_path)}
    assert states == {"a": "unreadable", "b": "finished"}
