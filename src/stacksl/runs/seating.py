"""What a run is played with: its features, ledger, labeler, players and table.

Each is made or found on disk, whichever the run's folder asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stacksl.errors import LedgerError, RunError
from stacksl.features import FeatureMap, make_features
from stacksl.game.inputs import Block, joined
from stacksl.labels.labelers import Labeler, make_labeler
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, ItemRecord
from stacksl.runs import arrays
from stacksl.runs.adapting import language_model
from stacksl.runs.anchors import anchors
from stacksl.runs.building import Players, assemble
from stacksl.runs.frozen import freeze, is_frozen, thaw
from stacksl.runs.job import Job, content
from stacksl.runs.opening import Rows
from stacksl.runs.people import FILE, Answered, Desk, annotators_of, ask_folder, away_from
from stacksl.runs.private import make_private
from stacksl.runs.progress import Progress, Report, throttled
from stacksl.runs.rounds import Table
from stacksl.runs.tombstones import Tombstones

__all__ = [
    "cut_texts",
    "desk_of",
    "feature_map",
    "features_again",
    "features_of",
    "labeler_of",
    "ledger_of",
    "players_of",
    "silent",
    "table_of",
]


def players_of(job: Job, block: Block, rows: Rows) -> Players:
    """The players of a run, as they were before any item was forgotten."""
    known, settings = Tombstones.read(job.folder), job.settings
    if known is not None and known.gate_scale is not None:
        settings = settings.model_copy(update={"gate_scale": known.gate_scale})
    players = assemble(settings, block, rows.order, job.budget.labels - job.audit)
    if known is not None and known.gate_state is not None:
        players.learner.gate_state = known.gate_state
    return players


def table_of(
    job: Job, players: Players, block: Block, ledger: Ledger, who: Labeler, rows: Rows
) -> Table:
    """The players at their table, before any row of the ledger."""
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


def feature_map(job: Job) -> FeatureMap:
    """What makes the run's features: a map of its settings, or its language model."""
    if job.settings.adapts:
        return language_model(job)
    return make_features(job.settings.features, classes=job.dataset.classes, seed=job.settings.seed)


def features_of(job: Job, features: FeatureMap, report: Report) -> Block:
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


def features_again(job: Job) -> Block:
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
    return features_of(job, feature_map(job), silent)


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


def cut_texts(features: FeatureMap) -> list[str]:
    """A sentence where texts were too long for the encoder."""
    if not features.truncated:
        return []
    return [f"{features.truncated} texts are longer than the encoder reads and were cut"]


FILE_LABELERS = ("oracle", "noisy")  # those whose answers are the data file's own


def ledger_of(job: Job, *, began: bool) -> Ledger:
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
    ledger.verify(anchors(job.folder))
    return ledger


def labeler_of(job: Job, answers: Sequence[Answer]) -> Labeler:
    """Who answers, by the settings; people have given their `answers` already."""
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


def silent(progress: Progress) -> None:
    """Tell nobody."""
