"""A run from its first round to its report, and the same from wherever it was cut off.

A fresh run is a resumed run with nothing behind it: every phase looks at what is on disk first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from stacksl.errors import RunError
from stacksl.game.threads import one_thread
from stacksl.labels.labelers import Labeler
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Receipt
from stacksl.labels.rows import Row
from stacksl.lm import LanguageModel
from stacksl.runs import checkpoints
from stacksl.runs.adapting import Adaptation, adaptation_of, changed_facts
from stacksl.runs.anchors import anchors
from stacksl.runs.classes import learn_named, take_up, widen, widen_to
from stacksl.runs.finish import finish, refit_with_audit
from stacksl.runs.gaps import Gaps, spans
from stacksl.runs.job import Job
from stacksl.runs.names import class_names
from stacksl.runs.opening import everything, hold, measured, rescheduled, rows_of
from stacksl.runs.people import FILE, Answered
from stacksl.runs.pool import pool
from stacksl.runs.progress import Kept, Progress, Report, Watch, checkpoint
from stacksl.runs.record import recorded, unique
from stacksl.runs.refits import Refits
from stacksl.runs.replay import replay
from stacksl.runs.rounds import Table, settle, stream
from stacksl.runs.seating import (
    cut_texts,
    desk_of,
    feature_map,
    features_again,
    features_of,
    labeler_of,
    ledger_of,
    players_of,
    silent,
    table_of,
)

__all__ = ["catch_up", "execute", "replay_run", "train_on_audit"]


def execute(
    job: Job,
    report: Report,
    labeler: Labeler | None = None,
    changes: Mapping[str, Any] | None = None,
    answers: Sequence[Answer] = (),
    reopen: Sequence[str] = (),
    held: bool = False,
) -> list[Receipt]:
    """Play the run to its end, or to where it waits for answers; the receipts of `answers`.

    Args:
        job: the run; its folder may hold anything from nothing to a finished run.
        report: told how far it is, some ten times a second.
        labeler: who answers, where it is not the one the settings name.
        changes: settings of training that are other ones from here on.
        answers: what people have answered by file since the run was left.
        reopen: items that were answered with none of these, to be bought once more.
        held: whether the caller holds the run already.

    Raises:
        RunLocked: another process holds the run.
        StackslError: one sentence on what went wrong; the state `failed` holds it too.
    """
    lock = nullcontext() if held else job.folder.locked()
    with lock, recorded(job, labeler) as state, one_thread():
        job, said = job.changed(changes or {})
        if said:  # before anything can fail: a change must be told of
            state["warnings"] = unique(state["warnings"], said)
            job.folder.write_state("running", **state)
        features = feature_map(job)
        block = features_of(job, features, report)
        changed: list[str] = []
        if isinstance(features, LanguageModel):
            changed = changed_facts(job, features)
            job.note(features.facts())
        rows = rows_of(job)
        players = players_of(job, block, rows)
        found = [*changed, *cut_texts(features), *players.warnings]
        state["warnings"] = unique(state["warnings"], found)
        names = class_names(job, features)  # on disk before a row counts on them
        with ledger_of(job, began=bool(state["began"])) as ledger:
            take_up(job, ledger)
            state["began"] = True
            job.folder.write_state("running", **state)  # a kill keeps the warnings
            table = table_of(job, players, block, ledger, labeler or labeler_of(job, answers), rows)
            refits = Refits(table, names, job.settings.seed)
            adaptation = adaptation_of(job, table, everything(job, rows), features, report)
            found = _restore(job, table, refits, adaptation)
            state["warnings"] = unique(state["warnings"], found)
            if adaptation is not None:
                adaptation.widen()
            order = hold(job, table, rows)
            if reopen:
                ledger.reserve(reopen, "train")
            receipts = _play(job, order, table, refits, adaptation, report)
            if ledger.open_purchases():
                state["state"] = "waiting"
                if job.settings.labeler == FILE and labeler is None:
                    state["sheets"] = desk_of(job, ledger).deliver()
                checkpoint(job.folder, table, _parts(refits, adaptation))
            else:
                _conclude(job, table, refits, adaptation, report)
                audit = measured(job, table, rows)
                finish(job, table, refits, features, adaptation, report, state, audit)
        return receipts


def train_on_audit(job: Job) -> int:
    """Let the audit's labels join the final head of a finished run; how many there were.

    Raises:
        RunError: the run has not finished, or has no audit or no head to join.
    """
    if job.settings.adapts or job.folder.read_state()["state"] != "finished":
        raise RunError(
            f"the audit's labels join the final head of a finished run, and {job.folder.path} is"
            " none: finish it first (a language model is not refitted with an audit)"
        )
    with job.folder.locked(), one_thread():
        features = feature_map(job)
        block, rows = features_of(job, features, silent), rows_of(job)
        with ledger_of(job, began=True) as ledger:
            table = table_of(job, players_of(job, block, rows), block, ledger, Answered(), rows)
            refits = Refits(table, class_names(job, features), job.settings.seed)
            _restore(job, table, refits, None)
            hold(job, table, rows)
            return refit_with_audit(job, table, refits, features, measured(job, table, rows))


def replay_run(job: Job) -> dict[str, Any]:
    """Play the whole ledger of a run again from nothing and compare every decision of a stream.

    Where items were forgotten, `lost_rounds` has the first and the last of each stretch of rounds
    that cannot be computed again for want of their features; all others are.

    Raises:
        RunError: if a decision differs.
        LedgerError: if a row cannot be replayed, or the ledger is not whole.
    """
    with one_thread(), Ledger.open(job.folder.ledger, readonly=True) as ledger:
        ledger.verify(anchors(job.folder))
        table, refits, adaptation = _seated(job, ledger)
        gaps = _gaps(job, table, refits, adaptation)
        played = _replay(job, table, refits, adaptation, after=0, gaps=gaps)
        if not gaps.lost:
            _compare_with_saved(job, table)
        told = {"rows": played, "rounds": table.learner.round, "labels": len(table.bought)}
        return told | ({"lost_rounds": spans(gaps.rounds)} if job.stock.gone else {})


def catch_up(job: Job, ledger: Ledger) -> dict[str, Any]:
    """See that a checkpoint holds all that was learnt; what the start of the run had of its items.

    Gives `gate_scale`, None where it was not chosen by the first items, and `gate_state`, that of
    the gate before round 1.
    """
    with one_thread():
        table, refits, adaptation = _seated(job, ledger)
        learner = table.learner
        llf = job.settings.gate == "llf" and getattr(job.settings, "gate_scale", None) is None
        scale = getattr(learner.gate, "gate_scale", None) if llf else None
        start = {"gate_scale": scale, "gate_state": learner.gate_state}
        ledger.flush()
        saved, _ = checkpoints.latest(job.folder.checkpoints)
        if saved is None or saved.count < ledger.head.count:
            _restore(job, table, refits, adaptation)
            checkpoint(job.folder, table, _parts(refits, adaptation))
        return start


def _seated(job: Job, ledger: Ledger) -> tuple[Table, Refits, Adaptation | None]:
    """The players of a run at their start, to be given the ledger's rows; nobody is asked."""
    block = features_again(job)
    rows = rows_of(job)
    table = table_of(job, players_of(job, block, rows), block, ledger, Answered(), rows)
    refits = Refits(table, class_names(job, None), job.settings.seed)
    return table, refits, adaptation_of(job, table, everything(job, rows), None, silent)


