"""What a run is played with: its features, ledger, labeler, learner and trainer.

Each is made or found on disk, whichever the run's folder asks for.
"""

from __future__ import annotations

from pathlib import Path

from stacksl.errors import LedgerError, RunError
from stacksl.features import FeatureMap, make_features
from stacksl.game.inputs import Block, joined
from stacksl.game.learner import Learner
from stacksl.labels.labelers import Labeler, make_labeler
from stacksl.labels.ledger import Ledger
from stacksl.lm import LanguageModel
from stacksl.runs import arrays
from stacksl.runs.adapting import LanguageTrainer, changed_facts, language_model
from stacksl.runs.anchors import anchors
from stacksl.runs.building import Players, assemble
from stacksl.runs.frozen import freeze, is_frozen, thaw
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.items.identity import expect_same_items, records_of, seal
from stacksl.runs.job import Job
from stacksl.runs.loop.batches import Batches
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.trainer import Trainer
from stacksl.runs.names import class_names
from stacksl.runs.people import FILE, SheetLabeler, annotators_of, ask_folder, away_from
from stacksl.runs.private import make_private
from stacksl.runs.progress import Progress, Report, silent, throttled
from stacksl.runs.refits import LinearTrainer
from stacksl.runs.tombstones import Tombstones

__all__ = [
    "batches_of",
    "cut_texts",
    "feature_map",
    "features_again",
    "features_of",
    "labeler_of",
    "ledger_of",
    "note_model",
    "players_of",
    "sheet_labeler",
    "trainer_of",
]


def players_of(job: Job, block: Block, corpus: Corpus) -> Players:
    """The players of a run, as they were before any item was forgotten."""
    known, settings = Tombstones.read(job.folder), job.settings
    if known is not None and known.gate_scale is not None:
        settings = settings.model_copy(update={"gate_scale": known.gate_scale})
    players = assemble(settings, block, corpus.began, job.budget.labels - job.audit)
    if known is not None and known.gate_state is not None:
        players.learner.gate_state = known.gate_state
    return players


def batches_of(job: Job) -> Batches:
    """How many labels a run asks for at a time."""
    share = -(-job.settings.batch * job.audit // job.budget.labels)  # of a batch, rounded up
    known, away = annotators_of(job.settings.annotators), away_from(job.folder)
    several = len(known) - len(away) > 1  # no row goes to two while fewer than two are there
    return Batches(job.settings.batch, share, job.settings.overlap if several else 0)


def trainer_of(
    job: Job,
    examples: Examples,
    learner: Learner,
    ledger: Ledger,
    features: FeatureMap | None,
    report: Report,
) -> Trainer:
    """What refits the model of a run; without `features`, as in a replay, nothing is trained."""
    settings = job.settings
    head = LinearTrainer(
        examples,
        learner,
        ledger,
        class_names(job, features),
        settings.seed,
        on_the_way=settings.mode == "pool",
        at_end=settings.refit,
        report=report,
    )
    if not settings.adapts:
        return head
    model = features if isinstance(features, LanguageModel) else None
    return LanguageTrainer(job, head, model, report)


def feature_map(job: Job) -> FeatureMap:
    """What makes the run's features: a map of its settings, or its language model."""
    if job.settings.adapts:
        return language_model(job)
    return make_features(job.settings.features, classes=job.dataset.classes, seed=job.settings.seed)


def note_model(job: Job, features: FeatureMap) -> list[str]:
    """Record how a language model computes; a sentence for each thing it did otherwise before."""
    if not isinstance(features, LanguageModel):
        return []
    changed = changed_facts(job, features)
    job.note(features.facts())
    return changed


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


def ledger_of(job: Job, *, began: bool) -> Ledger:
    """The run's ledger, made once; the items are checked against it ever after.

    Raises:
        LedgerError: the run `began` and its ledger is gone, or the items are not its own.
    """
    path = job.folder.ledger
    if not path.exists():
        if began:
            raise LedgerError(
                f"the ledger {path} of this run is gone, and without it nobody knows what was"
                " bought: restore it from a copy"
            )
        ledger = Ledger.create(
            path,
            run=job.folder.path.name,
            budget=job.budget.labels,
            money=job.budget.money,
            price=job.budget.price,
            items=records_of(job),
        )
        seal(job, ledger)
        return ledger
    ledger = Ledger.open(path)
    expect_same_items(job, ledger)
    ledger.verify(anchors(job.folder))
    return ledger


def labeler_of(job: Job, ledger: Ledger) -> Labeler:
    """Who answers, by the settings."""
    if job.settings.labeler == FILE:
        return sheet_labeler(job, ledger)
    return make_labeler(
        job.settings.labeler,
        answers=job.dataset.answers,
        sizes=job.stock.sizes,
        seed=job.settings.seed,
    )


def sheet_labeler(job: Job, ledger: Ledger) -> SheetLabeler:
    """The people who answer a run by file."""
    items = job.dataset.items
    row = {item.id: index for index, item in enumerate(items)}
    place = ask_folder(job.settings, job.folder.path)
    began = None if job.stock.began is None else len(job.stock.began)
    classes, away = job.stock.classes, away_from(job.folder)
    alone = int(job.folder.read_toml("resolved.toml").get("sheets_alone", 0))
    return SheetLabeler(ledger, place, job.settings, items, row, classes, began, away, alone)
