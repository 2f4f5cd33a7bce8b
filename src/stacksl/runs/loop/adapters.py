"""The adapters of a run on disk, one a refit: trained, taken up again, recorded.

A refit is three things in `adapters/`: `NN.part`, the checkpoint of a training under way; `NN`, the
adapter; and, written last, `NN.json`, the record of what it was trained on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.files.atomic import write_atomic
from stacksl.files.private import make_private
from stacksl.lm import LanguageModel, Lesson

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Refitted:
    """What one refit was: its number, its labels, and how training went.

    `labels_hash` is of the labels in their order: an adapter that a run cut off has left is taken
    up only where it was trained on the same ones.
    """

    number: int
    labels: int
    labels_hash: str
    fingerprint: str
    trained: Mapping[str, Any]


class Adapters:
    """The adapters in `folder`, and which of them the model has now.

    Args:
        folder: `adapters/` of the run.
        model: None for a replay, which trains and takes nothing.
    """

    def __init__(self, folder: Path, model: LanguageModel | None) -> None:
        self.folder = folder
        self._model = model
        self._current = 0  # the initial adapter

    @property
    def model(self) -> LanguageModel:
        """The model, which a replay does not have."""
        if self._model is None:
            raise RunError("a replay trains no adapter: resume the run instead")
        return self._model

    def take(self, number: int) -> None:
        """Give the model the weights of refit `number`; 0 is the initial adapter."""
        if self._current == number:
            return
        if number:
            self._load(number)
        else:
            self.model.reset()
        self._current = number

    def _load(self, number: int) -> None:
        """Give the model the weights of refit `number`, which are those that its record names."""
        place = _place(self.folder, number)
        self._current = -1  # neither the one before nor this one, until it is verified
        record = history(self.folder, number)[-1]
        if self.model.take(place) != record.fingerprint:
            raise RunError(
                f"the adapter in {place} does not match its record {place.name}.json: restore the"
                " folder from a copy"
            )

    def refit(
        self,
        number: int,
        labels: int,
        labels_hash: str,
        examples: Sequence[Lesson],
        on_progress: OnProgress,
    ) -> Refitted:
        """Train refit `number`, or take it up where it was trained on these labels already."""
        before = read_record(self.folder, number)
        if before is not None and before.labels_hash == labels_hash:
            self.take(number)
            return before
        place = _place(self.folder, number)
        part = place.with_suffix(".part")
        make_private(part)
        self._current = -1  # neither the one before nor this one, until it is whole
        trained = self.model.refit(examples, labels, part, on_progress)
        fingerprint = self.model.save(place)
        self._current = number
        record = Refitted(number, labels, labels_hash, fingerprint, asdict(trained))
        write_atomic(place.with_suffix(".json"), formats.to_json(asdict(record)))
        return record

    def tidy(self, count: int) -> None:
        """Drop the training checkpoints of refits that are done, one cut off just then included."""
        for number in range(1, count + 1):
            shutil.rmtree(_place(self.folder, number).with_suffix(".part"), ignore_errors=True)


def history(folder: Path, count: int) -> list[Refitted]:
    """The records of the first `count` refits, those that the ledger names.

    Raises:
        RunError: one of them is missing: what its adapter was trained on is then unknown.
    """
    found = []
    for number in range(1, count + 1):
        record = read_record(folder, number)
        if record is None:
            raise RunError(
                f"the record {_place(folder, number).with_suffix('.json')} of a refit that the"
                " ledger names is missing: restore it from a copy"
            )
        found.append(record)
    return found


def read_record(folder: Path, number: int) -> Refitted | None:
    """The record of refit `number`; None where there is none yet.

    Raises:
        RunError: it cannot be read.
    """
    path = _place(folder, number).with_suffix(".json")
    if not path.is_file():
        return None
    try:
        return Refitted(**formats.from_json(path.read_bytes()))
    except (OSError, ValueError, TypeError) as fault:
        raise RunError(
            f"the record {path} of a refit cannot be read ({fault}): restore it from a copy"
        ) from fault


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:02d}"