def _gaps(job: Job, table: Table, refits: Refits, adaptation: Adaptation | None) -> Gaps:
    """What forgotten items take from a replay; kept checkpoints bring the learner back."""

    def reach(seq: int) -> bool:
        saved = checkpoints.at(job.folder.checkpoints, seq)
        if saved is None:
            return False
        for part in (table.learner, *_parts(refits, adaptation)):
            part.restore(saved.arrays)
        return True

    moves = job.settings.track == "all" or job.settings.kl_on_skips
    return Gaps(moves, job.settings.adapts and bool(job.stock.gone), reach)


def _compare_with_saved(job: Job, table: Table) -> None:
    """Hold the replayed learner against the last checkpoint, where that is of the same round."""
    saved, _ = checkpoints.latest(job.folder.checkpoints)
    if saved is None or saved.round != table.learner.round:
        return
    late = [r for r in table.ledger.rows(saved.count) if r.event in ("round", "learnt")]
    for name, array in table.learner.state().items():
        if not late and not np.array_equal(array, saved.arrays[name], equal_nan=True):
            raise RunError(
                f"the replay gives another '{name}' than the checkpoint of round {saved.round}:"
                " the run was made by other versions or on another machine (see resolved.toml)"
            )


def _restore(job: Job, table: Table, refits: Refits, adaptation: Adaptation | None) -> list[str]:
    """Bring the learner to where the ledger is: the last good checkpoint, then the rows on."""
    checkpoint, warnings = checkpoints.latest(job.folder.checkpoints)
    if checkpoint is None and job.stock.gone:  # whose features the ledger's rows would need
        raise RunError(
            f"a run that has forgotten items goes on from a checkpoint, but"
            f" {job.folder.checkpoints} has no whole one: restore that folder from a copy"
        )
    after = 0
    if checkpoint is not None:
        if job.stock.began is not None:
            widen_to(checkpoint.count, table, refits)
        table.learner.restore(checkpoint.arrays)
        for part in _parts(refits, adaptation):
            part.restore(checkpoint.arrays)
        after = checkpoint.count
    _replay(job, table, refits, adaptation, after=after)
    return warnings


