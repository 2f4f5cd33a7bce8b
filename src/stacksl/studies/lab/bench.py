"""Where laboratory studies are measured: each number once, in several processes, kept in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from stacksl.studies.lab.store import NumberStore
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Trial
from stacksl.studies.rows import Row, pooled

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


_SHOWING = ("drawing", "headline", "records", "scores")
"""What shows numbers and makes none: a folder, and files."""


@cache
def code_hash() -> str:
    """A hash of the program text that numbers depend on: the game and the laboratory.

    Numbers of other code are measured anew and not taken from the store.
    """
    import stacksl

    root = Path(stacksl.__file__).parent
    digest = blake2b(digest_size=8)
    for folder in ("game", "studies/lab"):
        for file in sorted((root / folder).rglob("*.py")):
            if not {file.parent.name, file.stem}.intersection(_SHOWING):
                digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


def measured(
    study: LabStudy,
    seeds: Sequence[int],
    store: NumberStore,
    *,
    jobs: int = 1,
    quick: bool = False,
    tell: Callable[[LabPace], None] | None = None,
) -> dict[str, list[Numbers]]:
    """The numbers of every line of `study` by its row's name, one a seed, in their order.

    What `store` has is not measured again; what is measured is in it at once.
    """
    trials, code = study.trials(quick), code_hash()
    tasks = [task for trial in trials for task in _missing(trial, seeds, store, code)]
    start, known = time.monotonic(), len(tasks)
    for done, (task, found) in enumerate(_played(study, tasks, jobs), 1):
        keys = [task.trial.key(line, task.seed, code) for line in task.lines]
        store.put(dict(zip(keys, found, strict=True)))
        if tell is not None:
            tell(LabPace(done, known, (time.monotonic() - start) / done * (known - done)))
    return {
        line.row: [store.get(trial.key(line, seed, code)) or {} for seed in seeds]
        for trial in trials
        for line in trial.lines
    }


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
) -> Iterator[tuple[_Task, Sequence[Numbers]]]:
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, study.play(task.trial.world, task.lines, task.seed)
        return
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(study.play, task.trial.world, task.lines, task.seed): task for task in tasks
        }
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _pooled(
    study: LabStudy, trial: Trial, line: Line, found: Sequence[Numbers], quick: bool
) -> Iterator[Row]:
    asked = [share for each in found if (share := each.get("asked_fraction")) is not None]
    marks = [*line.marks, *(["quick: cut down to try the command, no result"] if quick else [])]
    settings = {**trial.world, **line.settings, "marks": marks}
    for metric in study.metrics:
        if not any(metric in each for each in found):
            continue
        values = [value for each in found if (value := each.get(metric)) is not None]
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
            settings=settings,
        )
