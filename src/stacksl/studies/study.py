"""A study: a claim, the grid of settings that tests it, and what one setting gives under a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stacksl.studies.rows import Row

if TYPE_CHECKING:
    from stacksl.studies.bench import Bench
    from stacksl.studies.cells import Result
    from stacksl.studies.tasks import Setup

__all__ = ["Measure", "Setting", "Study"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table, as it is asked for.

    Attributes:
        row: its name in the table.
        settings: those of its run (`stacksl.Settings`), before k is cut to the options there are
            and before a choice on held-out labels.
        budget_fraction: β; 0 for a base row.
        items: N, the items of the stream at most; None for all there are.
        task: the set of questions; None for the first.
        shots: labelled examples in the prompt of a base row; None where there is a run.
        permuted: whether the order of options is drawn anew (a control).
        chosen: whether kl_weight and k are those chosen on held-out bought labels.
        twin: the setting whose result this row takes where that bought what `first` buys.
        paper: the paper's numbers, by metric.
        marks: sentences that stand beside the row.
    """

    row: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_fraction: float = 1.0
    items: int | None = None
    task: str | None = None
    shots: int | None = None
    permuted: bool = False
    chosen: bool = False
    twin: Setting | None = None
    paper: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    @property
    def repeats(self) -> bool:
        """Whether another seed could give another number: not for the base model as it is."""
        return self.shots is None or self.permuted


class Measure(Protocol):
    """What a setting gives under one seed: numbers by metric."""

    def __call__(
        self, setting: Setting, seed: int, bench: Bench, result: Result
    ) -> Mapping[str, float | None]:
        """The numbers of `setting`, from its own `result` and those it is compared with."""
        ...


@dataclass(frozen=True, slots=True)
class Study:
    """A table of the paper (or of the laboratory) that one command makes again.

    Attributes:
        name: what `stacksl reproduce` takes.
        title: of its table.
        claim: what the table is there to show, one sentence.
        cost: what it takes, one sentence.
        metrics: in the order of the table's columns.
        grid: its settings over a model and its tasks.
        measure: what one of them gives.
        spread: whether the seeds' standard deviation is a metric too (`accuracy_sd`).
    """

    name: str
    title: str
    claim: str
    cost: str
    metrics: tuple[str, ...]
    grid: Callable[[Setup], Sequence[Setting]]
    measure: Measure
    spread: bool = False

    def settings(self, setup: Setup) -> Sequence[Setting]:
        """The rows of the table over `setup`."""
        return self.grid(setup)

    def run(self, setting: Setting, seed: int, bench: Bench) -> list[Row]:
        """The rows of `setting` under one `seed`, one a metric.

        Raises:
            Wanted: cells are not measured yet (`bench.Wanted`); ask again when they are.
        """
        from stacksl.studies.asking import rows_of

        return rows_of(self, setting, seed, bench)
