"""The run behind the page: one thread holds it, enters the answers one at a time, and plays on.

The page reads a `View`, which the thread replaces as a whole. A refit is computed on a thread of
its own; meanwhile this one goes on to enter answers. What changes the run waits for the refit.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from stacksl.errors import RunError, StackslError, kind_and_place
from stacksl.label.open_run import (
    OpenRun,
    Outcome,
    PageSession,
    View,
    view_of_finished,
)
from stacksl.runs.changes.people import Received, expect_people
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

T = TypeVar("T")

IDLE = 1800.0  # seconds without an answer after which somebody's rows go to others
TICK = 5.0  # seconds between two looks at who is idle


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be done on the thread of the run, where `closes` while it is closed.

    A fault of what `enters` an answer ends the run: it may be entered in part, or the disk is full.
    """

    work: Callable[[], Any]
    closes: bool = False
    enters: bool = False
    outcome: Future[Any] = field(default_factory=Future)

    def carry_out(self) -> None:
        """Do the work and set its outcome; nothing is done once nobody waits for it."""
        if not self.outcome.set_running_or_notify_cancel():
            return
        try:
            result = self.work()
        except Exception as fault:
            is_expected = isinstance(fault, StackslError)
            unexpected = RunError(f"unexpected {kind_and_place(fault)}")
            self.outcome.set_exception(fault if is_expected else unexpected)
            if self.enters and not isinstance(fault, RunError):
                raise
        else:
            self.outcome.set_result(result)


