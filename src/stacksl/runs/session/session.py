"""An open run: its parts under its lock, played to its end or until it waits for answers.

A run is resumed by its loop: from the arrays that were saved last, what the ledger recorded after
them is played again (`playback`). A new run is a resumed run with an empty ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import inf
from time import monotonic
from typing import Any, Self

import numpy as np

from stacksl.core.blocks import Block
from stacksl.core.threads import one_thread
from stacksl.errors import RunError, warn_user
from stacksl.features import FeatureMap
from stacksl.labelers.protocol import Labeler, Pending
from stacksl.labelers.registry import OracleLabeler
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.ledger.store.stored import Saved
from stacksl.models.audit import Audit
from stacksl.report.wording import MICRO, of_run, plural
from stacksl.runs.changes.added_classes import learn_named
from stacksl.runs.finish.adapters import AdapterEnding
from stacksl.runs.finish.finish import finish, judged_audit, report_stands, second_look
from stacksl.runs.finish.forecasting import NEAR, Forecaster, look_due
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.finish.promise_sentences import last_look, lost_by_class, promise_of
from stacksl.runs.finish.promising import (
    draw_look,
    judged,
    last_drawn,
    open_look,
    unsettled,
)
from stacksl.runs.items.roles import assign_roles, corpus_of, give_roles, measured
from stacksl.runs.loop.choosers import chooser_of
from stacksl.runs.loop.game import UNUSED, Examples, Game, Progress, Report, play, silent
from stacksl.runs.session.assignment import FILE
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.session.language import note_model
from stacksl.runs.session.noticing import AT_ONCE, differing, proposed
from stacksl.runs.session.playback import Playback
from stacksl.runs.session.setup import (
    feature_map,
    features_again,
    features_of,
    labeler_of,
    limits_of,
    trainer_of,
)
from stacksl.runs.settings.budget import stop_rule
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import (
    MAP,
    State,
    anchors,
    expect_derived,
    note_derived,
    shown_facts,
)
from stacksl.runs.storage.status import CLOSED, SHORT, Record, expect_begun, present_warnings

PAUSED = (
    "No other rows are asked about until the open ones have answers: a look at the model, or the"
    " end of the run, comes next. `stacksl change RUN --free` hands the open rows to other people,"
    " and with --drop it withdraws them."
)


@dataclass(slots=True, eq=False, kw_only=True)
class Session(Game):
    """A game with its run.

    Attributes:
        features: the feature map; None in a replay, which reads stored features.
        record: writes the state; None once the run has finished or failed.
        receipts: of the answers that had arrived when `play` began.
        forecaster: of the accuracy, once it is played.
        facts: what is kept with the state of the run, see `Record`.
    """

    spec: RunSpec
    features: FeatureMap | None
    report: Report = silent
    record: Record | None = None
    receipts: list[Receipt] = field(default_factory=list)
    forecaster: Forecaster = field(init=False)
    facts: dict[str, Any] = field(default_factory=dict)
    _seen: int = 0  # labels of which it is counted whether the model was `_right` before
    _right: int = 0
    _counted: int = 0

    @classmethod
    @contextmanager
    def open(
        cls,
        spec: RunSpec,
        report: Report | None = None,
        *,
        labeler: Labeler | None = None,
    ) -> Iterator[Self]:
        """Lock a run and restore its learner from its arrays and the ledger.

        At the end its state is as before where the session was not played. A `labeler` answers in
        place of the one that the settings name.

        Raises:
            RunLocked: another process has the run open.
            StackslError: in one sentence, which the state `failed` keeps as well.
        """
        with ExitStack() as stack:
            stack.enter_context(spec.folder.locked())
            stack.enter_context(one_thread())
            record = Record.resume(spec, labeler)
            with record.recording_failure():
                stored_warnings = record.facts["warnings"]
                ledger = stack.enter_context(Ledger.open(spec.folder.database))
                ledger.verify(anchors(spec.folder))
                features, report = feature_map(spec), report or silent
                block = features_of(spec, features, report)
                if ledger.accounts.last_round or ledger.bought():
                    expect_derived(spec.folder, MAP)
                else:
                    note_derived(spec.folder, ledger, MAP)
                record.warn(note_model(spec, features))
                saved, damaged = _whole_arrays(spec, ledger)
                if features.truncated:
                    cut_texts = plural(features.truncated, "text was", "texts were")
                    record.warn([f"{cut_texts} longer than the model reads, and cut"])
                session = cls.played_back(spec, ledger, block, saved, features, report)
                record.warn([*damaged, *session.trainer.make_missing()])
                if record.facts["warnings"] != stored_warnings:
                    record.write("running")  # a kill keeps the warnings
                if labeler is None and "labeler" in record.facts:  # an object, and all was answered
                    labeler = OracleLabeler({}, {})
                session.labeler = labeler or labeler_of(spec, ledger, session.examples)
                session.record, session.facts = record, record.facts
                assign_roles(spec, session)
            try:
                yield session
            finally:
                if session.record is not None:
                    session.record.restore_before()

    @classmethod
    def played_back(
        cls,
        spec: RunSpec,
        ledger: Ledger,
        block: Block,
        saved: Saved | None,
        features: FeatureMap | None = None,
        report: Report = silent,
    ) -> Self:
        """A session where its ledger is, whose labeler answers nothing.

        Args:
            ledger: stands at its last row, before and after.
            block: the initial features of all items.
            saved: the arrays from which the rest is played; None for the initial state.
            features: the feature map; without it nothing is trained.

        Raises:
            RunError: a decision or a refit comes out otherwise than the ledger recorded it.
        """
        settings, corpus = spec.settings, corpus_of(spec)
        budget, terms = spec.budget.train, settings
        if saved is not None and spec.sources.erased and "gate_scale" in saved.arrays:
            # c of the gate llf may have been calibrated on features that were erased
            terms = settings.replaced({"gate.gate_scale": float(saved.arrays["gate_scale"])})
        learner = build_learner(terms, block, corpus.began, budget)
        examples, oracle = Examples(corpus, block), OracleLabeler({}, {})
        ledger.stand_at(0 if saved is None else saved.head.count, stream=settings.mode == "stream")
        trainer = trainer_of(spec, examples, learner, ledger, features, report)
        kwargs: dict[str, Any] = {"ledger": ledger, "learner": learner, "labeler": oracle}
        kwargs |= {"examples": examples, "trainer": trainer}
        playback = Playback(**kwargs, chooser=chooser_of(settings))
        playback.remember()
        if ledger.recorded is not None and not ledger.recorded.changed:
            give_roles(spec, corpus, ledger)
        if saved is not None:
            playback.set_state(saved.arrays)
        playback.play()
        session = cls(
            **kwargs, spec=spec, batches=limits_of(spec, ledger), features=features, report=report
        )
        session.skips_refit, session.would_buy = playback.skips_refit, playback.would_buy
        return session

    # Playing -----------------------------------------------------------------------------------

    def play(self, *, tells: bool = False) -> State:
        """Play the run until it is `waiting`, to be played again, or `finished`, or its time is up.

        If it `tells`, there is a `RunWarning` for each sentence that the status has since.

        Raises:
            StackslError: in one sentence, which the state `failed` keeps as well.
        """
        record, self.record = self.record, None
        assert record is not None, "a finished run is not played again"
        rule = self.spec.settings.stop_when
        odd_before = present_warnings(record.before or {}, self.ledger, rule) if tells else []
        with record.recording_failure():
            state = self._played(record)
            record.write(state)
        if state == "waiting":
            record.before, self.record = None, record
        for sentence in present_warnings(record.facts, self.ledger, rule) if tells else ():
            if sentence not in odd_before:
                warn_user(of_run(sentence, str(self.spec.folder.path)))
        return state

    def _played(self, record: Record) -> State:
        """The state that the run comes to; warnings go to the `record`."""
        promised = self.spec.settings.promised_share is not None
        while self._rounds():
            open_count = len(self.ledger.open_purchases()) - len(self.ledger.second_looks())
            ended = not open_count and not self._pauses
            record.warn(getattr(self.labeler, "warnings", ()))
            self._note_facts(open_count, ended=ended)
            if open_count:
                # It names the ledger's last row, so that `verify` detects rows that are missing.
                self.save()
                return "waiting"
            learn_named(self.spec, self, audit=True)
            self.trainer.finish()
            if ended:  # now, as the final model's folds say what labels improve
                self._note_names(ended=True)
            state = self._promised() if promised else self._audited()
            if state is not None:
                return state
        return "stopped"

    @property
    def _pauses(self) -> bool:
        """Whether buying pauses for a look at the audit."""
        accounts = self.ledger.accounts
        return look_due(self.spec, accounts) and accounts.reached is None

    def _audited(self) -> State | None:
        """Judge the model by the audit, and end; None once a look is noted: the run goes on."""
        audit, due = measured(self.spec, self), list[str]()
        mark, accounts = self.spec.settings.accuracy_mark, self.ledger.accounts
        look = 0  # of a run that does not look on its way
        if mark is not None or accounts.looks:
            look = accounts.looks + 1 if accounts.reached is None else accounts.looks
        far_below = False  # so far below the mark that a second look would not change the verdict
        if audit is not None and mark is not None and self._pauses:
            accuracy, _ = self._judged(audit, look)
            far_below = accuracy < mark - NEAR
        if audit is not None and self.spec.terms.further and not far_below:
            due, audit = second_look(self._ending, audit, self.facts, look)
        if audit is None or not look:
            return self._ended(audit, due)
        if audit.waits:
            return self._ask_further(due)
        if accounts.reached is not None:  # by the model that there is now
            return self._ended(audit, due, look)
        _, low = self._judged(audit, look)
        shows = mark is not None and low >= mark  # it may have been changed after an earlier look
        self.ledger.note_look(len(self.examples.bought), reached=shows)
        return None

    def _promised(self) -> State | None:
        """Draw a look at the table, or judge it, and end; None where buying goes on after it."""
        self.facts.pop(SHORT, None)  # a look is drawn now, or the end says why none is
        look, due = open_look(self.ledger), list[str]()
        next_look = None if self.ledger.accounts.reached else self.forecaster.look
        if look is None and next_look is not None:
            self.spec = draw_look(self.spec, self, next_look)
            self.save()
            return None
        audit = measured(self.spec, self)
        if audit is not None and self.spec.settings.several_people:
            number = 0 if look is None else look.number
            every = last_drawn(self.ledger) is not None  # an earlier audit has its own second look
            due, audit = second_look(self._ending, audit, self.facts, number, every=every)
        if look is None:
            self.facts |= promise_of(self.spec, self)._asdict()
            return self._ended(audit, due)
        ending = self._ending
        assert audit is not None
        assert isinstance(ending, HeadEnding)
        unsettled_items = unsettled(self.spec, self) if self.spec.settings.several_people else []
        if unsettled_items or audit.waits:
            return self._ask_further(due, unsettled_items)
        verdict = judged(self.spec, self, audit, ending.delivered(audit.rows), look)
        self.ledger.note_look(len(self.examples.bought), **verdict)
        return None

    def _judged(self, audit: Audit, look: int) -> tuple[float, float]:
        """The accuracy, or agreement, of the present model at a look, and its lower bound, if any.

        People's first answers alone give no bound of the accuracy.
        """
        facts = judged_audit(self._ending, audit, look)
        return facts.accuracy or 0.0, facts.interval[0] if facts.measures == "accuracy" else 0.0

    def _note_facts(self, open_count: int, *, ended: bool) -> None:
        """Note what `status` tells of the run, which has `ended` or has answers to wait for."""
        for name in ("sheets", "promised", "details"):  # of an earlier wait or end
            self.facts.pop(name, None)
        if open_count:
            self._note_waits()
        self.facts["plan"] = self.forecaster.facts(ended=ended)
        if not ended:
            self._note_names(ended=False)
        self.facts["stopped"] = self.forecaster.stopped or last_look(self.spec, self.ledger)
        if self.spec.settings.labeler == FILE:
            if open_count and self.enough() and open_look(self.ledger) is None:
                self.facts["stopped"] = f"{self.facts['stopped']} {PAUSED}".lstrip()
            annotators = differing(self, AT_ONCE if open_count else 1)
            self.facts["differing"] = [asdict(annotator) for annotator in annotators]
        class_count = len(self.spec.sources.began or self.spec.dataset.classes or ())
        self.facts["proposed"] = proposed(self, AT_ONCE if open_count else 1, class_count)
        self.facts["lost_by_class"] = lost_by_class(self.ledger) if self.facts["proposed"] else ""

    def _note_names(self, *, ended: bool) -> None:
        """Note whether the labels have improved on the class names."""
        previous = self.facts.get("over_names", {})
        self.facts["over_names"] = self.forecaster.over_names(previous, ended=ended)

    def _ended(self, audit: Audit | None, due: Sequence[str], look: int = 0) -> State:
        """Make the model and the report; the state is `waiting` where a second look waits."""
        if look and self.ledger.accounts.reached:
            self.facts["stopped"] = (
                f"Buying stopped after {len(self.examples.bought):,} training labels by stop_when"
                f" {self.spec.settings.stop_when}: look {look} at the audit shows that accuracy."
            )
        looks = audit is not None and audit.waits
        if not (looks and report_stands(self.spec, self.ledger)):
            self.ledger.show_audit()
            self.save()
            finish(self._ending, self.facts, audit, look)
        if looks:
            self.facts.pop("finished", None)  # the report's; the run goes on
            return self._ask_further(due)
        self.save()  # after the rows of what was made
        return "finished"

    def _ask_further(self, due: Sequence[str], train: Sequence[str] = ()) -> State:
        """Ask one more person of each audited item that is `due`, and of others, and wait."""
        with self.ledger.together():
            self.ledger.reserve(due, "further")
            self.ledger.reserve(train, "train")
        self.labeler.ask(self.requests())
        self._note_waits()
        self.facts["stopped"] = last_look(self.spec, self.ledger) or self.facts["stopped"]
        self.save()
        return "waiting"

    @property
    def _ending(self) -> HeadEnding | AdapterEnding:
        """What follows the last answer, by the model that there is now."""
        assert self.features is not None  # made by `open`
        ending_type = AdapterEnding if self.spec.settings.adapts else HeadEnding
        return ending_type(self.spec, self, self.features, self.report)

    def _note_waits(self) -> None:
        """Hand out what is to be answered, and note where it waits."""
        open_count = len(self.ledger.open_purchases())
        name = CLOSED if self.labeler.name == FILE else self.labeler.name
        pending = self.labeler.pending() or [Pending(name, open_count)]
        self.facts["sheets"] = [
            {"file": wait.place, "open": wait.open} | ({"why": wait.why} if wait.why else {})
            for wait in pending
        ]

    def _rounds(self) -> bool:
        """Play what can be played now; False where the time is up before."""
        kind, seconds, _ = stop_rule(self.spec.settings.stop_when)
        end = monotonic() + (seconds if kind == "time" else inf)
        self.labeler.ask(self.requests())  # open purchases of an interrupted run
        receipts = self.take_answers()
        self.receipts += receipts
        self.learn(receipts)
        learn_named(self.spec, self)
        settings = self.spec.settings
        self.forecaster = Forecaster(self.spec, self)
        self.enough = self.forecaster.enough
        purchases = 0
        for posted in play(self, chooser_of(settings)):
            self.report(self.progress())
            rounds, interval = self.learner.round, settings.checkpoint_every
            if settings.mode == "pool" or rounds // interval > (rounds - len(posted)) // interval:
                self.save()
            purchases += 1
            if monotonic() >= end:
                return False
        self.end_purchase(purchases > 0)
        learn_named(self.spec, self)
        self.ledger.flush()
        return True

    def progress(self) -> Progress:
        """How far the run is now."""
        bought, accounts, learner = self.examples.bought, self.ledger.accounts, self.learner
        # owned labels had no prediction before
        new_labels = [pair for pair in bought[self._seen :] if pair[2] >= 0]
        self._seen, self._counted = len(bought), self._counted + len(new_labels)
        self._right += sum(label == choice for _, label, choice in new_labels)
        # Of people it would tell which of a few answers were of the audit.
        measurable = self._counted and self.labeler.repeatable
        accuracy = self._right / self._counted if measurable else None
        labels_asked, budget = accounts.asked, learner.budget
        money = None if accounts.money is None else accounts.spent_money / MICRO
        if self.spec.settings.mode == "stream":
            played = learner.round, learner.horizon
            return Progress("rounds", *played, labels_asked, budget, accuracy, money)
        done = accounts.answered + accounts.reserved
        return Progress("labels", done, accounts.budget, labels_asked, budget, accuracy, money)

    def end_purchase(self, posted: bool) -> None:
        """Note that the purchases possible now were made; whether any was `posted`."""
        if self.skips_refit and not posted:  # a replay would keep the refit for the next purchase
            self.ledger.note_refit(len(self.examples.bought), {"tune": False, UNUSED: True})
        self.skips_refit = False

    def refit_if_due(self) -> None:
        """Refit the model if a refit is due, and save the arrays after a long one."""
        if self.trainer.due and not self.skips_refit:
            if self.trainer.refit():
                self.save()
            if self.labeler.repeatable:  # of people it would tell much
                self.report(replace(self.progress(), refitted=True))


def _whole_arrays(spec: RunSpec, ledger: Ledger) -> tuple[Saved | None, list[str]]:
    """The saved arrays, if there are any whole ones, and a warning of damaged ones.

    Raises:
        RunError: there are none, and the features of erased items would be needed to do without.
    """
    saved = ledger.arrays()
    if saved is not None and saved.whole:
        return saved, []
    if spec.sources.erased:
        raise RunError(
            "a run with erased items needs the learner's arrays, but"
            f" {spec.folder.database} has no whole ones: restore that file from a copy"
        )
    if saved is None:
        return None, []
    return None, [
        f"the learner's arrays after row {saved.head.count} are damaged (they do not match their"
        " SHA-256) and were passed over: the run is rebuilt from the ledger"
    ]


def bring_arrays(spec: RunSpec, ledger: Ledger) -> None:
    """Save the arrays after the ledger's last row, if it has decided or refitted after the last."""
    with one_thread():
        ledger.flush()
        saved, _ = _whole_arrays(spec, ledger)
        saved_row = 0 if saved is None else saved.head.count
        computed_rows = ledger.rows(saved_row, only=("round", "refit", "refreshed"))
        if saved is None or any(computed_rows):
            Session.played_back(spec, ledger, features_again(spec), saved).save()


