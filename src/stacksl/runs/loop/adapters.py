"""The adapters of a run on disk, one for each refit: `adapters/NN`.

The row of a refit in the ledger has the digest of its weights, what it was trained on and how. A
refit that was interrupted before that row is made again from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.files.atomic import make_private
from stacksl.ledger.queries import LedgerReader
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import Lesson
from stacksl.lm.training.adapters import fingerprint_of
from stacksl.runs.storage.folder import RunFolder

OnProgress = Callable[[int, int], None]


class Adapters:
    """The adapters in `folder`, and which of them the model has.

    Args:
        model: None for a replay, which neither trains nor loads one.
        ledger: of the run, with the temperature of each refit.

    Attributes:
        way: normalization, premise and first temperature that labels of the run chose, if any.
    """

    def __init__(self, run: RunFolder, model: LanguageModel | None, ledger: LedgerReader) -> None:
        self.folder = run.adapters
        self._run, self._model, self._ledger = run, model, ledger
        self._current = 0  # the initial adapter
        self._made: dict[int, str] = {}  # the weights that were trained now
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
        """Whether the adapter of refit `number` is on disk."""
        return _place(self.folder, number).is_dir()

    def take(self, number: int) -> None:
        """Load the adapter of refit `number`, with its temperature; 0 is the initial one."""
        if self._current == number:
            return
        self._current = -1  # none, until the adapter is verified
        if number:
            path, refit = _place(self.folder, number), refits_of(self._ledger)[number - 1]
            if self.model.take(path) != self._made.get(number, refit["weights"]):
                raise _other(path)
            self.model.rescale(float(refit["temperature"]))
        else:
            self.model.reset()
            self.model.rescale(None)
        self._current = number

    def refit(
        self,
        number: int,
        labels: int,
        examples: Sequence[Lesson],
        temperature: float,
        on_progress: OnProgress,
    ) -> dict[str, object]:
        """Train refit `number`; its weights and statistics of its training."""
        self.model.rescale(temperature)
        path = _place(self.folder, number)
        make_private(self.folder)
        self._current = -1  # none, until training has finished
        trained = self.model.refit(examples, labels, on_progress)
        self._made[number] = self.model.save(path)
        self._current = number
        return {"weights": self._made[number], "trained": asdict(trained)}


def refits_of(ledger: LedgerReader) -> list[Mapping[str, Any]]:
    """What the ledger has of each refit that ended, in order."""
    rows = ledger.rows(only=("refit",))
    return [row.payload for row in rows if "adapter" in row.payload]


def expect_adapters(run: RunFolder, ledger: LedgerReader) -> None:
    """Compare the adapters on disk with the rows of their refits; `resume` makes one that is not.

    Raises:
        RunError: one cannot be read, or has other weights.
    """
    for refit in refits_of(ledger):
        path = _place(run.adapters, int(refit["adapter"]))
        if path.is_dir() and fingerprint_of(path) != refit["weights"]:
            raise _other(path)


def _other(path: Path) -> RunError:
    return RunError(
        f"the adapter in {path} has other weights than its refit left: restore the folder from a"
        " copy, or delete it and `stacksl resume` makes it again"
    )


def adapter_of(epoch: int, ledger: LedgerReader) -> int:
    """The refit whose adapter made the features of an epoch: the last one before it began."""
    number = 0
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
            number = int(row.payload["adapter"])
        elif row.event == "refreshed" and int(row.payload["epoch"]) == epoch:
            break
    return number


def way_chosen(ledger: LedgerReader) -> Mapping[str, Any] | None:
    """The way of scoring that labels bought in the run chose, as the ledger has it."""
    rows = (row for row in ledger.rows() if row.event == "refreshed")
    return next((row.payload for row in rows if "normalization" in row.payload), None)


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:02d}"
