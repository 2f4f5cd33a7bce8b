"""Where laboratory studies are measured: each number once, in several processes, kept in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from stacksl.studies.lab.program import program_hash
from stacksl.studies.lab.store import NumberStore
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Trial
from stacksl.studies.rows import Row, pooled
from stacksl.studies.workers import in_processes

__all__ = ["LabPace", "measured", "reproduce", "samples"]


@dataclass(frozen=True, slots=True)
class LabPace:
    """How far a study is: `done` of `total` streams, and the seconds left."""

    done: int
    total: int
    seconds_left: float


@dataclass(frozen=True, slots=True)
class _Task:
    """The lines of a trial that are still to be measured under a seed."""

    trial: Trial
    seed: int
    lines: tuple[Line, ...]


Told: TypeAlias = Callable[[LabPace], None]
"""What hears how far a study is, after each stream."""


def measured(
    study: LabStudy,
    seeds: Sequence[int],
    store: NumberStore,
    *,
    jobs: int = 1,
    quick: bool = False,
    tell: Told | None = None,
) -> dict[str, list[Numbers]]:
    """The numbers of every line of `study` by its row's name, one a seed, in their order.

    What `store` has is not measured again; what is measured is in it at once. With more than one
    job processes play, and end at once when anything is raised here, Ctrl-C above all.

    Raises:
        RunError: `store` cannot be written, or a process was ended from outside.
    """
    trials, code = study.trials(quick), program_hash(study.play)
    tasks = [task for trial in trials for task in _missing(trial, seeds, store, code)]
    if tasks:
        store.put({})  # a file that cannot be written is found before the work, not after it
        _measure(study, tasks, store, code, jobs, tell)
    return {
        line.row: [store.get(trial.key(line, seed, code)) or {} for seed in seeds]
        for trial in trials
        for line in trial.lines
    }


def _measure(
    study: LabStudy,
    tasks: Sequence[_Task],
    store: NumberStore,
    code: str,
    jobs: int,
    tell: Told | None,
) -> None:
    start, total = time.monotonic(), len(tasks)
    with closing(_played(study, tasks, jobs)) as played:
        for done, (task, found) in enumerate(played, 1):
            keys = [task.trial.key(line, task.seed, code) for line in task.lines]
            store.put(dict(zip(keys, found, strict=True)))
            if tell is not None:
                tell(LabPace(done, total, (time.monotonic() - start) / done * (total - done)))


def reproduce(
    study: LabStudy, found: Mapping[str, Sequence[Numbers]], *, quick: bool = False
) -> list[Row]:
    """The rows of `study` from the numbers of its lines: means over seeds, then what is derived."""
    rows = [
        row
        for trial in study.trials(quick)
        for line in trial.lines
        for row in _pooled(study, trial, line, found[line.row], quick)
    ]
    if study.derive is not None:
        rows += study.derive(samples(found))
    return rows


def samples(found: Mapping[str, Sequence[Numbers]]) -> dict[str, dict[str, list[float]]]:
    """The same numbers by row, metric and seed; no metric that a seed has no number of."""
    return {
        row: {
            metric: [float(x) for x in values if x is not None]
            for metric in dict.fromkeys(name for numbers in per_seed for name in numbers)
            if None not in (values := [numbers.get(metric) for numbers in per_seed])
        }
        for row, per_seed in found.items()
    }


def _missing(trial: Trial, seeds: Iterable[int], store: NumberStore, code: str) -> Iterator[_Task]:
    for seed in seeds:
        lines = tuple(n for n in trial.lines if store.get(trial.key(n, seed, code)) is None)
        if lines:
            yield _Task(trial, seed, lines)


def _played(
    study: LabStudy, tasks: Sequence[_Task], jobs: int
) -> Generator[tuple[_Task, Sequence[Numbers]], None, None]:
    calls = [(task.trial.world, task.lines, task.seed) for task in tasks]
    if jobs == 1:
        for task, call in zip(tasks, calls, strict=True):
            yield task, study.play(*call)
        return
    with closing(in_processes(study.play, calls, jobs)) as played:
        for place, found in played:
            yield tasks[place], found


def _pooled(
    study: LabStudy, trial: Trial, line: Line, found: Sequence[Numbers], quick: bool
) -> Iterator[Row]:
    """A row a metric that any seed has."""
    asked = _known(found, "asked_fraction")
    marks = [*line.marks, *(["quick: cut down to try the command, no result"] if quick else [])]
    for metric in study.metrics:
        if not any(metric in each for each in found):
            continue
        values = _known(found, metric)
        mean, error = pooled(values) if values else (None, None)
        yield Row(
            study.name,
            line.row,
            metric,
            mean,
            se=error,
            seeds=len(values),
            budget_fraction=line.budget_fraction,
            asked_fraction=sum(asked) / len(asked) if asked else None,
            paper=line.paper.get(metric),
            settings={**trial.world, **line.settings, "marks": marks},
        )


def _known(found: Sequence[Numbers], metric: str) -> list[float]:
    """The numbers of the seeds that have one."""
    return [value for each in found if (value := each.get(metric)) is not None]
