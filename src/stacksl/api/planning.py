"""Planning a run, and starting it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.api.stored import Run, expect_plain
from stacksl.api.watching import not_of
from stacksl.core.gates.registry import COVERAGE, GATES, require_ranking
from stacksl.data import Classes, Dataset, as_written, table_of
from stacksl.data.dataset import Rejected
from stacksl.data.values import is_missing
from stacksl.errors import (
    DataError,
    FeatureError,
    SettingsError,
    expect,
    expect_path,
    warn_user,
)
from stacksl.labelers.protocol import Labeler, Request
from stacksl.labelers.registry import as_labeler
from stacksl.models.audit import audit_size
from stacksl.models.linear import with_classes
from stacksl.models.watching import power
from stacksl.report.sentences import PREDICTED
from stacksl.runs.items import intake
from stacksl.runs.items.reading import (
    answered,
    given_classes,
    load_owned,
    load_test,
    named_columns,
)
from stacksl.runs.items.sources import QUESTIONS, SAMPLE, STDIN, Sources, load, of_stdin
from stacksl.runs.items.stored import stamps_of
from stacksl.runs.settings.budget import Budget, parse_budget
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved, resolve
from stacksl.runs.settings.terms import further_labels, labels_per_item
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder, free_folder
from stacksl.runs.storage.status import random_audit

if TYPE_CHECKING:
    from stacksl.runs.loop.game import Progress


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned run: nothing is written until `claimed` or `start`.

    Attributes:
        spec: of the run, with the folder and the sources that were named.
        labeler: answers in place of the one that the settings name.
        warnings: sentences on unusual data and settings, which the run keeps.
        comparison: of an audit of new rows: how probably it finds a fall; the verdict says it too.
        named: whether the user named the folder.
        rows: features of the items, (n, d), in place of those that the settings name.
        fits: whether the memory for a language model was checked and suffices.
    """

    spec: RunSpec
    labeler: Labeler | None
    warnings: tuple[str, ...] = ()
    comparison: str = ""
    named: bool = True
    rows: Any = None
    fits: bool = False

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.spec.folder.path

    def claimed(self) -> Plan:
        """This plan after a check of the memory, with a folder that no other run uses.

        Where the user named no folder, the plan's name may have been taken since it was made.

        Raises:
            SettingsError: there is not enough memory, or texts may not be sent to a labeler;
                nothing is written then.
        """
        from stacksl.runs.session.language import expect_room
        from stacksl.runs.session.model_labels import expect_consent

        if self.labeler is None:
            expect_consent(self.spec)
        sources, settings = self.spec.sources, self.spec.settings
        if settings.adapts and not self.fits:
            test = sources.test.items if sources.test else ()
            expect_room(settings, sources.pool.items, test)
        out = self.out if self.named else _default_folder(sources.pool.name, claim=True)
        return replace(self, spec=replace(self.spec, folder=RunFolder(out)), named=True, fits=True)

    def start(self, progress: Callable[[Progress], None] | None = None) -> Run:
        """Create the folder and play the run to its end.

        Raises:
            StackslError: one sentence on what went wrong; what was bought is kept, and
                `Run.resume` continues the run.
        """
        from stacksl.runs.session.session import Session
        from stacksl.runs.session.setup import begin, keep_rows

        expect_plain(progress)
        if not self.fits:
            return self.claimed().start(progress)
        folder = RunFolder.create(self.out)
        with folder.locked():
            RunFolder.create(self.out)  # again, now that no other process can claim it
            if self.rows is not None:
                keep_rows(self.spec, self.rows)
            begin(self.spec, self.warnings, self.labeler)  # last: with run.db the folder is a run
        with Session.open(self.spec, progress, labeler=self.labeler) as session:
            session.play(tells=True)
        return Run(folder.path)


