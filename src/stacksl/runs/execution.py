"""A run from its first round to its report, and the same from wherever it was cut off.

A fresh run is a resumed run with nothing behind it: every phase looks at what is on disk first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stacksl.errors import LedgerError, RunError
from stacksl.features import FeatureMap, make_features
from stacksl.game.inputs import Block
from stacksl.game.randomness import generator
from stacksl.game.threads import one_thread
from stacksl.labels.labelers import Labeler, make_labeler
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Head, ItemRecord, Purchase
from stacksl.labels.rows import Row
from stacksl.lm import LanguageModel
from stacksl.runs import arrays, checkpoints
from stacksl.runs.adapting import Adaptation, adaptation_of, changed_facts, language_model
from stacksl.runs.building import Players, assemble
from stacksl.runs.finish import finish
from stacksl.runs.frozen import freeze, is_frozen, thaw
from stacksl.runs.job import Job, content
from stacksl.runs.names import class_names
from stacksl.runs.pool import pool
from stacksl.runs.progress import Kept, Progress, Report, Watch, checkpoint, throttled
from stacksl.runs.record import recorded, unique
from stacksl.runs.refits import Refits
from stacksl.runs.replay import replay
from stacksl.runs.rounds import Table, settle, stream

__all__ = ["execute", "order_of", "replay_run"]


def execute(
    job: Job,
    report: Report,
    labeler: Labeler | None = None,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Play the run to its end, or to where it waits for answers.

    Args:
        job: the run; its folder may hold anything from nothing to a finished run.
        report: told how far it is, some ten times a second.
        labeler: who answers, where it is not the one the settings name.
        changes: settings of training that are other ones from here on.

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
        order = order_of(job.settings.order, job.settings.seed, len(job.dataset.items))
        players = assemble(job.settings, block, order, job.budget.labels)
        found = [*changed, *_cut(features), *players.warnings]
        state["warnings"] = unique(state["warnings"], found)
        with _ledger(job, began=bool(state["began"])) as ledger:
            state["began"] = True
            job.folder.write_state("running", **state)  # a kill keeps the warnings
            table = _table(job, players, block, ledger, labeler or _labeler(job))
            refits = Refits(table, class_names(job, features), job.settings.seed)
            adaptation = adaptation_of(job, table, order, features, report)
            found = _restore(job, table, refits, adaptation)
            state["warnings"] = unique(state["warnings"], found)
            _play(job, order, table, refits, adaptation, report)
            if ledger.open_purchases():
                state["state"] = "waiting"
                checkpoint(job.folder, table, _parts(refits, adaptation))
            else:
                _conclude(job, table, refits, adaptation, report)
                finish(job, table, refits, features, adaptation, report, state)


def replay_run(job: Job) -> dict[str, Any]:
    """Play the whole ledger of a run again from nothing and compare every decision of a stream.

    Raises:
        RunError: if a decision differs.
        LedgerError: if a row cannot be replayed.
    """
    with one_thread(), Ledger.open(job.folder.ledger, readonly=True) as ledger:
        block = _features_again(job)
        order = order_of(job.settings.order, job.settings.seed, len(job.dataset.items))
        players = assemble(job.settings, block, order, job.budget.labels)
        table = _table(job, players, block, ledger, _Nobody())
        refits = Refits(table, class_names(job, None), job.settings.seed)
        rows = _replay(job, table, refits, adaptation_of(job, table, order, None, _silent), after=0)
        _compare_with_saved(job, table)
        return {"rows": rows, "rounds": table.learner.round, "labels": len(table.bought)}


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


class _Nobody:
    """The labeler of a replay: every answer is in the ledger already."""

    name = "nobody"
    repeatable = True

    def ask(self, purchases: Sequence[Purchase]) -> None:
        """Ask nothing."""

    def answers(self) -> list[Answer]:
        """None."""
        return []


def order_of(order: str, seed: int, items: int) -> list[int]:
    """The order in which a run sees its items: the file's, or shuffled by the seed (D19)."""
    if order == "file":
        return list(range(items))
    return [int(i) for i in generator(seed, "order").permutation(items)]


