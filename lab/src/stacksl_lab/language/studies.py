"""Studies that adapt a language model: their runs and their numbers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

from stacksl.data import Dataset
from stacksl.errors import StackslError
from stacksl.types import Item
from stacksl_lab.language.base_scores import shared_scores
from stacksl_lab.language.cells import Cell, Result, Setting
from stacksl_lab.language.measuring import sample_of
from stacksl_lab.language.tasks import Setup, drawn, held_out, permuted
from stacksl_lab.study.bench import Bench, Job, Wanted
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Measurement, Store
from stacksl_lab.study.study import Study, rows_of

if TYPE_CHECKING:
    from stacksl_lab.study.store import Numbers


Play: TypeAlias = Callable[[Dataset, Dataset, Mapping[str, Any], Path], Result]
"""Plays a run over (train, test, settings, folder), or continues one that it finds there."""

EvaluateBase: TypeAlias = Callable[[Dataset, Sequence[tuple[Item, int]], Mapping[str, Any]], Result]
"""Measures the base model on (test, examples in the prompt, settings): no labels."""

Measure: TypeAlias = "Callable[[Setting, int, LanguageBench, Result], Mapping[str, float | None]]"
"""Numbers by metric of (setting, seed, bench, its result) and of what it is compared with."""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LanguageBench(Bench):
    """A bench with a model and its tasks.

    Attributes:
        setup: the model and the tasks.
        play, evaluate_base: functions at the top level of a module, so that other processes find
            them.
        folder: runs are made below it and removed when they have been measured, unless `keep`.
        paper_selection: kl_weight and k are chosen on the test set, as the paper did.
    """

    setup: Setup
    play: Play
    evaluate_base: EvaluateBase
    folder: Path
    keep: bool = False
    paper_selection: bool = False

    def key(self, cell: Cell) -> str:
        """The key of the cell in the store."""
        return cell.key(self.setup.fingerprint, self.setup.task(cell.task).fingerprint)

    def results(self, cells: Sequence[Cell]) -> list[Result]:
        """The result of each cell.

        Raises:
            Wanted: some were not measured yet.
        """
        if self.setup.absent is not None:
            return [Result(reason=self.setup.absent) for _ in cells]
        stored = [self.store.get(self.key(cell)) for cell in cells]
        missing = [self._job(c) for c, result in zip(cells, stored, strict=True) if result is None]
        if missing:
            raise Wanted(missing)
        return [Result.of(result) for result in stored if result is not None]

    def _job(self, cell: Cell) -> Job:
        what = "base model" if cell.shots is not None else str(cell.settings.get("gate"))
        alone = replace(self, store=Store())  # the store grows here, and no process reads it
        name = f"{cell.task}, {what}, seed {cell.seed}"
        return Job((self.key(cell),), perform, (alone, cell), name)


def perform(bench: LanguageBench, cell: Cell) -> list[Measurement]:
    """Measure one cell: its numbers, or the reason why there are none."""
    task = bench.setup.task(cell.task)
    train, test, settings = task.train, task.test, dict(cell.settings)
    examples = task.examples
    settings |= {"model": bench.setup.model, "seed": cell.seed}
    try:
        if cell.permuted:
            train, test = permuted(train, cell.seed), permuted(test, cell.seed)
        if cell.shots is not None:
            return [bench.evaluate_base(test, examples[: cell.shots], settings).measurement()]
        train = drawn(train, cell.items, cell.seed)
        labels = int(cell.budget_fraction * len(train.items) + 1e-9)
        spent = 0
        if cell.held:
            train, test, left = held_out(train, labels, cell.seed)
            spent, labels = labels - left, left
        settings["budget"] = "all" if labels == len(train.items) else str(labels)
        folder = bench.folder / bench.key(cell)
        with shared_scores(bench.folder / "base"):
            result = bench.play(train, test, settings, folder)
        if not bench.keep:
            shutil.rmtree(folder, ignore_errors=True)
        counted = replace(result, asked=result.asked + spent, rounds=result.rounds + spent)
        return [counted.measurement()]
    except StackslError as fault:
        return [" ".join(str(fault).split())]


@final
@dataclass(frozen=True, slots=True)
class LanguageStudy(Study):
    """A table of the paper over a model and its tasks.

    Attributes:
        grid: its settings.
        measure: what one of them gives.
        spread: whether the seeds' standard deviation is a metric too (`accuracy_sd`).
    """

    metrics: tuple[str, ...] = ("accuracy", "macro_f1")
    seeds: int = 5
    grid: Callable[[Setup], Sequence[Setting]] = field(kw_only=True)
    measure: Measure = field(kw_only=True)
    spread: bool = False

    def store_file(self) -> str:
        """One file for all: their cells are shared."""
        return "cells.jsonl"

    def about(self, bench: Bench, seeds: Sequence[int]) -> Mapping[str, Any]:
        """See `Study.about`: its model."""
        assert isinstance(bench, LanguageBench)
        return {"model": bench.setup.model}

    def rows(self, bench: Bench, seeds: Sequence[int]) -> list[Row]:
        """See `Study.rows`; rows of the base model as it is have one seed."""
        assert isinstance(bench, LanguageBench)
        rows: list[Row] = []
        wanted: list[Job] = []
        for setting in self.grid(bench.setup):
            samples: list[tuple[Numbers, dict[str, Any]]] = []
            for seed in seeds if setting.repeats else seeds[:1]:
                try:
                    samples.append(sample_of(self, setting, seed, bench))
                except Wanted as more:
                    wanted += more.jobs
            if not wanted:
                rows += self._rows(setting, samples, bench.setup.comparable)
        if wanted:  # the base model first: it is quick
            raise Wanted(sorted(wanted, key=lambda job: job.args[1].shots is None))
        return list(_marked(rows))

    def _rows(
        self, setting: Setting, samples: Sequence[tuple[Numbers, dict[str, Any]]], papers: bool
    ) -> list[Row]:
        paper = setting.paper if papers else {}
        numbers, settings = zip(*samples, strict=True)
        rows = list(rows_of(self, setting, numbers, settings, paper))
        for row in rows:
            if self.spread and row.metric == "accuracy" and row.se is not None and row.seeds > 1:
                deviation = row.se * row.seeds**0.5
                printed = paper.get("accuracy_sd")
                rows.append(
                    replace(row, metric="accuracy_sd", value=deviation, se=None, paper=printed)
                )
                break
        return rows


def _marked(rows: Iterable[Row]) -> Iterable[Row]:
    """Rows that are the same runs as an earlier row say so."""
    first: dict[tuple[str, ...], str] = {}
    for row in rows:
        earlier = first.setdefault(tuple(row.settings["cells"]), row.row)
        marks = row.settings["marks"]
        if earlier != row.row and not any("computed once" in mark for mark in marks):
            marks = [*marks, f"the same run as '{earlier}': computed once"]
        yield replace(row, settings={**row.settings, "marks": marks})