def prepare(
    data: Any = None,
    answers: Any = None,
    *,
    test: Any = None,
    out: str | Path | None = None,
    settings: Resolved | Mapping[str, Any] | None = None,
    labeler: Labeler | None = None,
    classes: Sequence[str] | None = None,
    rows: Any = None,
) -> Plan:
    """The plan of a run over `data`; writes nothing.

    Args:
        data, answers, test, out: as for `run`; or `data` is a `Dataset`, or the spec of another
            run, whose items are taken as they are.
        settings: the result of `resolve`, or a mapping of settings.
        labeler: a labeler in place of the one that the settings name.
        classes: the names in their order, for texts and frames.
        rows: features of the items, (n, d), in place of those that the settings name.

    Raises:
        SettingsError, DataError, LabelerError, RunError: one sentence on what is wrong.
    """
    from stacksl.runs.finish.forecasting import rarely_shown
    from stacksl.runs.finish.promise_sentences import before_a_look

    chosen = None if out is None else expect_path(out, "out")
    if classes is not None:
        ordered = hasattr(classes, "__getitem__") and not isinstance(classes, str | Mapping)
        expect(ordered, "classes should be a list of names or a file", classes)
        reason = "classes should be names, and none missing: leave out None and NaN"
        expect(not any(map(is_missing, classes)), reason, classes)
        classes = [*map(str, classes)]
    resolved = settings if isinstance(settings, Resolved) else resolve(settings)
    copied, labeled = (data if isinstance(data, RunSpec) else None), None
    piped = isinstance(data, str) and data == STDIN  # a frame must not be compared with a word
    if copied is None or copied.settings.model_labels != resolved.settings.model_labels:
        table: Any = None if copied or piped else _path(data) or table_of(data)
        resolved, labeled = intake.with_column(resolved, table, classes)
    resolved = intake.with_features(resolved, without_data=data is None)
    if resolved.settings.labeler == "file":
        # who knew the seed and the size of the pool could name the items of the audit
        resolved = resolved.with_defaults({"seed": secrets.randbits(32)}, "drawn")
    resolved = intake.absolute(resolved)
    data_place, test_place = _places(data, test, resolved.settings)
    _expect_source(resolved, data)
    if resolved.settings.test_columns is not None and test is None and test_place is None:
        raise SettingsError("test_columns belong to a test file: give --test, or leave them out")
    names = labeled.classes if labeled else classes
    try:
        sources = _read_sources(data, answers, test, resolved.settings, names)
    except DataError as fault:
        if resolved.settings.owned_column is None:
            raise
        remedy = "name one with --owned, or a file that exists"
        raise DataError(str(fault).replace("say which with --label-column", remedy)) from None
    _expect_rows(resolved.settings, rows, sources)
    filed = copied is not None or data_place is not None or piped
    filed |= sources.pool.format == intake.TEXTS
    filed = filed and (data is not None or resolved.settings.adapts)
    resolved, budget = _settled(resolved, sources, filed=filed)
    _expect_playable(resolved.settings, sources, labeler)
    model_labels, label_warnings = _model_labels(resolved.settings, sources, labeled)
    sources = replace(sources, model_labels=model_labels)
    budget = _with_measuring(resolved.settings, sources, budget)
    folder = chosen or _default_folder(sources.pool.name)
    spec = RunSpec(
        RunFolder(folder), resolved, sources, budget, budget, _absolute(data_place) or "",
        _absolute(test_place),
    )  # fmt: skip
    if copied is not None:  # as they were when that run read them
        stamps = {} if test is None else stamps_of([spec.test_source or ""])
        spec = replace(spec, stamps={**copied.folder.resolved().get("files", {}), **stamps})
    RunFolder.create(folder, dry_run=True)
    (audit,), left = budget.audits, budget.train
    answerer = resolved.settings.labeler if labeler is None else labeler.name
    second_look = " with its second look" if budget.further else ""
    too_small = f"an audit of {audit:,}{second_look} leaves {left:,} of the"
    too_small += f" {budget.labels:,} labels to train on: give a smaller --audit or a larger budget"
    warnings = (
        *([too_small] if left < min(25, audit) and resolved.settings.column is None else []),
        *label_warnings,
        *sources.pool.warnings,
        *intake.warnings_of_test(sources.pool, sources.test),
        *intake.unused_answers(resolved.settings, sources.pool, elsewhere=answerer != "oracle"),
        *intake.no_encoder(resolved),
        *intake.without_threshold(resolved),
        *filter(None, [before_a_look(spec, budget.labels), rarely_shown(spec.settings, audit)]),
    )
    return Plan(spec, labeler, warnings, named=out is not None, rows=rows)


