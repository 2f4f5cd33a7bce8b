"""The sample model on its own questions: a real model, real text, the whole way through."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.data import Dataset
from stacksl.lm import LanguageModel, Lesson, ModelChoices, TrainSettings
from stacksl.runs.items.intake import OF_SAMPLE
from stacksl_lab.sample.questions import questions

from ..once import made_once, shared_folder

pytest.importorskip("peft")

SMALL = {**OF_SAMPLE, "lm.adapt": "lora", "lm.epochs": 1, "lm.state_dim": 32}


@pytest.fixture(scope="module")
def loaded() -> LanguageModel:
    """The model, loaded once."""
    choices = ModelChoices(
        "sample", template="{prompt}", normalization="pmi", temperature=1.0, batch_tokens=512
    )
    return LanguageModel(choices)


def trained_by(loaded: LanguageModel, **training: Any) -> LanguageModel:
    """The base model again, to be trained by these settings."""
    loaded.reset()
    settings = TrainSettings(**{"learning_rate": 5e-4, **training})
    loaded.choices = replace(loaded.choices, training=settings)
    return loaded


def right(model: LanguageModel, data: Dataset, count: int) -> np.ndarray:
    """Which of the first `count` questions the model answers."""
    items = data.items[:count]
    chosen = [int(np.argmax(policy)) for policy in model.policies(items)]
    return np.array([c == data.answers[i.id] for c, i in zip(chosen, items, strict=True)])


def bought(model: LanguageModel, data: Dataset, count: int) -> list[Lesson]:
    items = data.items[:count]
    scores = model.scores(items, "pmi")
    return [
        Lesson(item, data.answers[item.id], (0, 1, 2, 3), tuple(map(float, score)))
        for item, score in zip(items, scores, strict=True)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    return made_once(shared_folder(tmp_path_factory), questions)


@pytest.mark.slow
def test_a_run_on_it_keeps_its_budget_and_hands_over_an_adapter(
    data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    train, test = data
    items, held = list(train.items[:24]), list(test.items[:8])
    run = stacksl.run(
        items,
        {item.id: train.answers[item.id] for item in items},
        budget=12,
        test=(held, {item.id: test.answers[item.id] for item in held}),
        out=tmp_path / "run",
        **{"lm.refit_at": "0.5,1"},
        **SMALL,
    )
    assert run.status()["asked"] == 12
    facts = json.loads((run.path / "facts.json").read_text())
    assert [point["labels"] for point in facts["curve"]] == [0, 6, 12]
    assert (run.path / "model" / "adapter_model.safetensors").is_file()
    assert "apache-2.0" in (run.path / "model" / "README.md").read_text()


@pytest.mark.slow
def test_accuracy_rises_with_labels(data: tuple[Dataset, Dataset], loaded: LanguageModel) -> None:
    """With 500 labels more questions are won than lost against the base.

    The sign test asks for a one-sided p below .025: 1.96 standard errors of the difference.
    """
    model = trained_by(loaded, epochs=3)
    before = right(model, data[1], len(data[1].items))
    model.refit(bought(model, data[0], 500), 500, None)
    after = right(model, data[1], len(data[1].items))
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    assert won - lost > 1.96 * (won + lost) ** 0.5
