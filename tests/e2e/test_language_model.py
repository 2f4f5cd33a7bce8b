"""The resume promise where a language model is adapted: kill -9 anywhere, and the end is the same.

On the CPU with the recorded number of threads: ledger, θ, adapters, predictions, bit for bit.
"""

from __future__ import annotations

import json
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

ADAPTED = (f"{LM}.training.adapters:Adapter.save", 2, "after")
POOL = {  # the default of a file: three batches of two, one refit of six steps
    "when an answer was learned": ("stacksl.core.learner:Learner.learn", 3, "after"),
    "between two steps": (f"{LM}.training.refit:Optimizer.step", 4, "after"),
}
CHOICE = {  # of a normalization, by the labels that a pool bought first
    "while it is made": (f"{LM}.model:LanguageModel.choose_among", 1, "before"),
    "between its features and its row": (f"{LABELS}.ledger:Ledger.note_refreshed", 1, "before"),
    "when its row is on disk": (f"{LABELS}.ledger:Ledger.note_refreshed", 1, "after"),
    "when the next batch is on disk": (f"{LABELS}.ledger:Ledger.post", 2, "after"),
}


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


def expect_resumed(worker: Worker, kind: Kind, out: Path, moment: Any) -> None:
    assert worker.play(**kind.order(out), kill=moment)["killed"], "the moment never came"
    expect_sound(out, budget_of(kind))
    worker.play(**kind.order(out))
    expect_sound(out, budget_of(kind))
    expect_same(out, kind)


def test_a_run_is_killed_between_an_adapter_and_its_record(worker, kind: Kind, tmp_path) -> None:
    """Others are among those of `test_a_run_is_killed_again_and_again`."""
    expect_resumed(worker, kind, tmp_path / "run", ADAPTED)


@pytest.mark.parametrize("moment", POOL)
def test_a_default_run_that_adapts_is_killed(
    worker: Worker, pool: Kind, tmp_path: Path, moment: str
) -> None:
    known = Run.open(pool.reference).folder.resolved()
    assert (known["mode"], known["lm.refit_at"]) == ("pool", "1")
    expect_resumed(worker, pool, tmp_path / "run", POOL[moment])


@pytest.mark.parametrize(
    "moment",
    [pytest.param(each, marks=pytest.mark.slow if n != 1 else ()) for n, each in enumerate(CHOICE)],
)
def test_a_run_that_chooses_a_normalization_is_killed(
    worker: Worker, choosing: Kind, tmp_path: Path, moment: str
) -> None:
    expect_resumed(worker, choosing, tmp_path / "run", CHOICE[moment])


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
