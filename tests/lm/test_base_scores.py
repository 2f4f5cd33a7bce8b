"""Runs of a study score the base once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.lm import LoraSettings
from stacksl.lm.model import LanguageModel
from stacksl_lab.language.base_scores import shared_scores

from .test_model import ITEMS, bought, opened

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


def test_runs_of_a_study_score_the_base_once(folder: Path, tmp_path, monkeypatch) -> None:
    """Bit for bit, also under another seed's adapter; never what a refit has moved."""

    def read(model: LanguageModel) -> tuple[Any, Any]:
        model.fit(ITEMS)
        return model.transform(ITEMS), model.scores(ITEMS, "pmi")

    plain, scores = read(opened(folder))
    with shared_scores(tmp_path / "base"):
        read(opened(folder))
        kept = len(list((tmp_path / "base").iterdir()))
        choices = replace(opened(folder).choices, lora=LoraSettings(rank=3))
        other = LanguageModel(choices, seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(other.worker.likelihood, "_read", None)  # any call would fail
            block, again = read(other)
        assert np.array_equal(block.phi, plain.phi)
        assert np.array_equal(block.base, plain.base)
        assert all(map(np.array_equal, again, scores))
        other.refit(bought(other), 1, None)
        assert other.facts()["lm_path"] == "packed", "known once something was scored"
        assert not np.array_equal(other.transform(ITEMS).base, plain.base)
        assert len(list((tmp_path / "base").iterdir())) == kept
        other.reset()
        assert np.array_equal(other.transform(ITEMS).base, plain.base)
