"""A run that starts from an adapter: its shape, its weights, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, prepare, run
from stacksl.errors import LabelerError, StackslError
from stacksl.lm.model import LanguageModel
from stacksl.lm.training.adapters import CONFIG, WEIGHTS, digest_of
from stacksl.models.adapted import AdaptedModel
from stacksl.runs.session.language import choices_of
from stacksl.runs.spec import RunSpec

from .lm_cases import QUICK, Corpus, Refusing, questions, tiny_model

CORPUS: Corpus = questions(20)
SHORT: dict[str, Any] = {**QUICK, "budget": 6, "lm.refit_at": "1", "lm.adapt": "lora", "seed": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `base`, the `adapter` of a run over it, and `run`, one from there."""
    folder = tmp_path_factory.mktemp("start")
    tiny_model(folder / "base")
    known = {**SHORT, "lm.model": str(folder / "base"), "lm.lora_targets": "q_proj,v_proj"}
    first = run(*questions(20, seed=3), out=folder / "first", **known)
    shutil.copytree(first.path / "model", folder / "adapter")
    run(*CORPUS, out=folder / "run", **SHORT, **{"lm.adapter": str(folder / "adapter")})
    return folder


def test_a_run_starts_where_the_adapter_ended(place: Path) -> None:
    """With its base and its shape; the refit moves on from there."""
    spec = RunSpec.open(Run.open(place / "run").folder)
    known, resolved = spec.settings.lm, spec.folder.resolved()
    assert known.model == str((place / "base").resolve())
    assert known.lora_targets == "q_proj,v_proj"
    assert resolved["lm_start"] == digest_of(str(place / "adapter"))
    choices = replace(choices_of(spec.settings, resolved), state_dim=0)
    started = LanguageModel(choices, seed=1)
    ended = AdaptedModel.load(place / "adapter").model
    fresh = LanguageModel(replace(choices, lora=replace(choices.lora, start=None)), seed=1)
    for model in (started, fresh):
        model.rescale(ended.temperature)
    said, wanted, base = (model.policies(CORPUS[0]) for model in (started, ended, fresh))
    assert all(np.array_equal(a, b) for a, b in zip(said, wanted, strict=True))
    assert max(np.abs(a - b).max() for a, b in zip(said, base, strict=True)) > 0.01
    assert started.fingerprint != fresh.fingerprint
    left = AdaptedModel.load(place / "run" / "model").policies(CORPUS[0])
    assert max(np.abs(a - b).max() for a, b in zip(said, left, strict=True)) > 0.01


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_weights(place: Path, tmp_path: Path) -> None:
    known = {**SHORT, "lm.adapter": str(place / "adapter"), "open_questions": 2}
    with pytest.raises(LabelerError, match="gone home"):
        run(*CORPUS, out=tmp_path / "run", labeler=Refusing(CORPUS, 4), **known)
    made = Run.open(tmp_path / "run").resume(labeler=Refusing(CORPUS, 100))
    whole = run(*CORPUS, out=tmp_path / "whole", labeler=Refusing(CORPUS, 100), **known)
    one, other = (each.path / "model" / WEIGHTS for each in (made, whole))
    assert one.read_bytes() == other.read_bytes()
    assert made.replay()["labels"] == 6


def test_another_adapter_in_its_place_is_noticed(place: Path, tmp_path: Path) -> None:
    adapter = shutil.copytree(place / "adapter", tmp_path / "adapter")
    known = {**SHORT, "lm.adapter": str(adapter), "open_questions": 2}
    with pytest.raises(LabelerError, match="gone home"):
        run(*CORPUS, out=tmp_path / "run", labeler=Refusing(CORPUS, 4), **known)
    shutil.copy(place / "run" / "model" / WEIGHTS, adapter / WEIGHTS)
    with pytest.raises(StackslError, match="features were made by"):
        Run.open(tmp_path / "run").resume(labeler=Refusing(CORPUS, 100))


