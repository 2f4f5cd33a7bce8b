"""What must never pass in silence: a lost ledger, edited items, future labels."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stacksl import Item
from stacksl.api import Run, list_runs, prepare, run
from stacksl.errors import DataError, FeatureError, LedgerCorrupt, RunError, SettingsError
from stacksl.ledger.ledger import Ledger
from stacksl.runs.settings.resolve import resolve

from ..saved_arrays import latest_in
from .conftest import class_items, pair_items


class Cut(Exception):
    """The moment at which a run is cut off."""


def half_run(folder: Path, items, answers, *, budget: int = 20) -> Run:
    """A run that was cut off in the middle of its rounds."""

    def cut(progress) -> None:
        if progress.phase == "rounds" and progress.done >= 30:
            raise Cut

    with pytest.raises(Cut):
        run(items, answers, budget=budget, out=folder, progress=cut, checkpoint_every=10)
    return Run(folder)


@pytest.fixture
def cut_off(tmp_path, monkeypatch) -> Run:
    monkeypatch.setattr("stacksl.runs.loop.progress.OFTEN", 0.0)
    items, answers = class_items(60)
    return half_run(tmp_path / "run", items, answers)


def test_a_lost_ledger_is_never_made_anew(cut_off) -> None:
    for path in cut_off.path.glob("run.db*"):
        path.unlink()
    with pytest.raises(RunError, match=r"has no run\.db.*restore the file from a copy"):
        cut_off.resume()
    with pytest.raises(RunError, match=r"another run without its run\.db"):
        run(*class_items(60), budget=12, out=cut_off.path)
    assert not (cut_off.path / "run.db").exists()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE items SET place = place + 100",
        "UPDATE items SET answer = (answer + 1) % 3",
        "UPDATE items SET prompt = 'another' WHERE place = 7",
    ],
)
def test_edited_items_are_refused(cut_off, edit) -> None:
    with closing(sqlite3.connect(cut_off.path / "run.db")) as database, database:
        database.execute(edit)
    with pytest.raises((LedgerCorrupt, FeatureError), match="edited|same order"):
        cut_off.resume()


@pytest.mark.parametrize("phase", ["features", "rounds"])
def test_warnings_survive_a_kill(tmp_path, monkeypatch, phase) -> None:
    monkeypatch.setattr("stacksl.runs.loop.progress.OFTEN", 0.0)
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


def test_a_test_set_of_yes_and_no_fits_items_with_their_own_options(tmp_path) -> None:
    items, answers = pair_items(40)
    test = [Item(f"t{n}", f"is it {n}", ("yes", "no")) for n in range(6)]
    done = run(items, answers, budget=6, test=(test, [0] * 6), out=tmp_path / "run")
    assert facts(done)["test"]["n"] == 6


def test_one_item_is_evaluated_with_the_model_s_classes(classes) -> None:
    item = Item("one", "wave tide", classes.run.model.classes)
    assert classes.run.evaluate([item], [0])["n"] == 1
    with pytest.raises(DataError, match="classes"):
        classes.run.evaluate([Item("one", "wave tide", ("x", "y"))], [0])


def test_overlap_with_the_test_set_is_told(tmp_path) -> None:
    items, answers = class_items(40)
    plan = prepare(items, answers, test=(items[:5], [0] * 5), out=tmp_path, settings={"budget": 4})
    assert any("5 of 5 test prompts" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"gate": "contested", "gate_scale": 3.0}, "gate_scale belongs to the gate 'llf'"),
        ({"gate": "margin", "reserve": 0.5}, "reserve belongs to the gates contested, "),
        ({"noise": 0.0}, "width_scale"),
        ({"clip_level": 3.0, "clip_multiple": 2.0, "scorer": "sgd"}, "exclude each other"),
    ],
)
def test_settings_that_nobody_would_read_are_refused(flags, word) -> None:
    with pytest.raises(SettingsError, match=word):
        resolve(flags)


def test_a_flag_replaces_the_preset_s_other_way_to_clip() -> None:
    settings = resolve({"clip_multiple": 3.0}, preset="paper").settings
    assert (settings.clip_level, settings.clip_multiple) == (None, 3.0)


def test_a_pool_refuses_the_step_on_skipped_rounds(tmp_path) -> None:
    items, answers = class_items(40)
    settings = {"mode": "pool", "scorer": "sgd", "kl_on_skips": True}
    with pytest.raises(SettingsError, match="a pool has none: leave it out, or give --mode stream"):
        run(items, answers, budget=10, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
