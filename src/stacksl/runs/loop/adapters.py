"""The adapters of a run on disk, one for each refit.

Refit NN has two paths in `adapters/`: `NN`, the adapter, and `NN.json`, written last, the record of
what it was trained on. A refit that was interrupted is made again from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.files.atomic import make_private, write_atomic
from stacksl.ledger.queries import LedgerReader
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import Lesson
from stacksl.lm.training.adapters import fingerprint_of
from stacksl.runs.storage.folder import RunFolder

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Refitted:
    """The record of one refit: its number, its labels and statistics of its training.

    `labels_hash` is of the labels in their order: the adapter of an interrupted refit is used only
    if it was trained on the same labels.
    """

    number: int
    labels: int
    labels_hash: str
    fingerprint: str
    trained: Mapping[str, Any]


class Adapters:
    """The adapters in `folder`, and which of them the model has.

    Args:
        run: the run's folder.
        model: None for a replay, which neither trains nor loads one.
        ledger: of the run, with the temperature of each refit.

    Attributes:
        folder: `adapters/` of the run.
        way: normalization, premise and first temperature that labels of the run chose, if any.
    """

    def __init__(self, run: RunFolder, model: LanguageModel | None, ledger: LedgerReader) -> None:
        self.folder = run.adapters
        self._run, self._model, self._ledger = run, model, ledger
        self._current = 0  # the initial adapter
        self.way: Mapping[str, Any] | None = None
        if (way := way_chosen(ledger)) is not None:
            self.adopt(way)

    def adopt(self, way: Mapping[str, Any]) -> None:
        """Score in a `way` that labels chose."""
        self.way = way
        if self._model is not None:
            self._model.adopt(way)

    @property
    def initial(self) -> float:
        """The temperature before any refit."""
        if self.way is not None:
            return float(self.way["temperature"])
        return float(self._run.resolved()["lm_temperature"])

    @property
    def model(self) -> LanguageModel:
        """The language model; a replay has none."""
        assert self._model is not None
        return self._model

    def has(self, number: int) -> bool:
        """Whether the adapter of refit `number` is on disk, with its record."""
        return _place(self.folder, number).is_dir() and read_record(self.folder, number) is not None

    def take(self, number: int) -> None:
        """Load the adapter of refit `number`, with its temperature; 0 is the initial one."""
        if self._current == number:
            return
        self._current = -1  # none, until the adapter is verified
        if number:
            place = _place(self.folder, number)
            if self.model.take(place) != history(self.folder, number)[-1].fingerprint:
                raise _other(place)
        else:
            self.model.reset()
        refits = (row.payload for row in self._ledger.rows(only=("refit",)))
        refit = next((refit for refit in refits if refit.get("adapter") == number), None)
        self.model.rescale(float(refit["temperature"]) if number and refit else None)
        self._current = number

    def refit(
        self,
        number: int,
        labels: int,
        labels_hash: str,
        examples: Sequence[Lesson],
        temperature: float,
        on_progress: OnProgress,
    ) -> Refitted:
        """Train refit `number`, unless it was trained on these labels already: `take` loads it."""
        before = read_record(self.folder, number)
        if before is not None and before.labels_hash == labels_hash and self.has(number):
            return before
        if self._model is None:
            raise _missing(self.folder, number)
        self.model.rescale(temperature)
        place = _place(self.folder, number)
        make_private(self.folder)
        self._current = -1  # none, until training has finished
        trained = self.model.refit(examples, labels, on_progress)
        fingerprint = self.model.save(place)
        self._current = number
        record = Refitted(number, labels, labels_hash, fingerprint, asdict(trained))
        write_atomic(place.with_suffix(".json"), formats.to_json(asdict(record)))
        return record


def history(folder: Path, count: int) -> list[Refitted]:
    """The records of the first `count` refits.

    Raises:
        RunError: one of them is missing.
    """
    records = []
    for number in range(1, count + 1):
        record = read_record(folder, number)
        if record is None:
            raise _missing(folder, number)
        records.append(record)
    return records


def expect_adapters(run: RunFolder, ledger: LedgerReader) -> None:
    """Compare the adapters on disk with the rows of their refits; `resume` makes one that is not.

    Raises:
        RunError: one cannot be read, or has other weights.
    """
    for row in ledger.rows(only=("refit",)):
        place = _place(run.adapters, int(row.payload.get("adapter") or 0))
        if place.is_dir() and fingerprint_of(place) != row.payload["weights"]:
            raise _other(place)


def _other(place: Path) -> RunError:
    return RunError(
        f"the adapter in {place} has other weights than its refit left: restore the folder from a"
        " copy, or delete it and `stacksl resume` makes it again"
    )


def _missing(folder: Path, number: int) -> RunError:
    return RunError(
        f"the record {_place(folder, number).with_suffix('.json')} of a refit that the ledger"
        " names is missing, or is of other labels: restore it from a copy"
    )


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


def adapter_of(epoch: int, ledger: LedgerReader) -> int:
    """The refit whose adapter made the features of an epoch: the last one before it began."""
    number = 0
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
            number = int(row.payload["adapter"])
        elif row.event == "refreshed" and int(row.payload["epoch"]) == epoch:
            return number
    raise RunError(
        f"the ledger of the run {ledger.terms.run} has no row of epoch {epoch}: restore the folder"
        " from a copy"
    )


def way_chosen(ledger: LedgerReader) -> Mapping[str, Any] | None:
    """The way of scoring that labels bought in the run chose, as the ledger has it."""
    rows = (row for row in ledger.rows() if row.event == "refreshed")
    return next((row.payload for row in rows if "normalization" in row.payload), None)


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:02d}"
