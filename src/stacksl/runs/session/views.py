"""Uses of a run besides playing it: a full replay, a refit with its audit, its last arrays."""

from __future__ import annotations

from typing import Any

from stacksl.core.threads import one_thread
from stacksl.errors import RunError
from stacksl.labelers.oracle import OracleLabeler
from stacksl.ledger.ledger import Ledger
from stacksl.runs.finish.finish import refit_with_audit
from stacksl.runs.items.roles import measured
from stacksl.runs.loop.linear_trainer import covering_of
from stacksl.runs.session.replay import UnreplayableRounds, spans
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.anchors import anchors
from stacksl.runs.storage.status import expect_begun


def replay_run(spec: RunSpec) -> dict[str, Any]:
    """Replay the whole ledger of a run and compare every decision of a stream.

    Where items were forgotten, `lost_rounds` has the first and the last of each run of unreplayable
    rounds.

    Raises:
        RunError: if a decision differs, or the run has asked nothing yet.
        LedgerError: if a row cannot be replayed, or the ledger is not whole.
    """
    with one_thread(), Ledger.open(spec.folder.database, readonly=True) as ledger:
        ledger.verify(anchors(spec.folder))
        expect_begun(spec.folder, ledger)
        session = Session.before_replay(spec, ledger)
        settings, gone = spec.settings, spec.sources.forgotten
        moves = settings.track == "all" or settings.kl_on_skips or covering_of(session) is not None
        unreplayable = UnreplayableRounds(moves, settings.adapts and bool(gone), session.restore_at)
        played = session.replay(after=0, unreplayable=unreplayable)
        if not unreplayable.lost:
            session.compare_with_saved()
        rounds, labels = session.learner.round, len(session.examples.bought)
        counts = {"rows": played, "rounds": rounds, "labels": labels}
        return counts | ({"lost_rounds": spans(unreplayable.rounds)} if gone else {})


def train_on_audit(spec: RunSpec) -> int:
    """Fit the final head of a finished run on the labels of its audit as well; their number.

    Raises:
        RunError: the run has not finished, or has no audit or no final head.
    """
    if spec.settings.adapts or spec.folder.read_state()["state"] != "finished":
        raise RunError(
            "expected a finished run with a linear head to train on the audit, got"
            f" {spec.folder.path}: finish it first (a language model is not refitted with an audit)"
        )
    with Session.open(spec, labeler=OracleLabeler({}, {})) as session:  # nobody is asked
        assert session.features is not None  # made by `open`
        return refit_with_audit(spec, session, session.features, measured(spec, session))


def catch_up(spec: RunSpec, ledger: Ledger) -> dict[str, Any]:
    """Save the arrays after the ledger's last row where there are none; the initial gate.

    Returns:
        `gate_scale`, None where the first items did not determine it, and `gate_state`, that of the
        gate before round 1.
    """
    with one_thread():
        session = Session.before_replay(spec, ledger)
        learner = session.learner
        llf = spec.settings.gate == "llf" and getattr(spec.settings, "gate_scale", None) is None
        scale = getattr(learner.gate, "gate_scale", None) if llf else None
        start = {"gate_scale": scale, "gate_state": learner.gate_state}
        ledger.flush()
        saved, _ = ledger.latest_arrays()
        if saved is None or saved.head.count < ledger.head.count:
            session.restore()
            session.save()
        return start
