"""The parts of a session: features, ledger, labeler, learner and trainer of a run.

Each function loads its part from the run's folder, or makes it where the folder has none.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.blocks import Block, joined
from stacksl.core.learner import Learner
from stacksl.core.rng import generator
from stacksl.data import expect_classes
from stacksl.errors import RunError
from stacksl.features import FeatureMap, GivenFeatures, make_features
from stacksl.features.given import release_rows
from stacksl.features.maps import transformed
from stacksl.features.store import has_block, load_block, save_block
from stacksl.files import arrays
from stacksl.files.atomic import make_private
from stacksl.labelers.protocol import Labeler
from stacksl.labelers.registry import LABELERS, NONE
from stacksl.labelers.sheets.cells import expect_unlike_answers
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.settings import CLASSES, Setting
from stacksl.lm.model import LanguageModel
from stacksl.runs.finish.forecasting import LOOKS
from stacksl.runs.finish.promise_sentences import before_a_look
from stacksl.runs.items.sources import Sources
from stacksl.runs.items.stored import records_of, records_of_test, rejected_of
from stacksl.runs.loop.class_names import class_name_rows
from stacksl.runs.loop.covering import StreamCoverage
from stacksl.runs.loop.game import Examples, Progress, PurchaseLimits, Report, silent
from stacksl.runs.loop.head_fitting import GRAPH
from stacksl.runs.loop.language_trainer import LanguageTrainer
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.session.assignment import (
    FILE,
    SheetLabeler,
    expect_free,
)
from stacksl.runs.session.language import language_model
from stacksl.runs.session.model_labels import (
    LocalLabeler,
    chat_labeler,
    expect_local,
    shots_of,
)
from stacksl.runs.settings.conflicts import LOCAL, OPENAI
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import MAP, SECRET, class_setting
from stacksl.runs.storage.status import SHORT, name_of


def limits_of(spec: RunSpec, ledger: LedgerReader) -> PurchaseLimits:
    """How many purchases of a run may be open at a time."""
    settings, overlap = spec.settings, spec.settings.sheets.overlap
    train = spec.budget.train
    if settings.accuracy_mark is not None:  # all of the audit before a look
        train //= LOOKS
    share = spec.budget.audits[0] / max(1, spec.budget.audits[0] + train)
    if overlap and len(settings.people) - len(ledger.absent) < 2:
        overlap = 0
    start = float(generator(settings.seed, "audit places").random())
    return PurchaseLimits(settings.open_questions, share, overlap, start)


def trainer_of(
    spec: RunSpec,
    examples: Examples,
    learner: Learner,
    ledger: Ledger,
    features: FeatureMap | None,
    report: Report,
) -> LinearTrainer | LanguageTrainer:
    """The trainer of a run; without `features`, as in a replay, it trains nothing."""
    settings = spec.settings
    if settings.adapts:
        model = features if isinstance(features, LanguageModel) else None
        return LanguageTrainer(spec, examples, learner, ledger, model, report)
    labels, column = None, settings.column is not None
    if settings.model_labels is not None:  # of items added since none is known
        labels = np.full(len(spec.dataset.items), -1, dtype=np.int64)
        labels[: len(spec.sources.model_labels)] = spec.sources.model_labels
    names = None if column else class_name_rows(spec, features)
    covering = StreamCoverage.begin(settings, learner, examples, names)
    return LinearTrainer(
        examples,
        learner,
        ledger,
        names,
        settings.seed,
        on_the_way=settings.mode == "pool" or covering is not None,
        covering=covering,
        at_end=settings.refit,
        report=report,
        graph_file=None if features is None else spec.folder.features / GRAPH,
        model_labels=None if column else labels,
        column=labels if column else None,
        by_final=settings.promised_share is not None and (names is not None or column),
        erring=settings.several_people,
    )


def feature_map(spec: RunSpec) -> FeatureMap:
    """The feature map of a run: the one that its settings name, or its language model."""
    if spec.settings.adapts:
        return language_model(spec)
    return make_features(spec.settings.features, classes=spec.dataset.classes)


def features_of(spec: RunSpec, features: FeatureMap, report: Report) -> Block:
    """The features of all items: computed once, then memory-mapped from the feature store.

    The map is fitted on the first items of the run; each file that was added later has a folder of
    its own in the store.
    """
    return joined(
        [
            _stored(spec, features, spec.folder.features / name, span, report)
            for name, span in spec.sources.features.items()
        ]
    )


def features_again(spec: RunSpec) -> Block:
    """The stored features of all items, for a replay; no language model is loaded."""
    if spec.settings.adapts:
        ids, folder = [item.id for item in spec.dataset.items], spec.folder.features
        spans = spec.sources.features.items()
        if not all(has_block(folder / name) for name, _ in spans):
            raise RunError(
                f"the run {spec.folder.path} has new items without features:"
                f" `stacksl resume {spec.folder.path}` first"
            )
        return joined([load_block(folder / name, None, ids[span]) for name, span in spans])
    return features_of(spec, feature_map(spec), silent)


def _stored(
    spec: RunSpec, features: FeatureMap, folder: Path, span: slice, report: Report
) -> Block:
    """The features of the items in `span`, read from `folder`, or made and kept there.

    The map is fitted once, on the first span: the items that the run began with.
    """
    items = spec.dataset.items[span]
    ids = [item.id for item in items]
    map_file = spec.folder.path / MAP
    if has_block(folder):
        features.restore(arrays.load(map_file))
        return load_block(folder, features.fingerprint, ids)
    map_is_kept = map_file.exists()  # it saw texts that were erased since: it is not fitted again
    if map_is_kept:
        features.restore(arrays.load(map_file))
    else:
        features.fit(items)
    block = transformed(
        features, items, lambda done, total: report(Progress("features", done, total))
    )
    make_private(folder)  # the folder of all features may have been deleted
    if not map_is_kept:
        arrays.save(map_file, features.state())
    save_block(folder, block, features.fingerprint, ids)
    report(Progress("features", len(items), len(items)))
    return load_block(folder, features.fingerprint, ids)


def keep_rows(spec: RunSpec, rows: object) -> None:
    """Store the features of a new run's items that were given as an array, (n, d).

    Raises:
        FeatureError: they are not finite numbers of that shape.
    """
    ids = [item.id for item in spec.dataset.items]
    features = GivenFeatures(len(spec.dataset.classes or ())).with_rows(ids, rows)
    features_of(spec, features, silent)
    release_rows(rows)  # from here on the run reads its own


def begin(spec: RunSpec, warnings: Sequence[str], labeler: Labeler | None) -> None:
    """Make the database of a new run, whole: its settings, state, items and budget.

    `labeler` is the Python object that answers, if the settings name none.
    """
    classes, short = spec.sources.classes, before_a_look(spec, spec.budget.labels)
    run_settings = {SECRET: Setting(f"{secrets.randbits(128):032x}")}
    if classes is not None:
        run_settings[CLASSES] = class_setting(classes)
    # said by a run that is cut early
    sentences = [sentence for sentence in dict.fromkeys(warnings) if sentence != short]
    facts: dict[str, Any] = {"warnings": sentences, SHORT: short}
    if labeler is not None:
        facts["labeler"] = name_of(labeler)
    Ledger.create(
        spec.folder.database,
        run=spec.folder.path.name,
        budget=spec.budget.labels,
        money=spec.budget.money,
        price=spec.budget.price,
        items=records_of(spec.sources),
        settings=spec.table() | run_settings,
        facts=facts,
        test=records_of_test(spec.sources),
        rejected=rejected_of(spec.sources),
    ).close()


def check_labeler(settings: Settings, sources: Sources) -> None:
    """Check that the labeler of a new run can answer its items.

    Raises:
        SettingsError, LabelerError, DataError: it cannot.
    """
    if settings.labeler == FILE:
        expect_free(settings)
        for name in sources.given.names if sources.given else ():
            expect_unlike_answers(0, (name,))  # each sheet says what letters and numbers mean
    if settings.labeler_kind == LOCAL:
        expect_local(settings)
    elif settings.labeler_kind not in (FILE, OPENAI):
        expect_classes(sources.pool, f"the data '{sources.pool.name}'")
        _registered(settings, sources)


def labeler_of(spec: RunSpec, ledger: Ledger, examples: Examples) -> Labeler:
    """The labeler that the settings name."""
    if spec.settings.labeler == FILE:
        return SheetLabeler(spec, ledger)
    if spec.settings.labeler_kind == OPENAI:
        return chat_labeler(spec, partial(shots_of, examples, spec.settings.server.shots), ledger)
    if spec.settings.labeler_kind == LOCAL:
        return LocalLabeler(spec)
    return _registered(spec.settings, spec.sources)


def _registered(settings: Settings, sources: Sources) -> Labeler:
    """The labeler of the registry; to one that reads the file `NONE` is no candidate."""
    dataset, usable, owned = sources.dataset, sources.usable.items(), sources.owned
    answers = {**dataset.answers, **dict.fromkeys(dataset.unknown, NONE)}
    sizes = {name: len(item.candidates) for name, item in usable if name not in owned}
    name, colon, argument = settings.labeler.partition(":")
    return LABELERS[name](argument if colon else None, answers, sizes, settings.seed)