def _feature_map(job: Job) -> FeatureMap:
    if job.settings.adapts:
        return language_model(job)
    return make_features(job.settings.features, classes=job.dataset.classes, seed=job.settings.seed)


def _features_again(job: Job) -> Block:
    """The frozen block of all items, for a replay; no language model is loaded for it."""
    if job.settings.adapts:
        return thaw(job.folder.features, None, [item.id for item in job.dataset.items])
    return _features(job, _feature_map(job), _silent)


def _silent(progress: Progress) -> None:
    """Tell nobody."""


def _features(job: Job, features: FeatureMap, report: Report) -> Block:
    """The block of all items: encoded and frozen once, thawed ever after."""
    folder = job.folder.features
    total = len(job.dataset.items)
    ids = [item.id for item in job.dataset.items]
    if is_frozen(folder):
        features.restore(arrays.load(folder / "map.safetensors"))
        return thaw(folder, features.fingerprint, ids)
    features.fit(job.dataset.items)
    tell = throttled(report)
    block = features.transform(
        job.dataset.items, lambda done, n: tell(Progress("features", done, n), done == n)
    )
    report(Progress("features", total, total))
    arrays.save(folder / "map.safetensors", features.state())
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
        ItemRecord(item.id, content(item, answers.get(item.id)), len(item.candidates))
        for item in job.dataset.items
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
    ledger.check_items(records)
    ledger.verify(Head(*mark) for mark in checkpoints.heads(job.folder.checkpoints))
    return ledger


def _labeler(job: Job) -> Labeler:
    sizes = {item.id: len(item.candidates) for item in job.dataset.items}
    return make_labeler(
        job.settings.labeler, answers=job.dataset.answers, sizes=sizes, seed=job.settings.seed
    )


def _table(job: Job, players: Players, block: Block, ledger: Ledger, who: Labeler) -> Table:
    ids = [item.id for item in job.dataset.items]
    row = {name: index for index, name in enumerate(ids)}
    return Table(players.follower, players.learner, ledger, who, ids, block, row)


def _restore(job: Job, table: Table, refits: Refits, adaptation: Adaptation | None) -> list[str]:
    """Bring the learner to where the ledger is: the last good checkpoint, then the rows on."""
    checkpoint, warnings = checkpoints.latest(job.folder.checkpoints)
    after = 0
    if checkpoint is not None:
        table.learner.restore(checkpoint.arrays)
        for part in _parts(refits, adaptation):
            part.restore(checkpoint.arrays)
        after = checkpoint.count
    _replay(job, table, refits, adaptation, after=after)
    return warnings


def _replay(
    job: Job, table: Table, refits: Refits, adaptation: Adaptation | None, *, after: int
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
        compare=job.settings.mode == "stream",
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
    parts = _parts(refits, adaptation)
    watch = Watch(job, table, parts, report)

    def adapt() -> None:
        if adaptation is not None and adaptation.advance():
            checkpoint(job.folder, table, parts)

    adapt()
    driver = (
        stream(order, table)
        if job.settings.mode == "stream"
        else pool(order, table, batch=job.settings.batch, refits=refits)
    )
    for posted in driver:
        watch(posted)
        adapt()
    table.ledger.flush()


def _conclude(
    job: Job, table: Table, refits: Refits, adaptation: Adaptation | None, report: Report
) -> None:
    """The last refit, and a checkpoint that knows the ledger's end: `verify` finds a cut tail."""
    if adaptation is not None:
        adaptation.conclude()
    elif job.settings.refit and not refits.final:
        report(Progress("refit", 0, 1))
        refits.again(tune=True)
    checkpoint(job.folder, table, _parts(refits, adaptation))
