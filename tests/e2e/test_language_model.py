"""The resume promise where a language model is adapted: kill -9 anywhere, and the end is the same.

On the CPU with the recorded number of threads: ledger, θ, adapters, predictions, bit for bit.
"""

from __future__ import annotations

import json
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run

from ..ledgers import verify
from ..runs.lm_cases import QUICK, questions, tiny_model
from ..saved_arrays import latest_in
from .conftest import Kind, Worker, budget_of, chain, expect_sound, facts

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

HEAVY = ("torch", "transformers", "peft", "accelerate", "transformers.models.qwen3.modeling_qwen3")
RUNS, LABELS, LM = "stacksl.runs", "stacksl.ledger", "stacksl.lm"
SETTINGS = {**QUICK, "budget": 6, "lm.batch_size": 2, "checkpoint_every": 4}
# refits at 1, 3 and 6 labels; two epochs of steps of two: 2, 4 and 6 steps
STREAM = {"mode": "stream", "lm.refit_at": "0.1,0.5,1"}

ROUNDS = {
    "when the features of epoch 0 were saved": (f"{RUNS}.session.setup:save_block", 1, "after"),
    "when a purchase is on disk": (f"{LABELS}.ledger:Ledger.post", 3, "after"),
    "when an answer was learned": ("stacksl.core.learner:Learner.learn", 4, "after"),
    "before arrays are committed": (f"{LABELS}.journal:write_arrays", 2, "after"),
}
REFIT = {
    "before its first step": (f"{LM}.training.refit:TrainingSteps.run", 2, "before"),
    "between two steps": (f"{LM}.training.refit:Optimizer.step", 4, "after"),
    "before the adapter is saved": (f"{LM}.training.adapters:Adapter.save", 2, "before"),
    "between the adapter and its record": (f"{LM}.training.adapters:Adapter.save", 2, "after"),
    "between its record and the ledger's row": (f"{LABELS}.ledger:Ledger.note_refit", 2, "before"),
    "when the ledger has the refit": (f"{LABELS}.ledger:Ledger.note_refit", 2, "after"),
}
EPOCH = {
    "among its features": ("stacksl.features.store:write_atomic", 12, "after"),
    "between its features and its row": (f"{LABELS}.ledger:Ledger.note_refreshed", 2, "before"),
    "when its row is on disk": (f"{LABELS}.ledger:Ledger.note_refreshed", 2, "after"),
    "when arrays were saved": (f"{LABELS}.ledger:Ledger.save_arrays", 3, "after"),
}
END = {
    "between the last refit and the model": ("stacksl.models.adapted:write_model", 1, "before"),
    "between weights and description": (f"{LM}.export.folder:write_task", 1, "before"),
    "before the state is 'finished'": (f"{RUNS}.storage.folder:RunFolder.write_state", 2, "before"),
}
POOL = {  # the default of a file: three batches of two, one refit of six steps
    "between two batches": (f"{LABELS}.ledger:Ledger.post", 2, "after"),
    "when an answer was learned": ("stacksl.core.learner:Learner.learn", 3, "after"),
    "between two steps": (f"{LM}.training.refit:Optimizer.step", 4, "after"),
    "when the ledger has the refit": (f"{LABELS}.ledger:Ledger.note_refit", 1, "after"),
}
CHOICE = {  # of a normalization, by the labels that a pool bought first
    "between its features and its row": (f"{LABELS}.ledger:Ledger.note_refreshed", 1, "before"),
    "when its row is on disk": (f"{LABELS}.ledger:Ledger.note_refreshed", 1, "after"),
}
MOMENTS = ROUNDS | REFIT | EPOCH | END


