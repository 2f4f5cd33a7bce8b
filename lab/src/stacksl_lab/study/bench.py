"""Measurement of a study: each number once, stored in a file, by one or more processes.

A study asks for the numbers it needs and raises `Wanted` where some are missing; they are measured,
and the study asks again. What it asks for may therefore depend on earlier numbers, and a study that
was stopped continues where it was.

Numbers depend on the text of the program: after an edit they are measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import stacksl
from stacksl_lab.study.store import Measurement, Store
from stacksl_lab.study.workers import in_processes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of measurement, run by one process.

    Attributes:
        keys: of its numbers in the store.
        play: returns them for `args`, in the order of `keys`; a function at the top level of a
            module, since other processes import it by name.
        args: picklable.
        name: of the job, for the line that shows progress.
    """

    keys: tuple[str, ...]
    play: Callable[..., Sequence[Measurement]]
    args: tuple[Any, ...]
    name: str


class Wanted(Exception):
    """These jobs must be measured before the study can continue; no error."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(f"{len(jobs)} jobs to measure")
        self.jobs = tuple(jobs)


@dataclass(frozen=True, slots=True)
class Pace:
    """Progress: `done` of the `total` jobs known to be needed, the last of them, seconds left."""

    done: int
    total: int
    job: Job
    seconds_left: float


OnProgress: TypeAlias = Callable[[Pace], None]
"""Called after each job."""


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """Where studies are measured.

    Attributes:
        store: the numbers measured so far.
        jobs: how many jobs are measured at a time, each in a process of its own from 2.
        quick: whether studies are cut down to show that the command works.
    """

    store: Store
    jobs: int = 1
    quick: bool = False

    def measured(self, ask: Callable[[], T], on_progress: OnProgress | None = None) -> T:
        """What `ask` gives once everything it wants is measured.

        Processes end at once when anything is raised here, Ctrl-C above all.

        Raises:
            RunError: the store cannot be written, or a process was ended from outside.
        """
        while True:
            try:
                return ask()
            except Wanted as wanted:
                self._measure(wanted.jobs, on_progress)

    def _measure(self, wanted: Iterable[Job], on_progress: OnProgress | None) -> None:
        jobs = list({job.keys: job for job in wanted}.values())
        self.store.put({})  # a file that cannot be written is found before the work, not after it
        start = time.monotonic()
        with closing(self._played(jobs)) as played:
            for done, (job, numbers) in enumerate(played, 1):
                self.store.put(dict(zip(job.keys, numbers, strict=True)))
                if on_progress is not None:
                    left = (time.monotonic() - start) / done * (len(jobs) - done)
                    on_progress(Pace(done, len(jobs), job, left))

    def _played(
        self, jobs: Sequence[Job]
    ) -> Generator[tuple[Job, Sequence[Measurement]], None, None]:
        if self.jobs == 1 or len(jobs) < 2:
            for job in jobs:
                yield job, job.play(*job.args)
            return
        calls = [(job.play, *job.args) for job in jobs]
        with closing(in_processes(_call, calls, self.jobs)) as played:
            for place, numbers in played:
                yield jobs[place], numbers


def _call(play: Callable[..., Sequence[Measurement]], *args: Any) -> Sequence[Measurement]:
    return play(*args)


ROOTS = (Path(stacksl.__file__).parents[1], Path(__file__).parents[2])
"""The folders that hold the packages `stacksl` and `stacksl_lab`."""

PARTS = (
    "stacksl/core",
    "stacksl_lab/baselines",
    "stacksl_lab/drift.py",
    "stacksl_lab/engines",
    "stacksl_lab/learner.py",
    "stacksl_lab/likelihood.py",
    "stacksl_lab/streams",
    "stacksl_lab/synthetic",
    "stacksl_lab/statistics",
    "stacksl_lab/study/bench.py",
    "stacksl_lab/study/store.py",
)


def program_files(parts: Sequence[str] = PARTS, roots: Sequence[Path] = ROOTS) -> dict[str, Path]:
    """The files that any number may depend on, those of `parts`, by their names below `roots`.

    Every study depends on all of them: an edit of one study measures the others again, which takes
    minutes, and nothing can be overlooked.
    """
    places = [(root, root / part) for part in parts for root in dict.fromkeys(roots)]
    files = {
        file.relative_to(root).as_posix(): file
        for root, place in places
        for file in (place, *place.rglob("*.py"))
        if file.suffix == ".py" and file.is_file()
    }
    return dict(sorted(files.items()))


@cache
def program_hash(parts: Sequence[str] = PARTS, roots: Sequence[Path] = ROOTS) -> str:
    """A hash of `program_files`: their names and their bytes."""
    digest = blake2b(digest_size=8)
    for name, file in program_files(parts, roots).items():
        text = file.read_bytes()
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()