class Player:
    """Plays a run on a thread of its own until it has finished, and does what its owner wants then.

    Args:
        idle: seconds without an answer after which somebody's rows go to others; 0 for never.
        page: the address of the page, for other processes that want the run meanwhile.
    """

    def __init__(self, folder: RunFolder, idle: float = IDLE, page: str = "") -> None:
        self.folder = folder
        self.view = View()
        self.fault: BaseException | None = None
        self.over = threading.Event()  # played to its end, failed or stopped
        self._closed = threading.Event()  # nothing is done any more
        self._again = False  # whether a finished run is to be played once more
        self._limit, self._page = idle, page
        self._open: OpenRun | None = None
        self._started = threading.Event()
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._put_off: deque[_Task] = deque()  # what closes the run
        self._stopping = False
        self._seen: dict[str, float] = {}  # when each annotator was there last
        self._idle: frozenset[str] = frozenset()  # who has been silent for too long
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def annotators(self) -> tuple[str, ...]:
        """The names of the annotators."""
        return tuple(self._seen)

    def start(self) -> Player:
        """Open the run and play it to its first questions, or for as long as nobody has to wait.

        Raises:
            RunError: it is not answered by people, or another process holds it.
            StackslError: it cannot be opened.
        """
        self._seen = dict.fromkeys(expect_people(self.folder).people, monotonic())
        self._thread.start()
        self._started.wait()
        if self.fault is not None:
            raise self.fault
        return self

    def stop(self, seconds: float = 30.0) -> None:
        """Enter the answers that were given, and close the run after the current refit.

        A refit that takes longer is cut off, as by a kill: nothing that was accepted is lost.
        """
        self._stopping = True
        self._queue.put(None)
        self._thread.join(seconds)

    # On the threads of the server --------------------------------------------------------------

    def say(self, annotator: str, key: str, enter: Callable[[OpenRun], Outcome]) -> Future[Outcome]:
        """Queue what an annotator did with a row: an answer, or a row for somebody else.

        The outcome of an answer is set once it is in the ledger: `taken`, which a repetition is as
        well, `kept` (another answer counts, or it is too late), `gone` (no such row is this
        annotator's) or `refused` (it names no option of the row, or gives an option's text as the
        right one together with none of these). The outcome of a skipped row is `skipped`, or `gone`
        if it is passed on already.
        """

        def entered() -> Outcome:
            if self._open is None:
                raise RunError("the run has finished")
            outcome = enter(self._open)
            if outcome != "refused":
                rows_left = [row for row in self.view.rows.get(annotator, ()) if row.key != key]
                self.view = replace(self.view, rows={**self.view.rows, annotator: tuple(rows_left)})
            return outcome

        return self._put(_Task(entered, enters=True))

    def do(self, work: Callable[[], T], *, closes: bool = False) -> Future[T]:
        """Queue an operation on the folder; its outcome, which may be cancelled until it begins.

        One that changes the run `closes` it: it waits for a refit that is under way, and the run is
        opened again after it.
        """
        return self._put(_Task(work, closes))

    def receive(self, files: Sequence[Path]) -> Future[Received]:
        """Queue the entry of filled-in sheets, between two answers."""

        def entered() -> Received:
            if self._open is None:
                raise RunError("the run has finished: correct its answers among the rows")
            return self._open.receive(files)

        return self.do(entered)

    def play_again(self) -> None:
        """Make the model and the report of a finished run again, after corrections.

        Raises:
            RunError: nothing was corrected, or the run is being played.
        """
        if not self.view.changed:
            raise RunError("no answer of the finished run was corrected: its report is as it was")
        self.view = replace(self.view, state="open", changed=False)
        self._again = True
        self._queue.put(None)

    def see(self, annotator: str) -> None:
        """Note that an annotator is there, and gets rows again."""
        if annotator in self._seen:  # not while they join
            self._seen[annotator] = monotonic()
        if annotator in self._idle:
            self._queue.put(None)

    def _put(self, job: _Task) -> Future[Any]:
        self._queue.put(job)
        if self._closed.is_set():
            self._refuse_rest()
        return job.outcome

    # On the thread of the run ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._changed or not self.folder.has_results():
                self._play_to_the_end()
            while not self._stopping:
                self._wait_for_corrections()
                if self._again:
                    self._play_to_the_end()
        except BaseException as fault:
            self.fault = fault
            self._show_fault(fault)
        finally:
            self.over.set()
            self._closed.set()
            self._refuse_rest()
            self._started.set()

    @property
    def _changed(self) -> bool:
        return bool(self.folder.read_state()["state"] != "finished")

    def _play_to_the_end(self) -> None:
        with self.folder.locked(page=self._page, inside=True):
            while True:
                with PageSession.open(RunSpec.open(self.folder)) as session:
                    self._open = OpenRun(session, self._seen, self._attend)
                    task = self._play(self._open)
                if task is None:
                    break
                task.carry_out()
        self._open, self._again = None, False
        if self.view.state == "finished":
            self.over.set()

    def _wait_for_corrections(self) -> None:
        """Do what the owner of a finished run wants, until it is to be played again, or stopped."""
        if self.view.state != "finished":
            self.view = view_of_finished(self.folder, self._seen)
        self._started.set()
        while self._put_off:  # by the last refit
            self._queue.put(self._put_off.popleft())
        while not (self._again or self._stopping):
            for job in self._next():
                job.carry_out()
                self.view = replace(self.view, changed=self._changed)

    def _play(self, run: OpenRun) -> _Task | None:
        """Play the run to its end, or until it is stopped; or to a task that closes it."""

        def show() -> None:
            self.view = run.view()

        show()
        state = run.buy(show)
        show()
        self._started.set()
        while state == "waiting":
            if self._put_off:
                return self._put_off.popleft()
            if self._stopping and self._queue.empty():
                return None
            self._enter_arrived(run)
            if not self._put_off and run.short():
                state = run.buy(show)
                show()
        self.view = replace(run.view(), state="finished", rows={})
        return None

    def _attend(self, run: OpenRun, refit: Future[object]) -> None:
        """Enter what arrives until a refit is made; changes are put off."""
        if any(self.view.rows.values()):
            self._started.set()  # there is something to answer
        refit.add_done_callback(lambda _: self._queue.put(None))
        try:
            while not refit.done():
                self._enter_arrived(run)
                if not refit.done():
                    self._started.set()  # nobody waits for longer
        except BaseException as fault:
            self._show_fault(fault)  # the run ends when the refit has
            raise

    def _enter_arrived(self, run: OpenRun) -> None:
        """Do what has arrived, but for what closes the run, and show the run as it is then."""
        for job in self._next():
            if job.closes:
                self._put_off.append(job)
            else:
                job.carry_out()
        self._look_for_idle(run)
        self.view = run.view()

    def _show_fault(self, fault: BaseException) -> None:
        is_expected = isinstance(fault, StackslError)
        sentence = str(fault) if is_expected else f"unexpected {kind_and_place(fault)}"
        self.view = replace(self.view, state="failed", rows={}, sentence=sentence)

    def _next(self) -> Iterator[_Task]:
        """What has arrived; waits for it, or to be stopped."""
        try:
            task = self._queue.get(timeout=TICK)
            while True:
                if task is not None:
                    yield task
                task = self._queue.get_nowait()
        except queue.Empty:
            return

    def _look_for_idle(self, run: OpenRun) -> None:
        """Give the rows of those who have stopped to others, if anybody else is there."""
        now, asked = monotonic(), {row.annotator for row in run.labeler.rows}
        for name in self._seen.keys() - asked - self._idle:
            self._seen[name] = now  # nothing was asked of them: they wait, and are not silent
        idle = frozenset(n for n, time in self._seen.items() if 0 < self._limit <= now - time)
        nobody = idle >= self._seen.keys() - run.away  # then who has rows keeps them
        self._idle = self._idle & idle if nobody else idle
        run.give_up_on(self._idle)

    def _refuse_rest(self) -> None:
        """Fail what can no longer be done; a browser keeps its answers and tries again."""
        while self._put_off or not self._queue.empty():
            try:
                task = self._put_off.popleft() if self._put_off else self._queue.get_nowait()
            except (queue.Empty, IndexError):
                return
            if task is not None and task.outcome.set_running_or_notify_cancel():
                task.outcome.set_exception(RunError("the page has closed the run"))