@pytest.fixture(scope="module")
def kind(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """A job that adapts a tiny model in a stream, played once without disturbance."""
    return played(worker, tmp_path_factory.mktemp("job"), STREAM)


@pytest.fixture(scope="module")
def pool(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The same in the default mode."""
    return played(worker, tmp_path_factory.mktemp("pool"), {"open_questions": 2})


@pytest.fixture(scope="module")
def choosing(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The same, where the first 25 labels choose a normalization."""
    more = {"lm.normalization": "auto", "budget": 28, "lm.epochs": 1, "lm.batch_size": 14}
    return played(worker, tmp_path_factory.mktemp("choosing"), more, count=36)


def played(worker: Worker, folder: Path, more: dict[str, Any], count: int = 16) -> Kind:
    model = tiny_model(folder / "model")
    data = write(folder / "data.jsonl", count, seed=0)
    test = write(folder / "test.jsonl", 8, seed=1)
    settings = {**SETTINGS, **more, "lm.model": str(model), "lm.adapt": "lora"}
    made = Kind("lm", data, test, settings, folder / "undisturbed" / "run")
    made.seconds = worker.play(**made.order(made.reference))["seconds"]
    return made


def write(path: Path, count: int, seed: int) -> Path:
    items, answers = questions(count, seed)
    rows = [
        {"id": i.id, "prompt": i.prompt, "candidates": i.candidates, "answer": answers[i.id]}
        for i in items
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def expect_same(path: Path, kind: Kind) -> None:
    """The run at `path` ended as the undisturbed one."""
    reference = kind.reference
    assert Run.open(path).status()["state"] == "finished"
    assert chain(path) == chain(reference)
    for part in ("adapters", "features", "model"):
        assert tree(path / part) == tree(reference / part)
        for name in tree(path / part):
            one, other = path / part / name, reference / part / name
            if one.name not in ("README.md",):
                assert one.read_bytes() == other.read_bytes(), name
    mine, others = latest_in(path).arrays, latest_in(reference).arrays
    assert mine.keys() == others.keys()
    for name, array in mine.items():
        assert np.array_equal(array, others[name], equal_nan=True), name


def some_of(moments: dict[str, Any], *quickly: str) -> list[Any]:
    """All of them, of which those that are not named are for `make test-slow`."""
    slow = pytest.mark.slow
    return [pytest.param(each, marks=() if each in quickly else slow) for each in moments]


def expect_resumed(worker: Worker, kind: Kind, out: Path, moment: Any) -> None:
    assert worker.play(**kind.order(out), kill=moment)["killed"], "the moment never came"
    expect_sound(out, budget_of(kind))
    worker.play(**kind.order(out))
    expect_sound(out, budget_of(kind))
    expect_same(out, kind)


@pytest.mark.parametrize("moment", some_of(MOMENTS, "between the adapter and its record"))
def test_a_run_that_adapts_is_killed(worker: Worker, kind: Kind, tmp_path, moment: str) -> None:
    """Others are among those of `test_a_run_is_killed_again_and_again`."""
    expect_resumed(worker, kind, tmp_path / "run", MOMENTS[moment])


@pytest.mark.parametrize("moment", some_of(POOL, "when an answer was learned", "between two steps"))
def test_a_default_run_that_adapts_is_killed(
    worker: Worker, pool: Kind, tmp_path: Path, moment: str
) -> None:
    known = Run.open(pool.reference).folder.resolved()
    assert (known["mode"], known["lm.refit_at"]) == ("pool", "1")
    expect_resumed(worker, pool, tmp_path / "run", POOL[moment])


@pytest.mark.parametrize("moment", some_of(CHOICE, "between its features and its row"))
def test_a_run_that_chooses_a_normalization_is_killed(
    worker: Worker, choosing: Kind, tmp_path: Path, moment: str
) -> None:
    expect_resumed(worker, choosing, tmp_path / "run", CHOICE[moment])


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_every_moment_is_one_of_the_program(moment: str) -> None:
    module, _, path = MOMENTS[moment][0].partition(":")
    assert attrgetter(path)(import_module(module))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", ["kind", "choosing"])
def test_a_run_that_adapts_is_killed_at_every_file(
    worker: Worker, request: pytest.FixtureRequest, tmp_path: Path, which: str, when: str
) -> None:
    kind: Kind = request.getfixturevalue(which)
    for call in range(1, 400):
        out = tmp_path / str(call) / "run"
        reply = worker.play(**kind.order(out), kill=("os:replace", call, when))
        expect_sound(out, budget_of(kind))
        if not reply["killed"]:
            assert call > 15, "few files were seen"
            return
        worker.play(**kind.order(out))
        expect_same(out, kind)
    pytest.fail("a small run writes fewer than 400 files")


def test_a_run_is_killed_again_and_again(worker: Worker, kind: Kind, tmp_path: Path) -> None:
    """In every refit, once more where it was made again, and in the epoch that it began."""
    out = tmp_path / "run"
    for moment in (
        (f"{LM}.training.refit:Optimizer.step", 2, "after"),
        (f"{LABELS}.ledger:Ledger.note_refreshed", 1, "before"),
        (f"{LM}.training.refit:Optimizer.step", 3, "after"),
        (f"{LM}.training.refit:Optimizer.step", 1, "before"),
        (f"{LABELS}.ledger:Ledger.note_refit", 2, "after"),
    ):
        assert worker.play(**kind.order(out), kill=moment)["killed"]
        expect_sound(out, budget_of(kind))
    worker.play(**kind.order(out))
    expect_same(out, kind)
    mine, reference = Run.open(out), Run.open(kind.reference)
    assert [*mine.predict(kind.test)] == [*reference.predict(kind.test)]
    assert facts(out)["budget"]["rounds"] == facts(kind.reference)["budget"]["rounds"]
    verify(mine)
    assert mine.replay()["labels"] == budget_of(kind)
