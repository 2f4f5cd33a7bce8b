"""Progress of a run: an updated line on a terminal, elsewhere a line from time to time.

The line says where the run is, the labels spent of the budget, the accuracy so far before each
label was seen, and on a terminal the time left. It goes to stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from stacksl.runs.loop.game import Progress

EVERY = 5.0  # seconds between two plain lines
PHASES = {
    "features": "features",
    "rows": "rows written",
    "rounds": "rounds",
    "labels": "labels asked for",
    "refit": "final model",
    "test": "testing",
    "report": "report",
}


Show = Callable[["Progress"], None]


@contextmanager
def live(*, quiet: bool = False) -> Iterator[Show | None]:
    """A function that shows each step it is given, or None where nothing is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield _living(bar)
    else:
        yield _plain()


def tracked(name: str | None, run: Path, show: Show | None) -> AbstractContextManager[Show | None]:
    """`show` while a context lasts; what it shows is reported to the tracker `name` as well."""
    if name is None:
        return nullcontext(show)
    from stacksl.lm.tracking import tracking

    return tracking(name, run, show)


def describe(step: Progress) -> str:
    """The facts of a `step`, without its bar."""
    if step.phase != "rounds":
        return ""
    accuracy = "" if step.accuracy is None else f" · accuracy so far {step.accuracy:.3f}"
    return f"{step.spent:,} of {step.budget:,} labels{accuracy}"


def encoding(show: Show | None, phase: Any = "features") -> Callable[[int, int], None] | None:
    """A function of (done, total) that shows the progress of a `phase` outside of a run."""
    if show is None:
        return None
    from stacksl.runs.loop.game import Progress

    return lambda done, total: show(Progress(phase, done, total))


def _plain() -> Show:
    """Prints a line every so often, at the start of each phase and at its end."""
    phase, last_line, due = "", "", 0.0

    def show(step: Progress) -> None:
        nonlocal phase, last_line, due
        now = time.monotonic()
        if step.phase == phase and now < due and step.done < step.total:
            return
        phase, due = step.phase, now + EVERY
        facts = describe(step)
        line = PHASES.get(step.phase, step.phase)
        if step.total > 1 or step.phase == "labels":  # another phase of one step is only named
            line += f" {step.done:,} of {step.total:,}"
        line += f" · {facts}" if facts else ""
        if line != last_line:
            print(line, file=sys.stderr, flush=True)
        last_line = line

    return show


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )


def _living(bar: Bar) -> Show:
    """Draws one line over itself; rich limits how often."""
    phase = ""
    task: TaskID | None = None

    def show(step: Progress) -> None:
        nonlocal phase, task
        facts = describe(step)
        if task is None or step.phase != phase:
            if task is not None:
                bar.remove_task(task)
            phase, name = step.phase, PHASES.get(step.phase, step.phase)
            task = bar.add_task(name, total=step.total, facts=facts)
        bar.update(task, completed=step.done, total=step.total, facts=facts)

    return show
