"""A study: a claim, the lines of the table that tests it, and how their numbers become rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stacksl_lab.study.bench import Bench, OnProgress
from stacksl_lab.study.rows import Row, pooled
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK = "quick: cut down to try the command, no result"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table, as it is asked for.

    Attributes:
        row: its name, unique in the study.
        settings: what fixes it besides its data; plain values that JSON can hold.
        budget_fraction: labels that may be bought / rounds; None where no labels are bought.
        paper: the paper's numbers, by metric.
        marks: notes on the row.
    """

    row: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_fraction: float | None = None
    paper: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    def budget(self, rounds: int) -> int:
        """B: the labels that may be bought in so many rounds."""
        return int((self.budget_fraction or 0.0) * rounds + 1e-9)


Figures: TypeAlias = "Callable[[Sequence[Row]], Mapping[str, Figure]]"


@dataclass(frozen=True, slots=True)
class Study(ABC):
    """A table that one command makes again.

    Attributes:
        name: what `stacksl-lab reproduce` takes.
        title: of its table.
        claim: what is claimed, one sentence.
        cost: what it takes, one sentence.
        metrics: in the order of the table's columns.
        seeds: how many it has by default, from 0.
        table: the rows as markdown; None for a metric a column.
        figures: the study's figures by file name, from its rows; None where it has none.
    """

    name: str
    title: str
    claim: str
    cost: str
    metrics: tuple[str, ...]
    seeds: int
    table: Callable[[Sequence[Row]], str] | None = field(default=None, kw_only=True)
    figures: Figures | None = field(default=None, kw_only=True)

    def reproduce(
        self, bench: Bench, seeds: Sequence[int], on_progress: OnProgress | None = None
    ) -> list[Row]:
        """The rows of the table, what is missing measured first; errors as in `Bench.measured`."""
        return bench.measured(lambda: self.rows(bench, seeds), on_progress)

    @abstractmethod
    def rows(self, bench: Bench, seeds: Sequence[int]) -> list[Row]:
        """The rows of the table, means over `seeds`.

        Raises:
            Wanted: numbers are missing; see `Bench.measured`.
        """

    def as_markdown(self, rows: Sequence[Row]) -> str:
        """The rows as markdown."""
        return markdown(rows) if self.table is None else self.table(rows)

    def about(self, bench: Bench, seeds: Sequence[int]) -> Mapping[str, Any]:
        """What a record has besides the rows."""
        return {}

    @abstractmethod
    def store_file(self) -> str:
        """The name of the file in which its numbers are kept."""


def rows_of(
    study: Study,
    line: Line,
    numbers: Sequence[Numbers],
    settings: Sequence[Mapping[str, Any]],
    paper: Mapping[str, float],
) -> Iterator[Row]:
    """The rows of a line, one for each metric that any seed has: means with their errors.

    Args:
        study: whose line it is.
        line: the line.
        numbers: its numbers, one mapping a seed; `asked_fraction` is no metric of its own.
        settings: what fixed them, one mapping a seed; a setting that differs becomes a list.
        paper: the paper's numbers to compare with.
    """
    merged = _merged(settings)
    asked = _known(numbers, "asked_fraction")
    for metric in study.metrics:
        if not any(metric in sample for sample in numbers):
            continue
        values = _known(numbers, metric)
        items = settings[0].get("n_test") if metric == "accuracy" else None
        mean, error = pooled(values, items) if values else (None, None)
        yield Row(
            study.name,
            line.row,
            metric,
            mean,
            se=error,
            seeds=len(values),
            budget_fraction=line.budget_fraction,
            asked_fraction=sum(asked) / len(asked) if asked else None,
            paper=paper.get(metric),
            settings=merged,
        )


def _known(numbers: Sequence[Numbers], metric: str) -> list[float]:
    """The numbers of the seeds that have one."""
    return [value for sample in numbers if (value := sample.get(metric)) is not None]


def _merged(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of several seeds in one: what differs becomes the list of its values."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for seed_settings in settings for name in seed_settings):
        values = [seed_settings.get(name) for seed_settings in settings]
        if name == "marks":
            merged[name] = list(dict.fromkeys(mark for marks in values for mark in marks or ()))
        elif name == "cell":
            merged["cells"] = list(dict.fromkeys(values))
        else:
            same = all(value == values[0] for value in values)
            merged[name] = values[0] if same else values
    return merged
