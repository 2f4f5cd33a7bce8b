"""The adapted language model that a run produces: saving, loading and prediction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksl.core.blocks import Array
from stacksl.data import Dataset
from stacksl.errors import DataError
from stacksl.lm.export.folder import ABOUT, Provenance, expect_whole, read_provenance, write_model
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import LoraSettings, ModelChoices
from stacksl.models.linear import predictions, with_classes
from stacksl.report.facts import Facts
from stacksl.types import Item, copied

CHUNK = 256  # items predicted at a time


def is_adapted(folder: Path) -> bool:
    """Whether the model in `folder` is an adapted language model."""
    return (folder / ABOUT).is_file()


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedModel:
    """A language model under a trained adapter, as `predict` and `evaluate` use it.

    It has no online state: the head that chose the purchases is not part of the model (D12).
    """

    model: LanguageModel
    classes: tuple[str, ...] | None
    columns: Mapping[str, str]

    def policies(
        self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None
    ) -> list[Array]:
        """(K,) probabilities over each item's candidates, under the run's own normalization."""
        return self.model.policies(items, progress)

    def predict(
        self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """One row an item: `id, choice, index, probability`, and `probabilities` of all options.

        Raises:
            DataError: an item has no candidates, and the model no classes.
        """
        listed = with_classes(items, self.classes)
        for item in listed:
            if not item.candidates:
                raise DataError(f"item '{item.id}' has no candidates: give it two or more")
        return predictions(self.policies, listed, progress, CHUNK, every=True)

    def about(self) -> Provenance:
        """Its base, settings and classes, for its `lm.json`."""
        choices, base = self.model.choices, self.model.worker.base
        base_fields = ("source", "revision", "fingerprint", "license", "positions", "dtype")
        return copied(
            Provenance,
            choices,
            name=choices.model,
            chat_arguments=dict(choices.chat_arguments),
            temperature=self.model.temperature,
            classes=self.classes,
            columns=dict(self.columns),
            verdict=self.model.worker.verdict,
            stamp=base.weights.stamp,
            **{name: getattr(base, name) for name in base_fields},
        )

    def save(self, folder: Path, facts: Facts, test: Dataset | None = None) -> None:
        """Write the model to `folder`; `facts` go on its card, `test` becomes a task."""
        write_model(folder, self.model.worker.adapter, self.about(), facts, test)

    @classmethod
    def load(cls, folder: Path) -> AdaptedModel:
        """The model that `save` wrote.

        Raises:
            RunError: there is none, it is damaged, or its base has changed.
        """
        provenance = read_provenance(folder)
        expect_whole(folder)
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        targets = tuple(sorted(config["target_modules"]))
        lora = LoraSettings(int(config["r"]), float(config["lora_alpha"]), targets=targets)
        choices = copied(ModelChoices, provenance, model=provenance.base, lora=lora)
        model = LanguageModel(choices, known=provenance.weights)
        model.expect_base(provenance.fingerprint, "the adapter was trained on")
        model.take(folder)
        return cls(model, provenance.classes, provenance.columns)
