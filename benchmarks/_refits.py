"""The questions of the sample language model, what is learned of their labels, and refits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]


@dataclass(eq=False)
class Task:
    """The questions to label and to judge on, and the base model's scores at temperature 1."""

    items: list[Any]
    gold: NDArray[np.int64]
    judged: list[Any]
    judged_gold: NDArray[np.int64]
    pool: list[NDArray[np.float64]]
    base: float

    @cached_property
    def states(self) -> NDArray[np.float64]:
        """φ of every option to label, (n, K, d), of the base model."""
        model = model_of({}, 0)
        model.fit(self.items)
        phi = model.transform(self.items).phi
        return phi.reshape(len(self.items), -1, phi.shape[1]).astype(np.float64)

    @cached_property
    def prompts(self) -> NDArray[np.float32]:
        """Sentence vectors of the questions to label."""
        from stacksl.features.minilm import MiniLM

        return MiniLM().encode([item.prompt for item in self.items])

    @cached_property
    def words(self) -> NDArray[np.float32]:
        """The same by hashed words, the features without an encoder."""
        from stacksl.features.hashing import HashingEncoder

        encoder, texts = HashingEncoder(), [item.prompt for item in self.items]
        encoder.fit(texts)
        return encoder.encode(texts)


def model_of(more: Row, seed: int) -> Any:
    """The sample model as a run with these settings has it."""
    from stacksl.lm.model import LanguageModel
    from stacksl.runs.items.intake import OF_SAMPLE
    from stacksl.runs.session.language import choices_of
    from stacksl.runs.settings.resolve import resolve
    from stacksl_lab.language.cells import names_in_run

    settings = resolve({**OF_SAMPLE, **names_in_run(more)}).settings
    return LanguageModel(choices_of(settings, {"lm_threads": 1}), seed=seed)


def lessons_of(
    task: Task, rows: NDArray[np.int64], fixed: float | None = None
) -> tuple[list[Any], float]:
    """What a refit learns of the questions `rows`, and its temperature, fitted unless `fixed`."""
    from stacksl.lm.scoring.normalize import fitted_temperature, prior_temperature
    from stacksl.lm.settings import Lesson

    scores, gold = [task.pool[row] for row in rows], task.gold[rows].tolist()
    temperature = fixed or fitted_temperature(scores, gold, prior_temperature(task.pool))
    lessons = [
        Lesson(task.items[row], label, tuple(range(len(own))), tuple((own / temperature).tolist()))
        for row, label, own in zip(rows, gold, scores, strict=True)
    ]
    return lessons, temperature


def refitted(
    lessons: list[Any], key: int, more: Row, seed: int, temperature: float, average: Any = 1
) -> tuple[Any, Any]:
    """A refit and its model, under a mean of LoRA updates where `average` asks for one."""
    updates: list[dict[str, Any]] = []

    def note(step: int, total: int) -> None:
        if step == total or (average == "tail" and 3 * step > 2 * total):
            layers = model.worker.adapter.model.named_modules()
            lora_layers = [(name, at) for name, at in layers if hasattr(at, "get_delta_weight")]
            updates.append(
                {name: at.get_delta_weight("default").detach() for name, at in lora_layers}
            )

    for number in range(1 if average == "tail" else average):
        model = model_of(more, seed + 1000 * number)
        model.rescale(temperature)
        trained = model.refit(lessons, key, note)
    if average != 1:
        adapter = model.worker.adapter
        adapter.restore({n: own * ("lora_B" not in n) for n, own in adapter.state().items()})
        for name, layer in adapter.model.named_modules():
            if name in updates[0]:
                mean = sum(each[name] for each in updates) / len(updates)
                layer.get_base_layer().weight.data.add_(mean)
    return trained, model