def _settled(resolved: Resolved, sources: Sources, *, filed: bool) -> tuple[Resolved, Budget]:
    """The settings that depend on the items, and the budget; `filed`: all items are there."""
    from stacksl.features import make_features
    from stacksl.runs.session.model_labels import with_model_labels

    if not resolved.settings.adapts:  # refused early
        make_features(resolved.settings.features, classes=sources.pool.classes)
    resolved = with_model_labels(resolved, sources.dataset.items)
    judges = resolved.settings.column is not None
    judges &= resolved.settings.promised_share is None  # else a table is bought
    if judges and resolved.origin["budget"] == "default":
        audit_wanted, rows = resolved.settings.audit, sources.available
        audit = min(200 if audit_wanted is None else audit_wanted, rows - 1)
        labels = min(rows, audit + further_labels(resolved.settings, 2 * audit, audit))
        alone = {"audit": audit, "budget": str(labels + (labels == 1))}  # 1 is all
        resolved = resolved.with_defaults(alone, "model_labels")
    per_item, price = labels_per_item(resolved.settings), resolved.settings.price
    budget = parse_budget(resolved.settings.budget, sources.available, price, per_item=per_item)
    if filed:
        resolved = intake.for_file(resolved, sources.pool, budget.labels)
    if resolved.settings.server.batch_api and resolved.settings.mode == "stream":
        raise SettingsError(
            "a stream asks one question at a time: leave --batch-api out, or give --mode pool"
        )
    return intake.with_coverage(resolved, sources.pool.classes), budget


def _places(data: Any, test: Any, settings: Settings) -> tuple[str | None, str | None]:
    """Where the items and the test set come from; None for objects and standard input."""
    if isinstance(data, RunSpec):
        return data.data or None, _path(test) or data.test_source
    built_in = QUESTIONS if settings.adapts else SAMPLE
    source = built_in if data is None else _path(data)
    source = None if source == STDIN else source
    return source, built_in if data is None and test is None else _path(test)


def _read_sources(
    data: Any, answers: Any, test: Any, settings: Settings, names: Sequence[str] | None
) -> Sources:
    """The items of `prepare`'s arguments, those to test on, and those whose labels are held."""
    source, test_path = _places(data, test, settings)
    intake.expect_answers_apart(None if isinstance(data, RunSpec) else data, answers)
    if isinstance(data, RunSpec):
        sources, test_path = data.sources.as_begun(), _path(test)
        if test_path is None:
            return sources
        return replace(sources, test=load_test(test_path, sources.pool, settings))
    classes = given_classes(settings)
    if classes is None and names is not None:
        classes = Classes(tuple(names), ("",) * len(names))
    if source is not None:
        sources = load(source, test_path, settings, classes=classes)
    else:
        how: dict[str, Any] = {"columns": named_columns(settings), "without": settings.column}
        class_names = None if classes is None else classes.names
        pool = (
            of_stdin(settings, classes)
            if isinstance(data, str)
            else as_written(intake.in_memory(data, answers, classes=class_names, **how))
        )
        if settings.adapts and settings.lm.answer_format == "letter":
            from stacksl.lm.prompt.format import letters_of

            for item in pool.items:
                letters_of(item)
        tested = None if test_path is None else load_test(test_path, pool, settings)
        owned = load_owned(settings.owned, pool, settings)
        sources = Sources.of(pool, tested, owned, classes)
    if test is not None and test_path is None:
        pair = isinstance(test, tuple) and len(test) == 2
        tested = as_written(
            intake.in_memory(*(test if pair else (test,)), classes=sources.pool.classes)
        )
        sources = replace(sources, test=tested)
    if sources.test is not None:
        sources = replace(sources, test=answered(intake.like(sources.test, sources.pool.classes)))
    if classes is not None:
        intake.like(sources.pool, tuple(map(str.strip, classes.names)))  # else it is refused
    if classes is not None and sources.test is not None:
        classes.expect_apart(sources.test.items)
    return sources


