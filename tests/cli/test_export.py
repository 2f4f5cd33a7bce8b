"""`stacksl export` as a user types it, on a run's folder with a tiny adapted model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.settings import Setting
from stacksl.runs.storage.folder import RunFolder

from ..runs.lm_cases import tiny_model

ROWS = [
    {"id": "a", "prompt": "Once upon a time", "candidates": ["there was", "a"], "answer": 0},
    {"id": "b", "prompt": "Lily wanted", "candidates": ["to play", "the", "no"], "answer": 1},
    {"id": "c", "prompt": "Who knows?", "candidates": ["me", "you"]},
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base") / "model")


def made_with(folder: Path, **settings: Any) -> RunFolder:
    """A run's folder with some settings and no item."""
    run = RunFolder.create(folder)
    given = {name: Setting(value) for name, value in {"seed": 0, **settings}.items()}
    terms: dict[str, Any] = {"run": folder.name, "budget": 1, "items": []}
    Ledger.create(run.database, **terms, settings=given).close()
    return run


def make_run(folder: Path, base: Path, **changes: Any) -> Path:
    """A run's folder with what `export` reads."""
    from stacksl.lm.export.folder import Provenance, write_model
    from stacksl.lm.loading import open_base
    from stacksl.lm.settings import LoraSettings
    from stacksl.lm.training.adapters import Adapter

    run = made_with(folder, read={"max_candidates": 2000})
    loaded = open_base(str(base), device="cpu", dtype="float32")
    about: dict[str, Any] = {
        "name": str(base), "source": loaded.source, "fingerprint": loaded.fingerprint,
        "stamp": "", "answer_format": "option", "template": "{prompt}\nAnswer:",
        "normalization": "sum", "pmi_context": "template", "temperature": 1.0,
        "dtype": "float32", "positions": 64,
    }  # fmt: skip
    adapter = Adapter(loaded, LoraSettings(rank=2), seed=0)
    write_model(run.model, adapter, Provenance(**about | changes))
    return folder


@pytest.fixture(scope="module")
def run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "first", base)


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_a_task_is_written_and_its_command_printed(stacksl, run, base, items, tmp_path) -> None:
    said = stacksl.done("export", run, "--task", items, tmp_path / "out", "--json")
    told = json.loads(said.out)
    assert set(told) == {
        "run", "table", "labels", "left_out", "model", "task", "command",
    }  # fmt: skip
    assert told["task"]["name"] == f"stacksl_{tmp_path.name}_items"
    assert told["task"]["items"] == 2
    assert "left out of the task for want of an answer: 1 of 3 items" in said.err
    words = shlex.split(told["command"])
    assert words[0] == "lm_eval"
    assert f"pretrained={base},peft={run / 'model'},dtype=float32" in words
    assert words[-1] == str(tmp_path / "out")
    rows = (tmp_path / "out" / "items.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(rows[0])["prompt"] == "Once upon a time\nAnswer:"


def test_what_the_limits_cut_is_said(stacksl, base, items, tmp_path) -> None:
    short = make_run(tmp_path / "short", base, max_len_prompt=4)
    said = stacksl.done("export", short, "--task", items, tmp_path / "out")
    assert "2 of 2 prompts lost their start" in said.err
    assert "lm-eval reads those whole" in said.err


def test_a_language_model_is_not_written_as_a_folder_of_onnx(stacksl, run, tmp_path) -> None:
    said = stacksl.refused("export", run, "--model", tmp_path / "folder")
    assert f"PEFT loads its folder {run / 'model'} without stacksl" in said
    assert not (tmp_path / "folder").exists()


def test_what_cannot_be_done_is_one_sentence(stacksl, run, tmp_path) -> None:
    said = stacksl.refused("export", run)
    assert "--model OUT for the final model, or --task FILE OUT for a task" in said
    said = stacksl.refused("export", run, "--task", tmp_path / "gone.csv", tmp_path / "out")
    assert "there is no file" in said
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_language_model_is_refused(stacksl, items, tmp_path) -> None:
    made_with(tmp_path / "other", read={"max_candidates": 9})
    said = stacksl.refused("export", tmp_path / "other", "--task", items, tmp_path / "out")
    assert "holds no adapted language model" in said
    assert len(said.strip().splitlines()) == 1
