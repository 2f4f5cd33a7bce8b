"""A run that is open for the page: its session, answers entered, rows passed on, labels bought.

Refits are made while answers are entered, one before each purchase. What the page shows is a
`View`, which is replaced as a whole and read by the threads of the server; labels that are reserved
but in nobody's rows, which are those of the audit, are left out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Literal, TypeVar

from stacksl.data import Classes
from stacksl.errors import LabelerError
from stacksl.labelers.protocol import Pending
from stacksl.labelers.sheets.rows import Reply, SheetRow
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Handed, Receipt, Skip
from stacksl.ledger.queries import LedgerReader
from stacksl.report.quality import Differing
from stacksl.runs.changes.people import Received, received
from stacksl.runs.finish.forecasting import look_due
from stacksl.runs.finish.promising import looked_enough
from stacksl.runs.session.assignment import SheetLabeler, open_rows
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder, State

Outcome = Literal["taken", "kept", "gone", "refused", "skipped"]
Stage = Literal["open", "finished", "failed"]
T = TypeVar("T")

LOW = 2  # open rows of an annotator below which more are bought


# What the page shows ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Person:
    """An annotator as the owner sees them.

    Attributes:
        open, answered, skipped: rows; `answered` counts all purposes together.
        standing: `idle`, `away`, `set aside` or empty.
    """

    name: str
    open: int = 0
    answered: int = 0
    skipped: int = 0
    standing: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A run as the page shows it.

    Attributes:
        state: `open` until the run has finished or failed.
        rows: the open rows of each annotator, oldest sheet first, else by their random keys, so
            that the order says nothing of the reason for a row.
        people: the annotators, in the order of the settings.
        money: the most micro-units; None where labels have no price. `price`: of a label.
        facts: what `status` says of the run besides, see `Session`.
        sentence: why the run failed.
        changed: whether answers were corrected after the end, which no report knows yet.
    """

    state: Stage = "open"
    rows: Mapping[str, tuple[SheetRow, ...]] = field(default_factory=dict)
    people: tuple[Person, ...] = ()
    answered: int = 0
    budget: int = 0
    money: int | None = None
    price: int = 0
    differing: tuple[Differing, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    classes: Classes | None = None
    sentence: str | None = None
    changed: bool = False

    def of(self, name: str) -> Person:
        """One annotator."""
        return next((person for person in self.people if person.name == name), Person(name))


def view_of_finished(folder: RunFolder, names: Iterable[str]) -> View:
    """A run that had finished before the page was opened, with its annotators."""
    with Ledger.open(folder.database, readonly=True) as ledger:
        (answered, skipped), terms = _counts(ledger), ledger.accounts
        states = {"set aside": ledger.set_aside, "away": ledger.absent}
    people = _people(names, (Counter(), answered, skipped), states)
    total = sum(answered.values())
    return View("finished", {}, people, total, terms.budget, terms.money, terms.price)


def _counts(ledger: LedgerReader) -> tuple[Counter[str], Counter[str]]:
    """How many rows each annotator has answered, without labels that are owned, and skipped."""
    bought = (row for row in ledger.export() if row["state"] == "answered")
    answered = Counter(str(row["labeler"]) for row in bought if row["purpose"] != "owned")
    handed = ledger.private.handed()
    owners: dict[Any, str] = {(row.item, row.slot, row.token): row.annotator for row in handed}
    released = ledger.rows(only=("released",))
    skipped = (row for row in released if row.payload["reason"].startswith("skipped"))
    keys = ((row.item, row.slot, row.token) for row in skipped)
    return answered, Counter(owners[key] for key in keys if key in owners)


def _people(
    names: Iterable[str], counts: Sequence[Counter[str]], states: Mapping[str, Collection[str]]
) -> tuple[Person, ...]:
    """The annotators with `counts` of rows, and the first of the `states` whose names have them."""
    standing = {name: next((s for s, who in states.items() if name in who), "") for name in names}
    rows, answered, skipped = counts
    return tuple(Person(n, rows[n], answered[n], skipped[n], standing[n]) for n in standing)


# The session --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True)
class PageSession(Session):
    """A session of the page.

    Answers entered during a refit are learned after it, and are in the next one. That refit is made
    before the next purchase, whenever the run is killed in between (`Game.skips_refit`).
    """

    refitted: bool = False  # whether a refit was made for the next purchase

    def refit_if_due(self) -> None:
        """Refit the model before a purchase, and not after it."""
        if self.skips_refit:
            return
        self.refitted = self.trainer.due
        Session.refit_if_due(self)
        self.skips_refit = True

    def end_purchase(self, posted: bool) -> None:
        """Note that the purchases possible now were made; whether any was `posted`."""
        Session.end_purchase(self, posted or not self.refitted)


class PageLabeler(SheetLabeler):
    """The labeler of a run while the page is open: rows are assigned, and no sheet is written.

    The annotators, keys and orders are those of sheets, so that a row may be answered either way.
    """

    def __init__(self, spec: RunSpec, ledger: Ledger) -> None:
        super().__init__(spec, ledger)
        self.rows = self.waiting()  # to answer while the first refit is made
        self.assigned: Callable[[], None] = lambda: None

    def pending(self) -> list[Pending]:
        """Assign open requests; they are on the page, in no file."""
        self.rows = self.assign()
        self.assigned()
        return []


class OpenRun:
    """A session with its page. Only the thread that opened it may use it.

    Args:
        seen: when its annotators were there last, by name; those who are new are added.
        attend: called while a refit is made on another thread, with this and a future that is done
            after it; enters what arrives until then.
    """

    def __init__(
        self,
        session: PageSession,
        seen: dict[str, float],
        attend: Callable[[OpenRun, Future[Any]], None],
    ) -> None:
        self.session, self.ledger, self.seen = session, session.ledger, seen
        session.labeler = self.labeler = PageLabeler(session.spec, session.ledger)
        session.trainer.background, session.trainer.attended = self._background, True
        self._attend = attend
        for name in session.spec.settings.people:
            seen.setdefault(name, monotonic())
        self.away = self.labeler.away
        self._idle: frozenset[str] | None = None  # as the assignment knows it
        self._lessons: list[Receipt] = []
        self._answered, self._skipped = _counts(self.ledger)
        self._questions: dict[str, SheetRow] = {}

    # Answers -----------------------------------------------------------------------------------

    def enter(self, annotator: str, reply: Reply) -> Outcome:
        """Enter one answer; it is learned before the next purchase."""
        row = self._row(annotator, reply.key)
        if row is None:
            return "gone"
        if not _fits(reply, self.labeler.question(row).options):
            return "refused"
        try:
            [receipt] = self.ledger.take([self.labeler.answer(reply, row)])
        except LabelerError:  # one answer stops no run
            return "refused"
        self._note([receipt])
        self.seen[annotator] = monotonic()
        self.labeler.rows = [row for row in self.labeler.rows if row.key != reply.key]
        return "taken" if receipt.outcome in ("accepted", "repeated") else "kept"

    def receive(self, files: Sequence[Path]) -> Received:
        """Enter the answers of sheets."""
        sheets = self.labeler.read(files)
        receipts = self.ledger.take(self.labeler.answers())
        self._note(receipts)
        for name in {receipt.answer.labeler for receipt in receipts} & self.seen.keys():
            self.seen[name] = monotonic()
        return received(self.session.spec.folder, self.ledger, sheets, receipts)

    def _row(self, annotator: str, key: str) -> Handed | None:
        """The row of an annotator, open or not."""
        rows = [self.labeler.now(row) for row in self.ledger.private.handed(key)]
        return next((row for row in rows if row.annotator == annotator), None)

    def _note(self, receipts: Sequence[Receipt]) -> None:
        """Withdraw the rows that are answered now, whoever has them."""
        answers = [receipt.answer for receipt in receipts if receipt.outcome == "accepted"]
        self._answered.update(answer.labeler for answer in answers)
        self._lessons += receipts
        answered_labels = {(answer.item, answer.slot) for answer in answers}
        if answered_labels:
            rows = self.labeler.rows
            self.labeler.rows = [row for row in rows if (row.item, row.slot) not in answered_labels]

    # Rows that go to somebody else ---------------------------------------------------------------

    def skip(self, annotator: str, key: str, why: Skip, note: str | None = None) -> Outcome:
        """Pass a row on to somebody else; to the same annotator where nobody else may have it."""
        row = next((open_row for open_row in self.labeler.rows if open_row.key == key), None)
        if row is None or row.annotator != annotator:
            return "gone"
        self.seen[annotator] = monotonic()
        self._skipped[annotator] += 1
        self._pass_on([row], f"skipped: {why}", note)
        return "skipped"

    def give_up_on(self, idle: frozenset[str]) -> None:
        """Assign nothing to those who are `idle`, and their rows to others who may have them."""
        if idle == self._idle:
            return
        self._idle = idle
        self.labeler.away = self.away | idle
        rows = [row for row in self.labeler.rows if row.annotator in idle]
        if rows:
            assignments = {(row.item, row.annotator) for row in self.ledger.private.handed()}
            names = set(self.seen) - self.labeler.away
            self._pass_on(
                [row for row in rows if any((row.item, name) not in assignments for name in names)],
                "expired",
            )

    def _pass_on(self, rows: Collection[Handed], reason: str, note: str | None = None) -> None:
        """Lease rows again and assign them, to nobody who had the item if somebody else is here."""
        leases = [lease for row, lease in open_rows(self.ledger) if row in rows]
        with self.ledger.together():
            for lease in leases:
                if self.ledger.release(lease, reason, note):
                    self.ledger.lease(lease.item, slot=lease.slot)
        if leases:
            self.labeler.ask(self.session.requests())
            self.labeler.pending()

    # Purchases -----------------------------------------------------------------------------------

    def short(self) -> bool:
        """Whether to buy more now: somebody has few rows, and something can be bought or assigned.

        Not after each answer: a purchase begins with a refit.
        """
        size, rows = self.labeler.settings.open_questions, len(self.labeler.rows)
        leases = len(self.ledger.open_purchases())
        if not leases:
            return True
        spec, ledger = self.session.spec, self.ledger
        pauses = look_due(spec, ledger.accounts) or looked_enough(spec, ledger)
        buys = ledger.accounts.left and not pauses
        if rows >= size or not (buys or leases > rows):
            return False
        row_counts = Counter(row.annotator for row in self.labeler.rows)
        names = [name for name in self.seen if name not in self.labeler.away]
        return 2 * rows <= size or min((row_counts[name] for name in names), default=0) < LOW

    def buy(self, show: Callable[[], None]) -> State:
        """Learn the answers so far, and play the run until it waits or has finished.

        `show` is called once new rows are in the ledger: what the run estimates and writes after
        that takes a third of the time, and nobody waits for it.
        """
        self._learn()
        self.labeler.assigned = show
        state = self.session.play()
        self.labeler.assigned = lambda: None
        return state

    def _background(self, compute: Callable[[], T], /) -> T:
        """The result of `compute`, on another thread; learns what is entered meanwhile after it."""
        outcome: Future[T] = Future()
        context = copy_context()
        thread = Thread(target=context.run, args=(_fulfill, outcome, compute), daemon=True)
        thread.start()
        try:
            self._attend(self, outcome)
        finally:
            thread.join()  # it may write files of the run, whose lock is held here
        result = outcome.result()
        self._learn()
        return result

    def _learn(self) -> None:
        lessons, self._lessons = self._lessons, []
        self.session.learn(lessons)

    # What is shown -------------------------------------------------------------------------------

    def view(self) -> View:
        """The run as it is now."""
        rows: dict[str, list[SheetRow]] = {}
        earlier_questions, self._questions = self._questions, {}
        facts = self.session.facts
        for row in sorted(self.labeler.rows, key=lambda row: (row.sheet, row.key)):
            question = earlier_questions.get(row.key) or self.labeler.question(row)
            self._questions[row.key] = question
            rows.setdefault(row.annotator, []).append(question)
        waiting = Counter({name: len(questions) for name, questions in rows.items()})
        counts = waiting, self._answered, self._skipped
        states = {"set aside": self.ledger.set_aside, "away": self.away, "idle": self._idle or ()}
        return View(
            rows={name: tuple(questions) for name, questions in rows.items()},
            people=_people(self.seen, counts, states),
            answered=sum(self._answered.values()),
            budget=self.ledger.accounts.budget,
            money=self.ledger.accounts.money,
            price=self.ledger.accounts.price,
            differing=tuple(Differing(**entry) for entry in facts.get("differing", ())),
            facts=facts,
            classes=self.labeler.classes,
        )


def _fulfill(outcome: Future[T], compute: Callable[[], T]) -> None:
    try:
        result = compute()
    except BaseException as fault:
        outcome.set_exception(fault)
    else:
        outcome.set_result(result)


def _fits(reply: Reply, options: Sequence[str]) -> bool:
    """Whether a reply can be the answer to a row with these options."""
    if reply.kind == "label":
        return reply.position is not None and 0 <= reply.position < len(options)
    typed = (reply.text or "").casefold()
    return reply.position is None and typed not in {text.strip().casefold() for text in options}