def replay_run(spec: RunSpec) -> dict[str, int]:
    """Play the whole record of a run again, and compare each decision and refit.

    A run with erased items is played from its arrays: the rounds before would need features that
    were erased.

    Returns:
        `rows` played, how many `rounds` and `labels` there are, and the row `after` which it was
        played, which is 0 without erased items.

    Raises:
        RunError: a decision differs, or the run has asked nothing yet.
        LedgerError: a row cannot be replayed, or the ledger is not whole.
    """
    with one_thread(), Ledger.open(spec.folder.database, readonly=True) as ledger:
        saved, _ = _whole_arrays(spec, ledger)  # now: another process may save later ones
        ledger.verify(anchors(spec.folder))
        expect_begun(spec.folder, ledger)
        start = saved if spec.sources.erased else None
        session = Session.played_back(spec, ledger, features_again(spec), start)
        if saved is not None:
            _expect_same(session, saved)
        seq = 0 if start is None else start.head.count
        rows = sum(1 for _ in ledger.rows(seq, only=("round", "learned", "refit", "refreshed")))
        rounds, labels = session.learner.round, len(session.examples.bought)
        return {"rows": rows, "rounds": rounds, "labels": labels, "after": seq}


def _expect_same(session: Session, saved: Saved) -> None:
    """Compare the learner with its saved arrays, if nothing changed it after them.

    Raises:
        RunError: they differ.
    """
    changing = ("round", "learned", "refreshed", "class_added")
    if any(session.ledger.rows(saved.head.count, only=changing)):
        return
    for name, array in session.learner.state().items():
        if not np.array_equal(array, saved.arrays[name], equal_nan=True):
            raise RunError(
                f"the replayed '{name}' differs from the one saved in round {saved.round}:"
                " the run was made by other versions or on another machine (see"
                " `stacksl status RUN --settings`)"
            )


