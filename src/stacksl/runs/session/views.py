"""What is done with a run besides playing it: replay, a refit with its audit, a last checkpoint."""

from __future__ import annotations

from typing import Any

from stacksl.core.threads import one_thread
from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.runs.loop.progress import checkpoint
from stacksl.runs.session.session import Nobody, Session
from stacksl.runs.session.unreplayable import Gaps, spans
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage import checkpoints
from stacksl.runs.storage.anchors import anchors


def replay_run(spec: RunSpec) -> dict[str, Any]:
    """Play the whole ledger of a run again from nothing and compare every decision of a stream.

    Where items were forgotten, `lost_rounds` has the first and the last of each stretch of rounds
    that cannot be computed again for want of their features; all others are.

    Raises:
        RunError: if a decision differs.
        LedgerError: if a row cannot be replayed, or the ledger is not whole.
    """
    with one_thread(), Ledger.open(spec.folder.ledger, readonly=True) as ledger:
        ledger.verify(anchors(spec.folder))
        session = Session.before_replay(spec, ledger)
        settings, gone = spec.settings, spec.stock.gone
        moves = settings.track == "all" or settings.kl_on_skips
        gaps = Gaps(moves, settings.adapts and bool(gone), session.reach)
        played = session.replay(after=0, gaps=gaps)
        if not gaps.lost:
            session.compare_with_saved()
        rounds, labels = session.learner.round, len(session.examples.bought)
        told = {"rows": played, "rounds": rounds, "labels": labels}
        return told | ({"lost_rounds": spans(gaps.rounds)} if gone else {})


def train_on_audit(spec: RunSpec) -> int:
    """Let the audit's labels join the final head of a finished run; how many there were.

    Raises:
        RunError: the run has not finished, or has no audit or no head to join.
    """
    if spec.settings.adapts or spec.folder.read_state()["state"] != "finished":
        raise RunError(
            f"the audit's labels join the final head of a finished run, and {spec.folder.path} is"
            " none: finish it first (a language model is not refitted with an audit)"
        )
    with Session.open(spec, labeler=Nobody()) as session:
        return session.refit_with_audit()


def catch_up(spec: RunSpec, ledger: Ledger) -> dict[str, Any]:
    """See that a checkpoint holds all that was learnt; what the start of the run had of its items.

    Gives `gate_scale`, None where it was not chosen by the first items, and `gate_state`, that of
    the gate before round 1.
    """
    with one_thread():
        session = Session.before_replay(spec, ledger)
        learner = session.learner
        llf = spec.settings.gate == "llf" and getattr(spec.settings, "gate_scale", None) is None
        scale = getattr(learner.gate, "gate_scale", None) if llf else None
        start = {"gate_scale": scale, "gate_state": learner.gate_state}
        ledger.flush()
        saved, _ = checkpoints.latest(spec.folder.checkpoints)
        if saved is None or saved.count < ledger.head.count:
            session.restore()
            checkpoint(spec.folder, session)
        return start