def run(
    items: Any = None,
    answers: Any = None,
    *,
    budget: str | float | None = None,
    test: Any = None,
    out: str | Path | None = None,
    preset: str | None = None,
    labeler: Labeler | Callable[[Request], Any] | str | None = None,
    classes: Sequence[str] | str | Path | None = None,
    features: Any = None,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Run:
    """Adapt a model to `items` with at most `budget` labels.

    Args:
        items: a path, a data frame of pandas or polars, a `datasets.Dataset`, a list of texts or
            of `Item`, or None for the built-in sample.
        answers: the labels of texts, as names or indices of classes, where a number that is the
            name of a class is that class; or the gold candidates of items or their indices, by id
            or in the order of the items.
            The labeler `oracle` reveals one only when it is bought.
        budget: a fraction below 1 (0.1), a count from 2, `"$40"` with `price=`, or `"all"`.
        test: a path, or (items, answers), to measure the final model on.
        out: the run's folder; `runs/DATE-NAME` if absent.
        preset: a named layer of settings, such as `paper`.
        labeler: a name such as `oracle` or `file`, an object with the labeler protocol, or a
            function of a request that returns a candidate, its index, None for none of these, or
            `stacksl.ABSTAIN`; or a pair of such an answer and its price, if it costs less than
            `price`.
        classes: the names of the classes in their order, or a file of them, for texts.
        features: `hashing` or `sentences:NAME_OR_DIR`, or an array with a row for each item.
        progress: called with the progress of the run.
        settings: any field of `stacksl.Settings`; a group is a mapping, as in
            `lm={"lora_rank": 8}`, and a plain value is the first setting of a group, as in
            `gate="llf"`. The `annotators` may be a list of names.

    Raises:
        StackslError: one sentence on what is wrong.
    """
    from stacksl.features.given import GIVEN

    answerer, name = (None, labeler) if isinstance(labeler, str) else (labeler, None)
    rows = features if hasattr(features, "__array__") or isinstance(features, list) else None
    features = features if rows is None else GIVEN
    intake.expect_order(items, rows, "features")
    listed = None if isinstance(classes, str | Path) else classes
    flags = {"budget": budget, "labeler": name, "features": features, "classes": _path(classes)}
    flags = {name: _plain(name, value) for name, value in (flags | settings).items()}
    resolved = resolve(flags, preset=preset)
    plan = prepare(
        items, answers, test=test, out=out, settings=resolved, labeler=as_labeler(answerer),
        classes=listed, rows=rows,
    )  # fmt: skip
    for sentence in plan.warnings:  # before labels are paid
        warn_user(sentence)
    new_run = plan.start(progress)
    return replace(new_run, frame=items) if hasattr(items, "assign") else new_run


INHERITED = ("price", "annotators", "open_questions", "sheets.format", "features", "class_names",
             "plugins")  # fmt: skip
"""Settings of a run that an audit of new rows has too."""


def plan_audit(
    run: Run, dataset: Dataset, wanted: Mapping[str, Any], out: Path, progress: Any = None,
    file: str | Path = "",
) -> Plan:  # fmt: skip
    """The plan of a run in which people audit the labels that the model of `run` gives new rows.

    Its other settings are those of `run`, but for those `wanted`. Rows of `run` are left out. The
    exported table has the columns of the `file` that the data set was read from, if it is named.

    Raises:
        SettingsError, DataError: such a run cannot be, or no row is new.
    """
    spec = RunSpec.open(run.folder)
    if (classes := spec.sources.classes) is None:
        raise SettingsError(
            f"--audit needs fixed classes, and each item of {run.path} has its own options: give"
            " `evaluate` a file with answers"
        )
    new_items = not_of(spec.dataset.items, dataset)
    if not new_items:
        raise DataError(f"all rows of {dataset.name} are the run's own: name a file of new rows")
    rows = sorted({*range(1, dataset.total + 1)} - {row.row for row in dataset.rejected})
    fresh, placed = {*new_items}, zip(rows, dataset.items, strict=True)
    why = "already in the evaluated run"
    rejected = [Rejected(row, item.id, why) for row, item in placed if item not in fresh]
    pool = replace(
        dataset,
        items=tuple(with_classes(new_items, classes.names)),
        answers={},
        unknown={},
        rejected=(*dataset.rejected, *rejected),
    )
    predicted = [int(np.argmax(policy)) for policy in run.model.policies(pool.items, progress)]
    config = spec.folder.config()
    people = {"labeler": "file", "mode": "pool", "model_labels": PREDICTED, **wanted}
    inherited = {name: config[name] for name in INHERITED if name in config}
    if spec.settings.labeler == "file" and not spec.terms.further:
        inherited["second_look"] = False  # so that both audits count people's errors as the model's
    with run.ledger as ledger:  # rows of people who left would wait for them
        if here := [name for name in spec.settings.people if name not in ledger.absent]:
            inherited["annotators"] = ",".join(here)
    worksheet, header, guessed = dataset.layout
    inherited |= {"read.worksheet": worksheet, "read.header": header}
    resolved = resolve(people, inherited)
    sources = replace(Sources.of(pool, classes=classes), model_labels=tuple(predicted))
    data = os.path.abspath(file) if file and (header is not None or not guessed) else ""
    template = replace(spec, resolved=resolved, sources=sources, data=data, test_source=None)
    plan, earlier = prepare(template, out=out, settings=resolved), random_audit(run.folder)
    comparison = (
        f"{run.path} has no audit of random rows, and the looks of a promise do not count as one:"
        " nothing will say whether its accuracy fell"
    )
    if earlier is not None:
        _, audit, settle = earlier
        size = plan.spec.budget.audits[0]
        comparison = f"{power(audit.counted(), size)}, from the accuracy of {run.path}"
        if audit.second and audit.second.askable:
            comparison += f"; {settle(audit.second.askable)}"
    way = os.path.relpath(run.path, out)
    audit_spec = replace(plan.spec, evaluates=way, stamps=stamps_of([data]))
    return replace(plan, spec=audit_spec, comparison=comparison)


# What settings and items must be to each other ----------------------------------------------------

READING = (
    "owned", "classes", "read.format", "read.worksheet", "read.header",
    "columns.prompt", "columns.label", "columns.id", "read.max_candidates",
)  # fmt: skip
"""Settings that say which files are read, and how."""


def _expect_source(resolved: Resolved, data: Any) -> None:
    """Refuse flags that say how files are read where the items of a run are taken.

    Raises:
        SettingsError: there are such flags.
    """
    if not isinstance(data, RunSpec):
        return
    current, original = resolved.settings.flat(), data.settings.flat()
    for name in READING:
        if resolved.origin.get(name) == "flag" and current[name] != original[name]:
            raise SettingsError(
                f"the items of the run {data.folder.path} are taken as they were read, without"
                f" another {name}: leave that out, or name the file to read it again"
            )


def _expect_rows(settings: Settings, array: Any, sources: Sources) -> None:
    """Refuse an array of features that does not fit the settings or the items.

    Raises:
        SettingsError, FeatureError: it is missing, not wanted, of other items, or a test set has
            no features.
    """
    from stacksl.features.given import GIVEN, checked_rows

    if (array is None) == (settings.features == GIVEN):
        raise SettingsError("features 'given' are for Python: stacksl.run(..., features=X)")
    if array is None:
        return
    if not checked_rows(len(sources.pool.items), array).any():
        raise FeatureError("features should tell items apart, got zeros alone: give other features")
    if sources.test is not None:
        raise SettingsError(
            "a test set has no features of its own here: leave test= out, and give them to"
            " Run.evaluate(items, answers, features=X)"
        )


def _expect_playable(settings: Settings, sources: Sources, labeler: Labeler | None) -> None:
    """Refuse what a pool cannot play, and what only a pool can.

    Raises:
        SettingsError: a gate without a ranking, or `kl_on_skips` in a pool.
        DataError, LabelerError: the labeler cannot answer these items.
    """
    from stacksl.runs.session.setup import check_labeler

    if labeler is None:
        check_labeler(settings, sources)
    if settings.mode == "pool":
        if settings.gate.name != COVERAGE:
            require_ranking(GATES[settings.gate.name]())
        if settings.update.kl_on_skips:
            raise SettingsError(
                "kl_on_skips learns from the rounds that a stream skips, and a pool has none: leave"
                " it out, or give --mode stream"
            )
    elif settings.adapts and settings.lm.normalization == "auto" and settings.owned is None:
        raise SettingsError(
            "the normalization 'auto' is chosen by the first labels of a pool or by labels that you"
            " have, got a stream: give --mode pool, --owned FILE, or a normalization"
        )


def _with_measuring(settings: Settings, sources: Sources, budget: Budget) -> Budget:
    """The budget with the labels of the audit, and those kept for second looks.

    Raises:
        SettingsError: an audit is asked for under a rule that draws its own, two people answer
            more than the budget has, or the stop rule cannot be kept.
    """
    from stacksl.runs.finish.forecasting import expect_stop_rule

    audit_wanted = settings.audit
    if settings.promised_share is not None:
        if audit_wanted:
            raise SettingsError(
                "stop_when with right=R draws audits of its own, got an audit of"
                f" {audit_wanted}: leave --audit out"
            )
        audit_wanted = 0
    judges = settings.column is not None  # then nothing has to train
    audit = audit_size(
        budget.labels,
        asked_for=audit_wanted,
        tested=sources.test is not None,
        items=sources.available - judges,
        at_least=int(not judges),
    )
    further = further_labels(settings, budget.labels, audit)
    budget = replace(budget, audits=(audit,), further=further)
    largest = budget.train // 2
    if settings.sheets.overlap > largest:
        raise SettingsError(
            f"sheets.overlap is how many rows two annotators answer, got {settings.sheets.overlap}"
            f" where {budget.train} labels train: give at most --overlap {largest}, or a larger"
            " budget"
        )
    expect_stop_rule(settings, sources, audit, further)
    return budget


def _model_labels(
    settings: Settings, sources: Sources, column: Dataset | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The class that a model gave each item, -1 for none, and warnings; empty without such labels.

    Raises:
        SettingsError: the run is of another kind.
        DataError: they cannot be read, or there are none of the items.
    """
    dataset = sources.pool
    if settings.model_labels is None:
        return (), ()
    from stacksl.features import make_features
    from stacksl.features.given import GIVEN
    from stacksl.runs.session.model_labels import load_model_labels

    in_pool = dataset.classes is not None and settings.mode == "pool" and not settings.adapts
    uses_names = settings.class_names and settings.refit and settings.features != GIVEN
    if settings.column is not None and in_pool and settings.refit:
        if column is None:  # of a run whose items are taken
            return sources.model_labels, ()
        if dataset.answers and dataset.answers == column.answers:
            raise DataError(
                f"the column '{settings.column}' is the same as the answers in every row: name the"
                " labels to be judged with --model-labels, or the answers with --label-column"
            )
        blank = f"rows without a label in '{settings.column}': {column.unlabeled:,}"
        labels = tuple(column.answers.get(item.id, -1) for item in dataset.items)
        return labels, (blank,) if column.unlabeled else ()
    if settings.column is not None or not (
        in_pool
        and uses_names
        and make_features(settings.features, classes=dataset.classes).reads_text
    ):
        raise SettingsError(
            "model_labels needs a pool of texts with fixed classes, whose final model is fitted on"
            " labels and class names: give --mode pool and leave out --model, --no-class-names and"
            " features of your own, or leave out --model-labels"
        )
    return load_model_labels(settings.model_labels, dataset, settings, sources.dataset.items)


# Arguments ----------------------------------------------------------------------------------------


def _plain(name: str, value: Any) -> Any:
    """A value of Python, of one of NumPy."""
    if not hasattr(value, "__array__"):
        return value
    expect(getattr(value, "shape", None) == (), f"{name} should be one value", value)
    return value.item()


def _path(data: Any) -> str | None:
    return str(expect_path(data, "a file")) if isinstance(data, str | Path) else None


def _absolute(source: str | None) -> str | None:
    if source is None or source in (SAMPLE, QUESTIONS):
        return source
    return str(Path(source).resolve())


def _default_folder(name: str, *, claim: bool = False) -> Path:
    return free_folder(Path("runs"), date.today().isoformat(), name, claim=claim)
