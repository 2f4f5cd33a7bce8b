"""Where cells are measured: each once, kept in a file, several at a time if wished.

A study asks for cells as it needs them and is told `Wanted` where they are not there yet; they are
measured, and the study is asked again. So a study reads as if everything were at hand, what it
asks for may depend on what came before, and a stopped bench goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from stacksl.data import Dataset
from stacksl.errors import StackslError
from stacksl.items import Item
from stacksl.studies.cells import Cell, Result
from stacksl.studies.store import Store
from stacksl.studies.tasks import Setup, drawn, held_out, permuted
from stacksl.studies.workers import in_processes

__all__ = ["Bench", "Examine", "Pace", "Play", "Wanted", "perform"]


class Play(Protocol):
    """Who plays a run: over `train`, tested on `test`, with these settings, in `folder`.

    Called again for a folder with an unfinished run it goes on with it.
    """

    def __call__(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], folder: Path
    ) -> Result:
        """The run's result."""
        ...


class Examine(Protocol):
    """Who looks at the base model: no labels, only `examples` in the prompt."""

    def __call__(
        self, test: Dataset, examples: Sequence[tuple[Item, int]], settings: Mapping[str, Any]
    ) -> Result:
        """The base model's result."""
        ...


class Wanted(Exception):
    """These cells must be measured before the study can go on; no error."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__(f"{len(cells)} cells to measure")
        self.cells = tuple(cells)


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a bench is: `done` of the `total` cells known to be needed, seconds left of them."""

    done: int
    total: int
    cell: Cell
    seconds_left: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """A model with its tasks, who plays and who examines, and what was measured so far.

    Attributes:
        setup: the model and the tasks.
        play, examine: functions at the top level of a module, so that other processes find them.
        store: the cells measured so far.
        folder: runs are made below it and removed when they have been measured, unless `keep`.
        jobs: cells measured at a time, each in a process of its own from 2.
        paper_selection: kl_weight and k are chosen on the test set, as the paper did.
    """

    setup: Setup
    play: Play
    examine: Examine
    store: Store
    folder: Path
    jobs: int = 1
    keep: bool = False
    paper_selection: bool = False

    def key(self, cell: Cell) -> str:
        """What the cell is kept under."""
        return cell.key(self.setup.fingerprint, self.setup.task(cell.task).fingerprint)

    def results(self, cells: Sequence[Cell]) -> list[Result]:
        """The result of each cell.

        Raises:
            Wanted: those that were not measured yet.
        """
        if self.setup.absent is not None:
            return [Result(reason=self.setup.absent) for _ in cells]
        found = [self.store.get(self.key(cell)) for cell in cells]
        missing = [cell for cell, result in zip(cells, found, strict=True) if result is None]
        if missing:
            raise Wanted(missing)
        return [result for result in found if result is not None]

    def result(self, cell: Cell) -> Result:
        """The result of one cell; see `results`."""
        return self.results([cell])[0]

    def measure(self, cells: Iterable[Cell], tell: Callable[[Pace], None] | None = None) -> None:
        """Measure these cells and keep what came of them, each as soon as it is there."""
        waiting = list({self.key(cell): cell for cell in cells}.values())
        waiting.sort(key=lambda cell: cell.shots is None)  # the base model first: it is quick
        start = time.monotonic()
        for done, (cell, result) in enumerate(self._performed(waiting), 1):
            self.store.put(self.key(cell), cell, result)
            if tell is not None:
                left = (time.monotonic() - start) / done * (len(waiting) - done)
                tell(Pace(done, len(waiting), cell, left))

    def _performed(self, cells: Sequence[Cell]) -> Iterable[tuple[Cell, Result]]:
        if self.jobs == 1 or len(cells) < 2:
            for cell in cells:
                yield cell, perform(self, cell)
            return
        # Without what was measured: it grows here, and nobody there asks for it.
        calls = [(replace(self, store=Store()), cell) for cell in cells]
        with closing(in_processes(perform, calls, self.jobs)) as performed:
            for place, result in performed:
                yield cells[place], result


def perform(bench: Bench, cell: Cell) -> Result:
    """Measure one cell; what cannot be measured comes back with its reason."""
    task = bench.setup.task(cell.task)
    train, test, settings = task.train, task.test, dict(cell.settings)
    examples = task.examples
    settings |= {"model": bench.setup.model, "seed": cell.seed}
    try:
        if cell.permuted:
            train, test = permuted(train, cell.seed), permuted(test, cell.seed)
            examples = examples[: cell.shots or 0]
        if cell.shots is not None:
            return bench.examine(test, examples[: cell.shots], settings)
        train = drawn(train, cell.items, cell.seed)
        labels = int(cell.budget_fraction * len(train.items) + 1e-9)
        spent = 0
        if cell.held:
            train, test, left = held_out(train, labels, cell.seed)
            spent, labels = labels - left, left
        settings["budget"] = "all" if labels == len(train.items) else str(labels)
        return _played(bench, cell, train, test, settings, spent)
    except StackslError as fault:
        return Result(reason=" ".join(str(fault).split()))


def _played(
    bench: Bench, cell: Cell, train: Dataset, test: Dataset, settings: dict[str, Any], spent: int
) -> Result:
    import shutil

    folder = bench.folder / bench.key(cell)
    result = bench.play(train, test, settings, folder)
    if not bench.keep:
        shutil.rmtree(folder, ignore_errors=True)
    kept = asdict(result) | {"asked": result.asked + spent, "rounds": result.rounds + spent}
    return Result(**kept)
