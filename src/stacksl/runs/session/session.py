"""A run that is open: its parts under its lock, played to the end or to where it waits.

A fresh run is a resumed run with nothing behind it: every step looks at what is on disk first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from stacksl.core.blocks import Block
from stacksl.core.threads import one_thread
from stacksl.errors import RunError
from stacksl.features import FeatureMap
from stacksl.labelers.protocol import Labeler, Pending
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.runs.changes.added_classes import learn_named, widen_to
from stacksl.runs.changes.pending import complete
from stacksl.runs.finish.finish import finish, refit_with_audit
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.items.roles import corpus_of, hold, measured
from stacksl.runs.loop.choosers import make_chooser
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game, play
from stacksl.runs.loop.progress import Report, Watch, checkpoint, silent
from stacksl.runs.session.build_learner import Players
from stacksl.runs.session.replay import replay
from stacksl.runs.session.setup import (
    batches_of,
    cut_texts,
    feature_map,
    features_again,
    features_of,
    labeler_of,
    ledger_of,
    note_model,
    players_of,
    trainer_of,
)
from stacksl.runs.session.unreplayable import Gaps
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage import checkpoints
from stacksl.runs.storage.state import Record


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run goes on when answers arrive: `open` of them, at the places in `pending`."""

    open: int
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The run has bought what it could; its `report` is written."""

    report: Path


class Nobody:
    """The labeler of a run that is only looked at."""

    name = "nobody"
    repeatable = False

    def ask(self, requests: object) -> None:
        """Nothing."""

    def answers(self) -> list[Any]:
        """None."""
        return []

    def pending(self) -> list[Pending]:
        """Nowhere."""
        return []


@dataclass(slots=True, eq=False, kw_only=True)
class Session(Game):
    """A game with the run that it belongs to; made by `open`, and to be closed.

    Attributes:
        spec: settings, items, budget and folder of the run.
        features: what makes the features; None where no language model is loaded to look at a run.
        report: told how far the run is, some ten times a second.
        record: what the run's state tells, until the session is played.
        receipts: of the answers that had arrived before it was played.
    """

    spec: RunSpec
    features: FeatureMap | None
    report: Report = silent
    record: Record | None = None
    receipts: list[Receipt] = field(default_factory=list)
    _parts: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def open(
        cls,
        spec: RunSpec,
        report: Report = silent,
        *,
        labeler: Labeler | None = None,
        changes: Mapping[str, Any] | None = None,
        held: bool = False,
    ) -> Session:
        """Hold a run and bring its learner to where its ledger is.

        Args:
            spec: the run; its folder may hold anything from nothing to a finished run.
            report: told how far it is.
            labeler: who answers, where it is not the one the settings name.
            changes: settings of training that are other ones from here on.
            held: whether the caller holds the run already.

        Raises:
            RunLocked: another process holds the run.
            StackslError: one sentence on what went wrong; the state `failed` holds it too.
        """
        with ExitStack() as parts:
            if not held:
                parts.enter_context(spec.folder.locked())
            parts.enter_context(one_thread())
            spec = complete(spec)
            record = Record.take_up(spec, labeler)
            with record.true_to_faults():
                spec, said = spec.changed(changes or {})
                if said:  # before anything can fail: a change must be told of
                    record.warn(said)
                    record.write("running")
                session = cls._load(spec, report, labeler, record, parts)
                session.trainer.ready()
                record.warn(session.restore())
                hold(spec, session)
            session._parts = parts.pop_all()
        return session

    @classmethod
    def _load(
        cls,
        spec: RunSpec,
        report: Report,
        labeler: Labeler | None,
        record: Record,
        parts: ExitStack,
    ) -> Session:
        """The parts of a run that is held, before any row of the ledger."""
        features = feature_map(spec)
        block = features_of(spec, features, report)
        record.warn(note_model(spec, features))
        corpus = corpus_of(spec)
        players = players_of(spec, block, corpus)
        record.warn([*cut_texts(features), *players.warnings])
        ledger = parts.enter_context(ledger_of(spec, began=bool(record.facts["began"])))
        record.facts["began"] = True
        record.write("running")  # a kill keeps the warnings
        who = labeler or labeler_of(spec, ledger)
        session = cls._assemble(spec, corpus, players, block, ledger, who, features, report)
        session.record = record
        return session

    @classmethod
    def before_replay(cls, spec: RunSpec, ledger: Ledger) -> Session:
        """The initial state of a run, before any row of its ledger; nobody is asked.

        It holds nothing: the ledger is the caller's.
        """
        block, corpus = features_again(spec), corpus_of(spec)
        players = players_of(spec, block, corpus)
        return cls._assemble(spec, corpus, players, block, ledger, Nobody(), None, silent)

    @classmethod
    def _assemble(
        cls,
        spec: RunSpec,
        corpus: Corpus,
        players: Players,
        block: Block,
        ledger: Ledger,
        labeler: Labeler,
        features: FeatureMap | None,
        report: Report,
    ) -> Session:
        examples, learner = Examples(corpus, block), players.learner
        return cls(
            spec=spec,
            ledger=ledger,
            learner=learner,
            labeler=labeler,
            examples=examples,
            trainer=trainer_of(spec, examples, learner, ledger, features, report),
            batches=batches_of(spec),
            features=features,
            report=report,
        )

    def close(self) -> None:
        """Let the run go. One that was opened and not played is as it was before."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.record is not None:
            self.record.put_back()
            self.record = None
        self._parts.__exit__(kind, error, trace)

    # Playing -----------------------------------------------------------------------------------

    def play(self) -> Waiting | Finished:
        """Play the run to its end, or to where it waits for answers.

        Raises:
            StackslError: one sentence on what went wrong; the state `failed` holds it too.
        """
        record, self.record = self.record, None
        assert record is not None, "a session is played once"
        with record.true_to_faults():
            self._rounds()
            waiting = self._wait() if self.ledger.open_purchases() else None
            if waiting is None:
                self.trainer.finish()
            checkpoint(self.spec.folder, self)  # knows the ledger's end: `verify` finds a cut tail
            if waiting is not None:
                sheets = [{"file": each.place, "open": each.open} for each in waiting.pending]
                if sheets:
                    record.facts["sheets"] = sheets
                record.write("waiting")
                return waiting
            assert self.features is not None  # the session was opened, not only looked at
            audit = measured(self.spec, self)
            finish(self.spec, self, self.features, self.report, record.facts, audit)
            record.write("finished")
        return Finished(self.spec.folder.path / "report.html")

    def _rounds(self) -> None:
        self.labeler.ask(self.requests())  # what was asked before the run was cut off
        self.receipts = self.take_answers()
        for receipt in self.receipts:
            self.learn(receipt)
        learn_named(self.spec, self)
        settings = self.spec.settings
        watch = Watch(self.spec.folder, settings.checkpoint_every, self, self.report)
        chooser = make_chooser(
            settings.mode, seed=settings.seed, min_per_class=settings.min_per_class
        )
        for posted in play(self, chooser):
            watch(posted)
        learn_named(self.spec, self)
        self.ledger.flush()

    def _wait(self) -> Waiting:
        pending = tuple(self.labeler.pending())
        return Waiting(len(self.ledger.open_purchases()), pending)

    def refit_if_due(self) -> None:
        """Refit the model where it is time, and keep a refit that took long."""
        if self.trainer.due and self.trainer.refit():
            checkpoint(self.spec.folder, self)

    def refit_with_audit(self) -> int:
        """Let the audit's labels join the final head of a finished run; how many there were.

        Raises:
            RunError: the run has no audit or no head to join.
        """
        assert self.features is not None
        return refit_with_audit(self.spec, self, self.features, measured(self.spec, self))

    # What is on disk ---------------------------------------------------------------------------

    def restore(self) -> list[str]:
        """Bring the learner to where the ledger is: the last good checkpoint, then the rows on."""
        place = self.spec.folder.checkpoints
        saved, warnings = checkpoints.latest(place)
        if saved is None and self.spec.stock.gone:  # whose features the ledger's rows would need
            raise RunError(
                f"a run that has forgotten items goes on from a checkpoint, but {place} has no"
                " whole one: restore that folder from a copy"
            )
        if saved is not None:
            if self.spec.stock.began is not None:
                widen_to(saved.count, self)
            self.learner.restore(saved.arrays)
            self.trainer.restore(saved.arrays)
        self.replay(after=0 if saved is None else saved.count)
        return warnings

    def replay(self, *, after: int, gaps: Gaps | None = None) -> int:
        """Play the ledger's rows behind number `after` again; see `replay.replay`."""
        compare = self.spec.settings.mode == "stream"
        return replay(self.ledger.rows(), self, after=after, compare=compare, gaps=gaps)

    def reach(self, seq: int) -> bool:
        """Go to the checkpoint of row `seq`; False where there is none."""
        saved = checkpoints.at(self.spec.folder.checkpoints, seq)
        if saved is None:
            return False
        self.learner.restore(saved.arrays)
        self.trainer.restore(saved.arrays)
        return True

    def compare_with_saved(self) -> None:
        """Hold the replayed learner against the last checkpoint, where that is of the same round.

        Raises:
            RunError: they differ.
        """
        saved, _ = checkpoints.latest(self.spec.folder.checkpoints)
        if saved is None or saved.round != self.learner.round:
            return
        late = [r for r in self.ledger.rows(saved.count) if r.event in ("round", "learnt")]
        for name, array in self.learner.state().items():
            if not late and not np.array_equal(array, saved.arrays[name], equal_nan=True):
                raise RunError(
                    f"the replay gives another '{name}' than the checkpoint of round {saved.round}:"
                    " the run was made by other versions or on another machine (see resolved.toml)"
                )