def train_on_audit(spec: RunSpec) -> int:
    """Fit the final head of a finished run on the labels of its audit as well; their number.

    Raises:
        RunError: the run has not finished, or has no audit or no final head.
    """
    if spec.settings.promised_share is not None:
        raise RunError(
            f"the run {spec.folder.path} promises how many rows of its table are right, and another"
            " model would need a look of its own: export the table, or change --stop-when first"
        )
    folder, oracle = spec.folder, OracleLabeler({}, {})
    with folder.locked(inside=True):
        stored_state, facts = folder.read_state(), shown_facts(folder)
        if spec.settings.adapts or stored_state["state"] != "finished" or not folder.has_results():
            raise RunError(
                "expected a finished run with a linear head to train on the audit, got"
                f" {folder.path}: finish it first with `stacksl resume` (a language model is not"
                " refitted with an audit)"
            )
        assert facts is not None
        audit = facts.audit
        if audit is None or not facts.refit.done or audit.unknown + audit.none_of_these == audit.n:
            requirement = "an audit with labels to train on" if facts.refit.done else "a final head"
            raise RunError(f"expected a run with {requirement}, got none in {folder.path}")
        del stored_state["state"]
        stored_state["shown"] = {**stored_state["shown"], "trained_on": 1}
        folder.write_state("stopped", **stored_state)  # what a kill leaves is finished by a resume
        oracle.name = stored_state.get("labeler", oracle.name)
        with Session.open(spec, labeler=oracle if "labeler" in stored_state else None) as session:
            session.play()
    return int(folder.read_state()["shown"]["trained_on"])
