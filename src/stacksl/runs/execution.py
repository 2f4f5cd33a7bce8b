"""A run from its first round to its report, and the same from wherever it was cut off.

A fresh run is a resumed run with nothing behind it: every phase looks at what is on disk first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.errors import LedgerError, RunError
from stacksl.features import FeatureMap, make_features
from stacksl.game.inputs import Block, joined
from stacksl.game.threads import one_thread
from stacksl.labels.labelers import Labeler, make_labeler
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Head, ItemRecord
from stacksl.labels.rows import Row
from stacksl.lm import LanguageModel
from stacksl.runs import arrays, checkpoints
from stacksl.runs.adapting import Adaptation, adaptation_of, changed_facts, language_model
from stacksl.runs.building import Players, assemble
from stacksl.runs.classes import learn_named, take_up, widen, widen_to
from stacksl.runs.finish import finish, refit_with_audit
from stacksl.runs.frozen import freeze, is_frozen, thaw
from stacksl.runs.gaps import Gaps, spans
from stacksl.runs.job import Job, content
from stacksl.runs.names import class_names
from stacksl.runs.opening import Rows, everything, hold, measured, rescheduled, rows_of
from stacksl.runs.people import FILE, Answered, Desk, annotators_of, ask_folder, away_from
from stacksl.runs.pool import pool
from stacksl.runs.private import make_private
from stacksl.runs.progress import Kept, Progress, Report, Watch, checkpoint, throttled
from stacksl.runs.record import recorded, unique
from stacksl.runs.refits import Refits
from stacksl.runs.replay import replay
from stacksl.runs.rounds import Table, settle, stream
from stacksl.runs.tombstones import Tombstones

__all__ = ["catch_up", "desk_of", "execute", "replay_run"]


def execute(
    job: Job,
    report: Report,
    labeler: Labeler | None = None,
    changes: Mapping[str, Any] | None = None,
    answers: Sequence[Answer] = (),
    reopen: Sequence[str] = (),
) -> None:
    """Play the run to its end, or to where it waits for answers.

    Args:
        job: the run; its folder may hold anything from nothing to a finished run.
        report: told how far it is, some ten times a second.
        labeler: who answers, where it is not the one the settings name.
        changes: settings of training that are other ones from here on.
        answers: what people have answered by file since the run was left.
        reopen: items that were answered with none of these, to be bought once more.

    Raises:
        RunLocked: another process holds the run.
        StackslError: one sentence on what went wrong; the state `failed` holds it too.
    """
    with job.folder.locked(), recorded(job, labeler) as state, one_thread():
        job, said = job.changed(changes or {})
        if said:  # before anything can fail: a change must be told of
            state["warnings"] = unique(state["warnings"], said)
            job.folder.write_state("running", **state)
        features = _feature_map(job)
        block = _features(job, features, report)
        changed: list[str] = []
        if isinstance(features, LanguageModel):
            changed = changed_facts(job, features)
            job.note(features.facts())
        rows = rows_of(job)
        players = _players(job, block, rows)
        found = [*changed, *_cut(features), *players.warnings]
        state["warnings"] = unique(state["warnings"], found)
        names = class_names(job, features)  # on disk before a row counts on them
        with _ledger(job, began=bool(state["began"])) as ledger:
            take_up(job, ledger)
            state["began"] = True
            job.folder.write_state("running", **state)  # a kill keeps the warnings
            table = _table(job, players, block, ledger, labeler or _labeler(job, answers), rows)
            refits = Refits(table, names, job.settings.seed)
            adaptation = adaptation_of(job, table, everything(job, rows), features, report)
            found = _restore(job, table, refits, adaptation)
            state["warnings"] = unique(state["warnings"], found)
            if adaptation is not None:
                adaptation.widen()
            order = hold(job, table, rows)
            if reopen:
                ledger.reserve(reopen, "train")
            _play(job, order, table, refits, adaptation, report)
            if ledger.open_purchases():
                state["state"] = "waiting"
                if job.settings.labeler == FILE and labeler is None:
                    state["sheets"] = desk_of(job, ledger).deliver()
                checkpoint(job.folder, table, _parts(refits, adaptation))
            else:
                _conclude(job, table, refits, adaptation, report)
                audit = measured(job, table, rows)
                finish(job, table, refits, features, adaptation, report, state, audit)


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
        features = _feature_map(job)
        block, rows = _features(job, features, _silent), rows_of(job)
        with _ledger(job, began=True) as ledger:
            table = _table(job, _players(job, block, rows), block, ledger, Answered(), rows)
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
        LedgerError: if a row cannot be replayed.
    """
    with one_thread(), Ledger.open(job.folder.ledger, readonly=True) as ledger:
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
        llf = job.settings.gate == "llf" and job.settings.gate_scale is None
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
    block = _features_again(job)
    rows = rows_of(job)
    table = _table(job, _players(job, block, rows), block, ledger, Answered(), rows)
    refits = Refits(table, class_names(job, None), job.settings.seed)
    return table, refits, adaptation_of(job, table, everything(job, rows), None, _silent)


def _players(job: Job, block: Block, rows: Rows) -> Players:
    """The players of a run, as they were before any item was forgotten."""
    known, settings = Tombstones.read(job.folder), job.settings
    if known is not None and known.gate_scale is not None:
        settings = settings.model_copy(update={"gate_scale": known.gate_scale})
    players = assemble(settings, block, rows.order, job.budget.labels - job.audit)
    if known is not None and known.gate_state is not None:
        players.learner.gate_state = known.gate_state
    return players


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


