"""The sample model on its own questions: a real model, real text, the whole way through."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.data import Dataset
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import Lesson, ModelChoices, TrainSettings
from stacksl_lab.sample.questions import questions

from ..once import made_once, shared_folder

pytest.importorskip("peft")


def right(model: LanguageModel, data: Dataset) -> np.ndarray:
    """Which questions the model answers."""
    chosen = [int(np.argmax(policy)) for policy in model.policies(data.items)]
    return np.array([c == data.answers[i.id] for c, i in zip(chosen, data.items, strict=True)])


@pytest.mark.slow
def test_accuracy_rises_with_labels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With 500 labels more questions are won than lost against the base.

    The sign test asks for a one-sided p below .025: 1.96 standard errors of the difference.
    """
    train, test = made_once(shared_folder(tmp_path_factory), questions)
    asked = {"template": "{prompt}", "normalization": "pmi", "temperature": 1.0}
    training = TrainSettings(learning_rate=5e-4, epochs=3)
    model = LanguageModel(ModelChoices("sample", **asked, batch_tokens=512, training=training))
    before, items = right(model, test), train.items[:500]
    lessons = [
        Lesson(item, train.answers[item.id], (0, 1, 2, 3), tuple(map(float, score)))
        for item, score in zip(items, model.scores(items, "pmi"), strict=True)
    ]
    model.refit(lessons, 500, None)
    after = right(model, test)
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    assert won - lost > 1.96 * (won + lost) ** 0.5
