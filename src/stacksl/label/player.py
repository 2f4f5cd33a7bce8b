"""The run behind the page: one thread holds it, enters the answers one at a time, and plays on.

The page reads a `View`, which the thread replaces as a whole. So the next question is there while
the model is refitted; answers given meanwhile wait in a queue, in the order of their arrival.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Literal

from stacksl.data import Classes
from stacksl.errors import RunError, StackslError, kind_and_place
from stacksl.labelers.protocol import Pending, Request
from stacksl.labelers.sheets import Asked, Reply
from stacksl.ledger.purchases import Answer, Handed
from stacksl.runs.session.answering import spec_of_people
from stacksl.runs.session.assignment import SheetLabeler, annotators_of, answers_from
from stacksl.runs.session.session import Session, Waiting
from stacksl.runs.settings.budget import parse_prices
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

Outcome = Literal["taken", "kept", "gone", "refused"]
State = Literal["open", "finished", "failed"]

LOW = 2  # open rows of an annotator below which more are bought
REMEMBERED = 10_000  # answers whose client key and sequence are kept in memory


@dataclass(frozen=True, slots=True)
class View:
    """A run as the page shows it.

    Attributes:
        state: `open` until the run has finished or failed.
        rows: the open rows of each annotator, oldest sheet first, else by their random keys, so
            that the order says nothing of the reason for a row.
        answered: how many rows each annotator has answered.
        spent, budget: labels.
        classes: the fixed classes, if any.
        sentence: why the run failed.
    """

    state: State = "open"
    rows: Mapping[str, tuple[Asked, ...]] = field(default_factory=dict)
    answered: Mapping[str, int] = field(default_factory=dict)
    spent: int = 0
    budget: int = 0
    classes: Classes | None = None
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class _Given:
    annotator: str
    reply: Reply
    outcome: Future[Outcome]


class PageLabeler:
    """The labeler of a run while the page is open: rows are assigned, and no sheet is written.

    The annotators, keys and orders are those of `sheets`, so that a row may be answered either way.
    """

    repeatable = False

    def __init__(self, sheets: SheetLabeler) -> None:
        self.sheets, self.name = sheets, sheets.name
        self.rows: list[Handed] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests."""
        self.sheets.ask(requests)

    def answers(self) -> list[Answer]:
        """None: the player enters each answer as it arrives."""
        return []

    def pending(self) -> list[Pending]:
        """Assign open requests; they are on the page, in no file."""
        self.rows = self.sheets.assign()
        return []


