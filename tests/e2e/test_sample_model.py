"""The sample model on its own questions: a real model, real text, the whole way through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stacksl.data import Dataset
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import Lesson, ModelChoices, TrainSettings
from stacksl_lab.sample.questions import questions

from ..once import made_once, shared_folder

pytest.importorskip("peft")


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