FILE_LABELERS = ("oracle", "noisy")  # those whose answers are the data file's own


def _feature_map(job: Job) -> FeatureMap:
    if job.settings.adapts:
        return language_model(job)
    return make_features(job.settings.features, classes=job.dataset.classes, seed=job.settings.seed)


def _features_again(job: Job) -> Block:
    """The frozen block of all items, for a replay; no language model is loaded for it."""
    if job.settings.adapts:
        ids, folder = [item.id for item in job.dataset.items], job.folder.features
        parts = job.stock.features.items()
        if not all(is_frozen(folder / name) for name, _ in parts):
            raise RunError(
                f"the run {job.folder.path} was given items that its model has not read yet:"
                f" `stacksl resume {job.folder.path}` first"
            )
        return joined([thaw(folder / name, None, ids[part]) for name, part in parts])
    return _features(job, _feature_map(job), _silent)


def _silent(progress: Progress) -> None:
    """Tell nobody."""


def _features(job: Job, features: FeatureMap, report: Report) -> Block:
    """The block of all items: encoded and frozen once, thawed ever after.

    The map is fitted on the items the run began with; those that came later are rows of it too,
    in a folder of their own for each file.
    """
    return joined(
        [
            _frozen(job, features, job.folder.features / name, part, report)
            for name, part in job.stock.features.items()
        ]
    )


def _frozen(job: Job, features: FeatureMap, folder: Path, part: slice, report: Report) -> Block:
    """The block of a part of the items, as it lies in `folder`."""
    items = job.dataset.items[part]
    ids = [item.id for item in items]
    home = job.folder.features / "map.safetensors"
    if is_frozen(folder):
        features.restore(arrays.load(home))
        return thaw(folder, features.fingerprint, ids)
    if part.start == 0:
        features.fit(items)
    tell = throttled(report)
    block = features.transform(
        items, lambda done, n: tell(Progress("features", done, n), done == n)
    )
    report(Progress("features", len(items), len(items)))
    if part.start == 0:
        arrays.save(home, features.state())
    make_private(folder)
    freeze(folder, block, features.fingerprint, ids)
    return thaw(folder, features.fingerprint, ids)


def _cut(features: FeatureMap) -> list[str]:
    if not features.truncated:
        return []
    return [f"{features.truncated} texts are longer than the encoder reads and were cut"]


def _ledger(job: Job, *, began: bool) -> Ledger:
    """The run's ledger, made once; the items are checked against it ever after.

    Raises:
        LedgerError: the run `began` and its ledger is gone, or the items are not its own.
    """
    own = job.settings.labeler.partition(":")[0] in FILE_LABELERS
    answers = job.dataset.answers if own else {}
    records = [
        ItemRecord(item.id, content(item, answer), len(item.candidates))
        for item, answer in job.stock.as_begun(answers)
    ]
    path = job.folder.ledger
    if not path.exists():
        if began:
            raise LedgerError(
                f"the ledger {path} of this run is gone, and without it nobody knows what was"
                " bought: restore it from a copy"
            )
        return Ledger.create(
            path,
            run=job.folder.path.name,
            budget=job.budget.labels,
            money=job.budget.money,
            price=job.budget.price,
            items=records,
        )
    ledger = Ledger.open(path)
    later = range(job.stock.first, len(records))
    if new := [records[row] for row in later if row not in job.stock.gone]:
        ledger.add_items(new)
    ledger.check_items(records)
    ledger.verify(Head(*mark) for mark in checkpoints.heads(job.folder.checkpoints))
    return ledger


def _labeler(job: Job, answers: Sequence[Answer]) -> Labeler:
    if job.settings.labeler == FILE:
        return Answered(answers)
    return make_labeler(
        job.settings.labeler,
        answers=job.dataset.answers,
        sizes=job.stock.sizes,
        seed=job.settings.seed,
    )


def desk_of(job: Job, ledger: Ledger) -> Desk:
    """Where the rows of a run are handed out to people."""
    items = job.dataset.items
    row = {item.id: index for index, item in enumerate(items)}
    place = ask_folder(job.settings, job.folder.path)
    began = None if job.stock.began is None else len(job.stock.began)
    classes, away = job.stock.classes, away_from(job.folder)
    return Desk(ledger, place, job.settings, items, row, classes, began, away)


def _table(
    job: Job, players: Players, block: Block, ledger: Ledger, who: Labeler, rows: Rows
) -> Table:
    ids = [item.id for item in job.dataset.items]
    row = {name: index for index, name in enumerate(ids)}
    share = -(-job.settings.batch * job.audit // job.budget.labels)  # of a batch, rounded up
    return Table(
        players.follower, players.learner, ledger, who, ids, block, row, rows.aside,
        batch=job.settings.batch, audit_share=share, overlap=_overlap(job),
        min_per_class=job.settings.min_per_class,
    )  # fmt: skip


def _overlap(job: Job) -> int:
    """How many rows go to two annotators; none are added while fewer than two are there."""
    known, away = annotators_of(job.settings.annotators), away_from(job.folder)
    return job.settings.overlap if len(known) - len(away) > 1 else 0


def _restore(job: Job, table: Table, refits: Refits, adaptation: Adaptation | None) -> list[str]:
    """Bring the learner to where the ledger is: the last good checkpoint, then the rows on."""
    checkpoint, warnings = checkpoints.latest(job.folder.checkpoints)
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
) -> None:
    table.labeler.ask(table.ledger.open_purchases())  # what was asked before the run was cut off
    settle(table)
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