class Player:
    """Plays a run on a thread of its own until it has finished.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.view = View()
        self.fault: BaseException | None = None
        self.paused = False  # shows no questions; answers are still taken
        self.over = threading.Event()  # finished, failed or stopped
        self._started = threading.Event()
        self._queue: queue.SimpleQueue[_Given | None] = queue.SimpleQueue()
        self._stopping = False
        self._seen: dict[tuple[str, str, int, str], Future[Outcome]] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()  # of the two above
        self._answered: Counter[str] = Counter()
        context = copy_context()  # how long to wait for the run's lock
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def start(self) -> Player:
        """Open the run and play it to its first questions.

        Raises:
            RunError: it is not answered by people, has finished, or another process holds it.
            StackslError: it cannot be opened.
        """
        spec = spec_of_people(self.folder)
        if self.folder.read_state()["state"] == "finished" and self.folder.has_results():
            raise RunError(f"the run {self.folder.path} has finished: it has no open questions")
        self.annotators = annotators_of(spec.settings.annotators)
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

    def questions(self, annotator: str) -> tuple[Asked, ...]:
        """The open rows of an annotator, without those whose answers wait to be entered."""
        rows = () if self.paused else self.view.rows.get(annotator, ())
        with self._lock:
            return tuple(row for row in rows if not self._waiting[annotator, row.key])

    def give(self, annotator: str, client: str, seq: int, reply: Reply) -> Future[Outcome]:
        """Queue an answer; a repetition by client and sequence gets the outcome of the first.

        The outcome is set once the answer is in the ledger: `taken`, `kept` (another answer counts,
        or it is too late), `gone` (no such row is this annotator's) or `refused` (it names no
        option of the row, or gives an option's text as the right one beside none of these).
        """
        outcome: Future[Outcome] = Future()
        with self._lock:
            known = self._seen.setdefault((annotator, client, seq, reply.key), outcome)
            if known is not outcome:
                return known
            if len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._waiting[annotator, reply.key] += 1
        self._queue.put(_Given(annotator, reply, outcome))
        if self.over.is_set():
            self._refuse_rest()
        return outcome

    # On the thread of the run ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            spec = RunSpec.open(self.folder)
            with self.folder.locked(), Session.open(spec, held=True) as session:
                assert isinstance(session.labeler, SheetLabeler)
                session.labeler = labeler = PageLabeler(session.labeler)
                for row in session.ledger.export():
                    self._answered[str(row["labeler"])] += row["state"] == "answered"
                self._play(session, labeler)
        except BaseException as fault:
            self.fault = fault
            known = isinstance(fault, StackslError)
            sentence = str(fault) if known else f"unexpected {kind_and_place(fault)}"
            self.view = View("failed", sentence=sentence)
        finally:
            self.over.set()
            self._refuse_rest()
            self._started.set()

    def _play(self, session: Session, labeler: PageLabeler) -> None:
        outcome = session.play()
        self._publish(session, labeler)
        self._started.set()
        while isinstance(outcome, Waiting):
            for given in self._next():
                self._enter(session, labeler, given)
            self._publish(session, labeler)
            if self._stopping and self._queue.empty():
                return
            if self._short(session, labeler):
                outcome = session.play()
                self._publish(session, labeler)
        spent, budget = session.ledger.spent, session.ledger.budget
        self.view = View("finished", answered=dict(self._answered), spent=spent, budget=budget)

    def _next(self) -> list[_Given]:
        """The answers that have arrived; waits for one, or to be stopped."""
        found = [self._queue.get()]
        while not self._queue.empty():
            found.append(self._queue.get())
        return [given for given in found if given is not None]

    def _enter(self, session: Session, labeler: PageLabeler, given: _Given) -> None:
        """Enter one answer; the annotator's reply does not wait for what is learnt of it."""
        sheets, reply, name = labeler.sheets, given.reply, given.annotator
        handed = {row.key: sheets.now(row) for row in session.ledger.handed([reply.key])}
        row = handed.get(reply.key)
        if row is None or row.annotator != name:
            self._reply(given, "gone")
            return
        if not _fits(reply, sheets.question(row).options):
            self._reply(given, "refused")
            return
        answers = answers_from([reply], handed, parse_prices(sheets.settings.price))
        [receipt] = session.ledger.take(answers)
        self._answered[name] += receipt.outcome == "accepted"
        labeler.rows = [each for each in labeler.rows if each.key != reply.key]
        self._reply(given, "taken" if receipt.outcome in ("accepted", "repeated") else "kept")
        session.learn(receipt)

    def _reply(self, given: _Given, outcome: Outcome) -> None:
        rows = self.view.rows.get(given.annotator, ())
        if outcome != "refused":
            left = tuple(row for row in rows if row.key != given.reply.key)
            self.view = _with_rows(self.view, {**self.view.rows, given.annotator: left})
        with self._lock:
            self._waiting[given.annotator, given.reply.key] -= 1
        given.outcome.set_result(outcome)

    def _refuse_rest(self) -> None:
        """Fail the answers that can no longer be entered; a browser keeps them and tries again."""
        while not self._queue.empty():
            try:
                given = self._queue.get_nowait()
            except queue.Empty:
                return
            if given is not None:
                given.outcome.set_exception(RunError("the run is closed"))

    def _short(self, session: Session, labeler: PageLabeler) -> bool:
        """Whether to buy more now: somebody has few rows, and something can be bought or assigned.

        Not after each answer: every purchase begins with a refit on the answers so far.
        """
        leases, rows = len(session.ledger.open_purchases()), self.view.rows
        if leases > len(labeler.rows) or not leases:
            return True
        here = [name for name in self.annotators if name not in labeler.sheets.away]
        few = min((len(rows.get(name, ())) for name in here), default=0) < LOW
        size = labeler.sheets.settings.batch
        return bool(session.ledger.left) and (few or 2 * len(labeler.rows) <= size)

    def _publish(self, session: Session, labeler: PageLabeler) -> None:
        rows: dict[str, list[Asked]] = {}
        for handed in sorted(labeler.rows, key=lambda row: (row.sheet, row.key)):
            rows.setdefault(handed.annotator, []).append(labeler.sheets.question(handed))
        self.view = View(
            rows={name: tuple(asked) for name, asked in rows.items()},
            answered=dict(self._answered),
            spent=session.ledger.spent,
            budget=session.ledger.budget,
            classes=labeler.sheets.classes,
        )


def _with_rows(view: View, rows: Mapping[str, tuple[Asked, ...]]) -> View:
    return View(
        view.state, rows, view.answered, view.spent, view.budget, view.classes, view.sentence
    )


def _fits(reply: Reply, options: Sequence[str]) -> bool:
    """Whether a reply can be the answer to a row with these options."""
    if reply.said == "label":
        return reply.position is not None and 0 <= reply.position < len(options)
    said = (reply.text or "").casefold()
    return reply.position is None and said not in {text.strip().casefold() for text in options}
