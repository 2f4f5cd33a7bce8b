"""An open run: its parts under its lock, played to its end or until it waits for answers.

A new run is a resumed run with an empty ledger, so both take the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from math import inf
from time import monotonic
from typing import Any, Self

import numpy as np

from stacksl.core.learner import Learner
from stacksl.core.threads import one_thread
from stacksl.errors import LedgerCorrupt, RunError
from stacksl.features import FeatureMap
from stacksl.labelers.oracle import OracleLabeler
from stacksl.labelers.protocol import Labeler, Pending
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.report.quality import Differing
from stacksl.runs.changes.added_classes import learn_named, widen_to
from stacksl.runs.finish.finish import finish
from stacksl.runs.finish.forecasting import Forecaster
from stacksl.runs.items.roles import assign_roles, corpus_of, measured
from stacksl.runs.loop.choosers import make_chooser
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game, play
from stacksl.runs.loop.progress import Report, Watch, silent
from stacksl.runs.loop.trainer import UNUSED
from stacksl.runs.session.assignment import FILE
from stacksl.runs.session.comparing import AT_ONCE, differing
from stacksl.runs.session.language import note_model
from stacksl.runs.session.replay import UnreplayableRounds, replay
from stacksl.runs.session.setup import (
    batches_of,
    feature_map,
    features_again,
    features_of,
    initial_learner,
    labeler_of,
    ledger_of,
    trainer_of,
)
from stacksl.runs.settings.budget import time_limit
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import State
from stacksl.runs.storage.status import Record


def shown(pending: Pending) -> dict[str, Any]:
    """Open requests as the state names them."""
    why = {"why": pending.why} if pending.why else {}
    return {"file": pending.place, "open": pending.open} | why


@dataclass(slots=True, eq=False, kw_only=True)
class Session(Game):
    """A game with its run.

    Attributes:
        spec: settings, items, budget and folder of the run.
        features: the feature map; None in a replay, which reads stored features.
        report: called with the progress, at most ten times a second.
        record: writes the state; None once the run has finished or failed.
        receipts: of the answers that had arrived when `play` began.
        forecaster: of the accuracy, once it was played.
        differing: annotators who answer in another way than the others, once it was played.
    """

    spec: RunSpec
    features: FeatureMap | None
    report: Report = silent
    record: Record | None = None
    receipts: list[Receipt] = field(default_factory=list)
    forecaster: Forecaster | None = None
    differing: tuple[Differing, ...] = ()

    @classmethod
    @contextmanager
    def open(
        cls,
        spec: RunSpec,
        report: Report = silent,
        *,
        labeler: Labeler | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Iterator[Self]:
        """Lock a run and restore its learner from its arrays and the ledger.

        At the end its state is as before where the session was not played.

        Args:
            spec: a new run, or one in any state.
            report: called with the progress.
            labeler: answers in place of the one that the settings name.
            changes: settings of training that are changed from here on.

        Raises:
            RunLocked: another process has the run open.
            StackslError: in one sentence, which the state `failed` keeps as well.
        """
        with ExitStack() as parts:
            parts.enter_context(spec.folder.locked())
            parts.enter_context(one_thread())
            record = Record.resume(spec, labeler)
            with record.recording_failure():
                spec, said = spec.changed(changes or {})
                if said:  # first: the warning must survive a failure
                    record.warn(said)
                    record.write("running")
                session = cls._load(spec, report, labeler, record, parts)
                session.trainer.ready()
                record.warn(session.restore())
                assign_roles(spec, session)
            try:
                yield session
            finally:
                if session.record is not None:
                    session.record.restore_before()

    @classmethod
    def _load(
        cls,
        spec: RunSpec,
        report: Report,
        labeler: Labeler | None,
        record: Record,
        parts: ExitStack,
    ) -> Self:
        """A session in its initial state, before any row of the ledger."""
        ledger = parts.enter_context(ledger_of(spec))
        features = feature_map(spec)
        block = features_of(spec, features, report)
        record.warn(note_model(spec, features))
        corpus = corpus_of(spec)
        learner, warnings = initial_learner(spec, block, corpus)
        if features.truncated:
            cut = f"{features.truncated} texts are longer than the encoder reads and were cut"
            record.warn([cut])
        record.warn(warnings)
        record.write("running")  # a kill keeps the warnings
        examples = Examples(corpus, block)
        if labeler is None and "labeler" in record.facts:  # a Python object, and all was answered
            labeler = OracleLabeler({}, {})
        labeler = labeler or labeler_of(spec, ledger, examples, features)
        session = cls._of(spec, ledger, learner, labeler, examples, features, report)
        session.record = record
        return session

    @classmethod
    def before_replay(cls, spec: RunSpec, ledger: Ledger) -> Self:
        """A session in its initial state, to replay the caller's `ledger`; it takes no lock."""
        block, corpus = features_again(spec), corpus_of(spec)
        learner, _ = initial_learner(spec, block, corpus)
        return cls._of(spec, ledger, learner, OracleLabeler({}, {}), Examples(corpus, block))

    @classmethod
    def _of(
        cls,
        spec: RunSpec,
        ledger: Ledger,
        learner: Learner,
        labeler: Labeler,
        examples: Examples,
        features: FeatureMap | None = None,
        report: Report = silent,
    ) -> Self:
        return cls(
            spec=spec,
            ledger=ledger,
            learner=learner,
            labeler=labeler,
            examples=examples,
            trainer=trainer_of(spec, examples, learner, ledger, features, report),
            batches=batches_of(spec, ledger),
            features=features,
            report=report,
        )

    # Playing -----------------------------------------------------------------------------------

    def play(self) -> State:
        """Play the run until it is `waiting`, to be played again, or `finished`, or its time is up.

        Raises:
            StackslError: in one sentence, which the state `failed` keeps as well.
        """
        record, self.record = self.record, None
        assert record is not None, "a finished run is not played again"
        with record.recording_failure():
            state = self._played(record)
            record.write(state)
        if state == "waiting":
            record.keep()
            self.record = record
        return state

    def _played(self, record: Record) -> State:
        """The state that the run comes to; its facts are noted in `record`."""
        if not self._rounds():
            return "stopped"
        waits = bool(self.ledger.open_purchases())
        record.facts.pop("sheets", None)  # of an earlier wait
        if waits and (pending := self.labeler.pending()):
            record.facts["sheets"] = [shown(each) for each in pending]
        record.warn(getattr(self.labeler, "warnings", ()))
        assert self.forecaster is not None
        record.facts["plan"] = self.forecaster.facts(ended=not waits)
        record.facts["stopped"] = self.forecaster.stopped
        if self.spec.settings.labeler == FILE:
            self.differing = differing(self, AT_ONCE if waits else 1)
            record.facts["differing"] = [asdict(each) for each in self.differing]
        if not waits:
            learn_named(self.spec, self, audit=True)
            self.trainer.finish()
            self.ledger.show_audit()
        # It names the ledger's last row, so that `verify` detects rows that are missing.
        self.save()
        if waits:
            return "waiting"
        assert self.features is not None  # made by `open`
        audit = measured(self.spec, self)
        finish(self.spec, self, self.features, self.report, record.facts, audit)
        return "finished"

    def _rounds(self) -> bool:
        """Play what can be played now; False where the time is up before."""
        end = monotonic() + (time_limit(self.spec.settings.until) or inf)
        self.labeler.ask(self.requests())  # open purchases of an interrupted run
        self.receipts = self.take_answers()
        for receipt in self.receipts:
            self.learn(receipt)
        learn_named(self.spec, self)
        settings = self.spec.settings
        watch = Watch(
            settings.checkpoint_every, self, self.report, streams=settings.mode == "stream"
        )
        self.forecaster = Forecaster(self.spec, self)
        self.enough = self.forecaster.enough
        chooser = make_chooser(
            settings.mode,
            seed=settings.seed,
            min_per_class=settings.min_per_class,
            coverage=settings.coverage,
        )
        purchases = 0
        for posted in play(self, chooser):
            watch(posted)
            purchases += 1
            if monotonic() >= end:
                return False
        self.end_purchase(purchases > 0)
        learn_named(self.spec, self)
        self.ledger.flush()
        return True

    def end_purchase(self, posted: bool) -> None:
        """Note that the purchases possible now were made; whether any was `posted`."""
        if self.ahead and not posted:  # a replay would keep the refit for the next purchase
            self.ledger.note_refit(len(self.examples.bought), {"tune": False, UNUSED: True})
        self.ahead = False

    def refit_if_due(self) -> None:
        """Refit the model if a refit is due, and save the arrays after a long one."""
        if self.trainer.due and not self.ahead and self.trainer.refit():
            self.save()

    # What is on disk ---------------------------------------------------------------------------

    def restore(self) -> list[str]:
        """Load the newest whole arrays and replay the ledger's later rows; the warnings."""
        saved, warnings = self.ledger.latest_arrays()
        if saved is None and self.spec.sources.forgotten:  # a replay would need their features
            raise RunError(
                "a run that has forgotten items needs the learner's arrays, but"
                f" {self.spec.folder.database} has no whole ones: restore that file from a copy"
            )
        if saved is not None:
            if self.spec.sources.began is not None:
                widen_to(saved.head.count, self)
            self.set_state(saved.arrays)
        self.replay(after=0 if saved is None else saved.head.count)
        return warnings

    def replay(self, *, after: int, unreplayable: UnreplayableRounds | None = None) -> int:
        """Replay the ledger's rows after number `after`; see `replay.replay`."""
        compare = self.spec.settings.mode == "stream"
        return replay(
            self.ledger.rows(), self, after=after, compare=compare, unreplayable=unreplayable
        )

    def restore_at(self, seq: int) -> bool:
        """Load the arrays after row `seq`; False where there are none.

        Raises:
            LedgerCorrupt: they are damaged.
        """
        saved = next(self.ledger.arrays(seq), None)
        if saved is None:
            return False
        if not saved.whole:
            raise LedgerCorrupt(
                f"the learner's arrays after row {seq} of the ledger do not match their SHA-256:"
                f" restore {self.spec.folder.database} from a copy"
            )
        self.set_state(saved.arrays)
        return True

    def compare_with_saved(self) -> None:
        """Compare the replayed learner with its newest arrays, if they are of the same round.

        Raises:
            RunError: they differ.
        """
        saved, _ = self.ledger.latest_arrays()
        if saved is None or saved.round != self.learner.round:
            return
        arrays = saved.arrays
        later = [r for r in self.ledger.rows(saved.head.count) if r.event in ("round", "learnt")]
        for name, array in self.learner.state().items():
            if not later and not np.array_equal(array, arrays[name], equal_nan=True):
                raise RunError(
                    f"the replayed '{name}' differs from the one saved in round {saved.round}:"
                    " the run was made by other versions or on another machine (see"
                    " `stacksl status RUN --settings`)"
                )