def _replay(
    job: Job,
    table: Table,
    refits: Refits,
    adaptation: Adaptation | None,
    *,
    after: int,
    gaps: Gaps | None = None,
) -> int:
    """Give the players the effects of the ledger's rows behind number `after`."""

    def refit(row: Row) -> None:
        if adaptation is not None and "adapter" in row.payload:
            adaptation.replay_refit(row)
        else:
            refits.apply(tune=bool(row.payload["tune"]))

    return replay(
        table.ledger.rows(),
        table,
        after=after,
        refit=refit,
        refreshed=None if adaptation is None else adaptation.replay_refreshed,
        budget=lambda row: rescheduled(table, row.payload),
        class_added=lambda row, behind: widen(row, table, refits) if behind else None,
        compare=job.settings.mode == "stream",
        gaps=gaps,
    )


def _parts(refits: Refits, adaptation: Adaptation | None) -> list[Kept]:
    return [refits] if adaptation is None else [refits, adaptation]


def _play(
    job: Job,
    order: list[int],
    table: Table,
    refits: Refits,
    adaptation: Adaptation | None,
    report: Report,
) -> list[Receipt]:
    """All rounds; gives the receipts of what was answered before the first of them."""
    table.labeler.ask(table.ledger.open_purchases())  # what was asked before the run was cut off
    receipts = settle(table)
    learn_named(job, table)
    parts = _parts(refits, adaptation)
    watch = Watch(job, table, parts, report)

    def adapt() -> None:
        if adaptation is not None and adaptation.advance():
            checkpoint(job.folder, table, parts)

    adapt()
    driver = (
        stream(order, table) if job.settings.mode == "stream" else pool(order, table, refits=refits)
    )
    for posted in driver:
        watch(posted)
        adapt()
    learn_named(job, table)
    table.ledger.flush()
    return receipts


def _conclude(
    job: Job, table: Table, refits: Refits, adaptation: Adaptation | None, report: Report
) -> None:
    """The last refit, and a checkpoint that knows the ledger's end: `verify` finds a cut tail."""
    if adaptation is not None:
        adaptation.conclude()
    elif job.settings.refit and (refits.due or not refits.final):
        report(Progress("refit", 0, 1))
        refits.again(tune=True)
    checkpoint(job.folder, table, _parts(refits, adaptation))