def test_an_adapter_of_a_run_is_compared_with_the_weights_below_it(place, tmp_path) -> None:
    tiny_model(tmp_path / "other", seed=8)
    shutil.copytree(place / "base", tmp_path / "moved")
    start = {**SHORT, "lm.adapter": str(place / "run" / "model"), "labeler": Refusing(CORPUS, 100)}
    made = run(*CORPUS, out=tmp_path / "run", **start, **{"lm.model": str(tmp_path / "other")})
    (told,) = made.status()["warnings"]
    assert re.search(
        r"was trained on the weights \w{12}, and .*/other is \w{12}: give the base", told
    )
    same = run(*CORPUS, out=tmp_path / "same", **start, **{"lm.model": str(tmp_path / "moved")})
    assert same.status()["warnings"] == []


def test_an_adapter_of_another_base_is_refused_before_a_folder_is_made(place, tmp_path) -> None:
    tiny_model(tmp_path / "wider", hidden_size=64)
    known = {**SHORT, "lm.adapter": str(place / "adapter"), "lm.model": str(tmp_path / "wider")}
    with pytest.raises(StackslError, match="was trained for another base: it has"):
        run(*CORPUS, out=tmp_path / "run", **known)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "settings", "sentence"),
    [
        ({}, {"lm.lora_rank": 4}, "has lm.lora_rank 2, got 4: leave it out"),
        ({}, {"lm.lora_targets": "q_proj"}, "has lm.lora_targets q_proj,v_proj, got q_proj"),
        ({"base_model_name_or_path": "a/b"}, {"lm.model": "a/c"}, "has lm.model a/b, got a/c"),
        ({"base_model_name_or_path": None}, {}, "needs the language model to adapt: give --model"),
        ({"use_dora": True}, {}, r"more than LoRA on named layers \(use_dora\): merge it"),
        ({"target_modules": ".*q"}, {}, r"\(target_modules\)"),
        ({"peft_type": "IA3", "r": None}, {}, f"the {CONFIG} of the adapter .* is not one of LoRA"),
        ({"base_model_name_or_path": 5}, {}, r"is not one of LoRA \(ValueError\)"),
        ({"init_lora_weights": "pissa"}, {}, r"\(init_lora_weights\): merge it"),
        (None, {}, f"is no folder with {CONFIG}: check the path"),
        (None, {"lm.adapter": "RUN"}, f"is no folder with {CONFIG}: give '.*/run/model'"),
        (
            None,
            {"lm.adapter": "me/mine"},
            f"neither a folder with {CONFIG} nor available on the Hugging Face hub",
        ),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    config: dict[str, Any] | None,
    settings: dict[str, Any],
    sentence: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(*_: Any, **__: Any) -> str:
        raise OSError("offline")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", absent)
    adapter = shutil.copytree(place / "adapter", tmp_path / "adapter")
    said = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).unlink()
    if config is not None:
        (adapter / CONFIG).write_text(json.dumps(said | config))
    given = {**SHORT, "lm.adapter": str(adapter), "budget": "4", **settings}
    if settings == {"lm.adapter": "RUN"}:
        given["lm.adapter"] = str(place / "run")
    with pytest.raises(StackslError, match=sentence):
        prepare(*CORPUS, out=tmp_path / "run", settings=given)


@pytest.mark.slow
def test_a_name_on_the_hub_is_kept_with_its_revision(place: Path, tmp_path, monkeypatch) -> None:
    asked = []

    def cached(source: str, name: str, *, revision: str | None) -> str:
        asked.append((source, revision))
        return str(place / "adapter" / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", cached)
    given = {**SHORT, "lm.adapter": "me/mine@abc", "budget": 4}
    made = run(*CORPUS, out=tmp_path / "run", **given)
    assert set(asked) == {("me/mine", "abc")}
    assert made.folder.resolved()["lm.adapter"] == "me/mine@abc"
    assert "me/mine@abc" in (made.path / "model" / "README.md").read_text(encoding="utf-8")
