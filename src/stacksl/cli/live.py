"""Progress of a run: an updated line on a terminal, elsewhere a line from time to time.

The line says where the run is, the labels spent of the budget, the accuracy so far before each
label was seen, and the time left. It goes to stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stacksl.report.wording import duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from stacksl.runs.loop.progress import Progress


SETTLED = 3.0  # seconds of a phase before its pace is shown
PHASES = {
    "features": "features",
    "rounds": "rounds",
    "labels": "labels asked for",
    "refit": "final model",
    "test": "testing",
    "report": "report",
}


Show = Callable[["Progress"], None]


@contextmanager
def live(
    *, quiet: bool = False, stream: TextIO | None = None, every: float = 5.0
) -> Iterator[Show | None]:
    """A function that shows each step it is given, or None where nothing is to be shown.

    `every` is the seconds between two plain lines where `stream` (stderr) is no terminal.
    """
    target = sys.stderr if stream is None else stream
    if quiet:
        yield None
    elif target.isatty():
        with _bar(target) as bar:
            yield _living(bar)
    else:
        yield _plain(target, every)


def tracked(name: str | None, run: Path, show: Show | None) -> AbstractContextManager[Show | None]:
    """`show` while a context lasts; what it shows is reported to the tracker `name` as well."""
    if name is None:
        return nullcontext(show)
    from stacksl.lm.tracking import tracking

    return tracking(name, run, show)


def describe(step: Progress, pace: float | None) -> str:
    """The facts of a `step`, without its bar; `pace` in items a second."""
    facts: list[str] = []
    if step.phase == "rounds":
        facts.append(f"{step.spent:,} of {step.budget:,} labels")
        if step.accuracy is not None:
            facts.append(f"accuracy so far {step.accuracy:.3f}")
    if pace is not None and step.done < step.total:
        if step.phase == "features":
            facts.append(f"{pace:.{0 if pace >= 10 else 1}f} a second")
        facts.append(f"{duration(max(1, round((step.total - step.done) / pace)))} left")
    return " · ".join(facts)


def encoding(show: Show | None) -> Callable[[int, int], None] | None:
    """A function of (done, total) that shows the progress of features, outside of a run."""
    if show is None:
        return None
    from stacksl.runs.loop.progress import Progress

    return lambda done, total: show(Progress("features", done, total))


class PhaseClock:
    """The pace of a phase; it starts again with each phase.

    The clock starts when the first items are done: what comes before, such as loading an encoder,
    is paid once.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = ""
        self._since = 0.0
        self._first = 0
        self._moved = False

    def pace(self, step: Progress) -> float | None:
        """Items a second in the phase of `step`; None in its first seconds."""
        now = self._now()
        new = step.phase != self._phase
        if new or (not self._moved and step.done > self._first):
            self._phase, self._since, self._first, self._moved = step.phase, now, step.done, not new
        done, seconds = step.done - self._first, now - self._since
        return done / seconds if done > 0 and seconds >= SETTLED else None


def _plain(target: TextIO, every: float) -> Show:
    """Prints a line every so often, at the start of each phase and at its end."""
    clock, phase, last_line, due = PhaseClock(), "", "", 0.0

    def show(step: Progress) -> None:
        nonlocal phase, last_line, due
        pace, now = clock.pace(step), time.monotonic()
        if step.phase == phase and now < due and step.done < step.total:
            return
        phase, due = step.phase, now + every
        facts = describe(step, pace)
        line = PHASES.get(step.phase, step.phase)
        if step.total > 1:  # a phase of one step is only named
            line += f" {step.done:,} of {step.total:,}"
        line += f" · {facts}" if facts else ""
        if line != last_line:
            print(line, file=target, flush=True)
        last_line = line

    return show


def _bar(target: TextIO) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[facts]}", markup=False),
        console=Console(file=target),
        transient=True,
    )


def _living(bar: Bar) -> Show:
    """Draws one line over itself; rich limits how often."""
    clock, phase = PhaseClock(), ""
    task: TaskID | None = None

    def show(step: Progress) -> None:
        nonlocal phase, task
        facts = describe(step, clock.pace(step))
        if task is None or step.phase != phase:
            if task is not None:
                bar.remove_task(task)
            phase, name = step.phase, PHASES.get(step.phase, step.phase)
            task = bar.add_task(name, total=step.total, facts=facts)
        bar.update(task, completed=step.done, total=step.total, facts=facts)

    return show
