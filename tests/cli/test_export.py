"""`stacksl export` as a user types it, on a run's folder with a tiny adapted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.settings import Setting
from stacksl.runs.storage.folder import RunFolder

from ..report.adapted_cases import adapted
from ..runs.lm_cases import tiny_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base") / "model")


def make_run(folder: Path, base: Path) -> Path:
    """A run's folder with what `export` reads."""
    from stacksl.lm.export.folder import Provenance, write_model
    from stacksl.lm.loading import open_base
    from stacksl.lm.settings import LoraSettings
    from stacksl.lm.training.adapters import Adapter

    run = RunFolder.create(folder)
    terms: dict[str, Any] = {"run": folder.name, "budget": 1, "items": []}
    Ledger.create(run.database, **terms, settings={"seed": Setting(0)}).close()
    loaded = open_base(str(base), device="cpu", dtype="float32")
    about: dict[str, Any] = {
        "name": str(base), "source": loaded.source, "fingerprint": loaded.fingerprint,
        "stamp": "", "answer_format": "option", "template": "{prompt}\nAnswer:",
        "normalization": "sum", "pmi_context": "template", "temperature": 1.0,
        "dtype": "float32", "positions": 64,
    }  # fmt: skip
    adapter = Adapter(loaded, LoraSettings(rank=2), seed=0)
    write_model(run.model, adapter, Provenance(**about), adapted())
    return folder


@pytest.fixture(scope="module")
def run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "first", base)


def test_a_language_model_is_not_written_as_a_folder_of_onnx(stacksl, run, tmp_path) -> None:
    said = stacksl.refused("export", run, "--model", tmp_path / "folder")
    assert f"PEFT loads its folder {run / 'model'} without stacksl" in said
    assert not (tmp_path / "folder").exists()


def test_nothing_to_write_is_one_sentence(stacksl, run) -> None:
    said = stacksl.refused("export", run)
    assert "give --table FILE" in said
