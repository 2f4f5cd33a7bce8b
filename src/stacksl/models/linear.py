"""The linear model that a run produces: feature map, final head and online state, in one folder.

`probability` comes from the final head (D15), or from the online state where there was no refit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.blocks import Array, Block
from stacksl.core.scorers import Head, Scorer, ScorerSettings, make_scorer, restore_head
from stacksl.errors import DataError, FeatureError, RunError
from stacksl.features import FeatureMap, GivenFeatures, make_features
from stacksl.files import arrays, formats
from stacksl.files.atomic import make_private, write_atomic
from stacksl.types import Item
from stacksl.version import __version__

ABOUT = "model.json"
CHUNK = 1024  # items predicted at a time


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained scorer with the feature map that it reads text through.

    `classes` is the fixed label set, None where items have their own options; `columns` says how
    a file of items is read.
    """

    features: FeatureMap
    scorer: Scorer
    head: Head | None = field(repr=False)  # arrays
    classes: tuple[str, ...] | None
    columns: Mapping[str, str]

    def probabilities(self, block: Block) -> list[Array]:
        """The policy over each item's full list of candidates: a (K,) array an item."""
        if self.head is not None:
            return [np.asarray(row, dtype=np.float64) for row in self.head.probabilities(block)]
        views = (self.scorer.bounds(inputs, tuple(range(inputs.size))) for inputs in block)
        return [view.probabilities for view in views]

    def policies(
        self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None
    ) -> list[Array]:
        """`probabilities` of `items`."""
        return self.probabilities(self.features.transform(items, progress))

    def with_rows(self, ids: Sequence[str], rows: Any) -> Model:
        """This model with the features `rows`, (n, d), of the items `ids`.

        Raises:
            FeatureError: its features are not given as arrays, or the shape is another.
        """
        if not isinstance(self.features, GivenFeatures):
            raise FeatureError(
                f"this model makes its features itself ('{self.features.spec}'): leave features out"
            )
        return replace(self, features=self.features.with_rows(ids, rows))

    def predict(
        self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """One row an item, in order: what `stacksl predict` writes.

        Probabilities of an item depend in their last bits, some 1e-15, on the other items.

        Raises:
            DataError: where the model has classes and an item brings other candidates.
        """
        return predictions(self.policies, with_classes(items, self.classes), progress, CHUNK)

    def save(self, folder: Path, scorer_settings: Mapping[str, Any]) -> None:
        """Write the model under `folder`.

        `model.json` is removed first and written last: arrays of two models are never mixed.
        """
        make_private(folder)
        (folder / ABOUT).unlink(missing_ok=True)
        arrays.save(folder / "features.safetensors", self.features.state())
        arrays.save(folder / "online.safetensors", self.scorer.state())
        if self.head is not None:
            arrays.save(folder / "head.safetensors", self.head.state())
        description = {
            formats.FORMAT: formats.MODEL,
            "stacksl": __version__,
            "features": self.features.spec,
            "dim": self.features.dim,
            "scorer": self.scorer.name,
            "scorer_settings": dict(scorer_settings),
            "head": self.head is not None,
            "classes": None if self.classes is None else list(self.classes),
            "columns": dict(self.columns),
        }
        write_atomic(folder / ABOUT, formats.to_json(description))

    @classmethod
    def load(cls, folder: Path) -> Model:
        """The model that `save` wrote.

        Raises:
            RunError: there is none yet, it is damaged, or another version of stacksl wrote it.
        """
        description = _about(folder)

        def load(name: str) -> dict[str, Any]:
            return arrays.load(folder / f"{name}.safetensors", _remedy(folder))

        classes = None if description["classes"] is None else tuple(description["classes"])
        features = make_features(description["features"], classes=classes)
        features.restore(load("features"))
        scorer = make_scorer(
            description["scorer"],
            dim=description["dim"],
            classes=None if classes is None else len(classes),
            settings=ScorerSettings(**description["scorer_settings"]),
        )
        scorer.restore(load("online"))
        head = restore_head(load("head")) if description["head"] else None
        return cls(features, scorer, head, classes, description["columns"])


def with_classes(items: Sequence[Item], classes: tuple[str, ...] | None) -> Sequence[Item]:
    """The items with the `classes` of a model as their candidates, where it has any.

    Raises:
        DataError: an item brings other candidates.
    """
    if classes is None:
        return items
    for item in items:
        if item.candidates not in ((), classes):
            raise DataError(
                f"the candidates of item '{item.id}' should be the {len(classes)} classes of the"
                " model, but are others: give it the model's classes in their order, or no"
                " candidates"
            )
    return [replace(item, candidates=classes) for item in items]


def predictions(
    policies: Callable[[Sequence[Item]], list[Array]],
    items: Sequence[Item],
    progress: Callable[[int, int], None] | None,
    size: int,
    *,
    every: bool = False,
) -> Iterator[dict[str, Any]]:
    """What `stacksl predict` writes of items, `size` at a time; of `every` option on request."""
    for start in range(0, len(items), size):
        chunk = items[start : start + size]
        chunk_policies = policies(chunk)
        if progress is not None:
            progress(start + len(chunk), len(items))
        for item, policy in zip(chunk, chunk_policies, strict=True):
            index = int(np.argmax(policy))
            row = {"id": item.id, "choice": item.candidates[index], "index": index}
            probabilities = {"probabilities": policy.tolist()} if every else {}
            yield {**row, "probability": float(policy[index]), **probabilities}


def _about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        raise RunError(
            f"there is no model in {folder}: it is written at the end of the run;"
            f" `stacksl status {folder.parent}` says how to go on"
        )
    try:
        return formats.read(path, formats.MODEL)
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): {_remedy(folder)}") from fault


def _remedy(folder: Path) -> str:
    return (
        f"restore the folder {folder} from a copy, or delete it and"
        f" `stacksl resume {folder.parent}` makes it again"
    )
