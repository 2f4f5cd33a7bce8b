"""Changes of a run that has begun: budget, items, owned labels, classes, annotators.

A change is checked as a whole and then written in one transaction. Its effect on the learner
follows from the ledger's rows when the run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stacksl.core.rng import generator
from stacksl.data import overlap
from stacksl.data.files import absolute_path
from stacksl.data.values import normal
from stacksl.errors import RunError, SettingsError
from stacksl.labelers.sheets.cells import expect_unlike_answers
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Handed
from stacksl.ledger.store.settings import CLASSES, Setting
from stacksl.models.promise import step_of
from stacksl.report.wording import plural
from stacksl.runs.changes.added_classes import added_classes, answered_none, answers_that_name
from stacksl.runs.finish.forecasting import expect_stop_rule, rarely_shown
from stacksl.runs.finish.promise_sentences import before_a_look, looks_left
from stacksl.runs.finish.promising import last_drawn, open_look
from stacksl.runs.items.reading import load_owned, read_like
from stacksl.runs.items.roles import (
    audit_rows,
    corpus_of,
    current_order,
    expect_items,
    new_owned,
    next_terms,
)
from stacksl.runs.items.sources import Kind
from stacksl.runs.items.stored import records_of, rejected_of, stamps_of
from stacksl.runs.session.assignment import FILE, SheetLabeler
from stacksl.runs.session.language import expect_room
from stacksl.runs.session.session import bring_arrays
from stacksl.runs.session.setup import check_labeler
from stacksl.runs.settings.budget import raised_budget
from stacksl.runs.settings.conflicts import LOCAL, OPENAI, conflicts, unknown_names
from stacksl.runs.settings.resolve import unknown_setting, validated
from stacksl.runs.settings.terms import (
    fresh_audit,
    left_to_train,
    most_paid,
    new_terms,
    what_measures,
)
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import SECRET, RunFolder, class_setting
from stacksl.runs.storage.status import SHORT, expect_begun, reopen

WITH_FLAG = ("budget", "labeler", "stop_when")  # what other flags of `change` change
TRAINING = {
    "lm.batch_size", "lm.batch_tokens", "lm.epochs", "lm.gradient_checkpointing",
    "lm.warmup_share", "lm.weight_decay", "update.learning_rate",
}  # fmt: skip
"""How the refits of a language model are made."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a run; its parts may be combined, and are the arguments of `Run.change`.

    A class has the description "" where nothing is said of it; `training` are settings by dotted
    name.
    """

    budget: str | None = None
    items: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    reopen: bool = False
    annotators: tuple[str, ...] = ()
    labeler: str | None = None
    stop_when: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of a change.

    Attributes:
        labels: the budget in labels, `more` of them than before.
        cost: the most that the run may cost more, in micro-units; None where it has no price.
        audit: labels reserved for a new audit.
        measures: a sentence on the audit under the new budget; None without an audit.
        short: a warning of a budget that may end before a look at the table, else empty; it is
            part of `measures`.
        items, owned: how many items to choose from and how many owned items were added.
        mapped: answers whose right text names a class that is added: its labels, and free.
        again: the other items that were answered with none of the classes, also those of the audit.
            With `reopen` one more label of each is bought, at `cost_again` in words.
        left: labels that can be bought to train on under the new budget.
        outdated: who has an open sheet without the added classes, and its path.
        dropped: open questions that are withdrawn for good.
        warnings: on added files, such as how many rows cannot be used, and on the new stop rule.
    """

    labels: int
    more: int
    cost: int | None
    audit: int
    measures: str | None
    short: str
    items: int
    owned: int
    classes: int | None
    mapped: int
    again: tuple[str, ...]
    cost_again: str
    left: int
    annotators: tuple[str, ...]
    outdated: tuple[tuple[str, str], ...]
    dropped: int
    warnings: tuple[str, ...]


def change_run(
    folder: RunFolder, change: Change, agreed: Outcome | None = None, *, dry_run: bool = False
) -> Outcome:
    """Record a change of a run; it takes effect when the run is resumed.

    With `dry_run` nothing is written.

    Raises:
        LabelerError: the answers are the file's own, and it has none for some items.
        RunError: the run has taken answers since the user `agreed` to its effect.
        StackslError: else see `Run.change`.
    """
    with folder.locked(), Ledger.open(folder.database) as ledger:
        expect_begun(folder, ledger)
        spec = RunSpec.open(folder)
        if change.budget is not None:
            terms = spec.terms.labels, spec.terms.money
            change = replace(change, budget=raised_budget(change.budget, *terms))
        target, outcome = _planned(spec, ledger, change)
        if dry_run:
            return outcome
        if change.reopen and agreed is not None and not set(outcome.again) <= set(agreed.again):
            raise RunError(
                "answers were taken since the price was shown:"
                f" {plural(len(outcome.again), 'item')} would be asked about again instead of"
                f" {len(agreed.again)}; repeat the command"
            )
        bring_arrays(spec, ledger)  # what follows them is decided by the items of then
        with ledger.together():
            dropped = ledger.open_purchases()[: outcome.dropped]
            ledger.free(dropped, dropped)
            _set(spec, target, change, ledger)
            part_count = len(spec.sources.parts)
            if len(target.terms.audits) > len(spec.terms.audits):  # that one is looked at instead
                looks = ledger.second_looks()
                ledger.free(looks, looks)
            _record(target, ledger, outcome.again if change.reopen else (), first=part_count)
            if change.labeler is not None:  # a program is not asked an item twice
                leases, audited = ledger.open_purchases(), ledger.audited_by_all()
                further = (lease for lease in leases if lease.slot)
                repeats = {x for x in further if x.purpose == "train" or x.item in audited}
                ledger.free(leases, () if change.labeler == FILE else repeats)
            short = {SHORT: outcome.short}
            reopen(folder, ledger, other_labeler=change.labeler is not None, **short)
    return outcome


def _planned(spec: RunSpec, ledger: Ledger, change: Change) -> tuple[RunSpec, Outcome]:
    if change == Change():
        raise SettingsError(
            "expected something to change, got nothing: give --budget, --items, --owned,"
            " --add-class, --reopen, --add-annotator, --labeler, --stop-when or --set, or an option"
            " of who answers, such as --away"
        )
    target = _with_classes(_with_settings(spec, change), change.classes)
    if change.reopen:
        _expect_classes(spec)
    for path in change.items:
        target = _with_file(target, "pool", absolute_path(Path(path)))
    pool = len(target.dataset.items) - len(spec.dataset.items)
    for path in change.owned:
        target = _with_file(target, "owned", absolute_path(Path(path)))
    if change.budget is not None:
        target = replace(target, terms=new_terms(target, ledger, change.budget, drop=change.drop))
        expect_items(target, ledger)
    promised = target.settings.promised_share is not None
    looks = target.settings.accuracy_mark is not None
    if change.stop_when is not None or looks or (promised and change.owned):
        terms = target.terms
        expect_stop_rule(target.settings, target.sources, terms.newest_audit, terms.further)
    if promised and last_drawn(ledger) is not None and open_look(ledger) is None:
        # a look that was judged keeps no labels for further answers
        target = replace(target, terms=replace(target.terms, further=ledger.accounts.further))
    outcome = _outcome(spec, target, ledger, change, pool)
    if change.reopen and not outcome.again and outcome.mapped == 0:
        raise RunError(
            f"the run {spec.folder.path} has no item to ask about again: items answered with none"
            " of the classes are offered again after a class was added, each once for every class"
        )
    if change.reopen and len(outcome.again) > outcome.left:
        reserved = max(0, target.terms.further - ledger.accounts.further)
        raise SettingsError(
            f"{plural(len(outcome.again), 'more label')} would be bought to ask again, but the"
            f" budget has {plural(max(0, outcome.left), 'label')} left to train on"
            + (f" and {reserved:,} for further answers to audited items" if reserved else "")
            + ": raise it as well with --budget, or leave --reopen out"
        )
    return target, outcome


def _outcome(spec: RunSpec, target: RunSpec, ledger: Ledger, change: Change, pool: int) -> Outcome:
    old_terms, terms = spec.terms, target.terms
    measures = None if change.budget is None else what_measures(terms, old_terms)
    no_look_yet = last_drawn(ledger) is None
    if spec.settings.promised_share is not None:  # else it has an estimate of its own
        no_look_yet &= ledger.accounts.asked < 3 * step_of(spec.sources.available)
    short = before_a_look(target, terms.labels, ledger.accounts) if no_look_yet else ""
    if target.settings.promised_share is not None:
        look_text = looks_left(target, ledger, class_added=bool(change.classes))
        measures = f"{short}. {look_text}" if short else look_text
    hits = answers_that_name(ledger, added_classes(target))
    named_items, class_count = {answer.item for _, answer in hits}, len(spec.dataset.classes or ())
    unnamed = answered_none(target, ledger, adding=bool(change.classes))
    again_items = tuple(item for item in unnamed if item not in named_items)
    paid = None if old_terms.money is None else most_paid(target, ledger) - most_paid(spec, ledger)
    warnings = [
        f"{data.name}: {sentence}"
        for _, data, _ in target.sources.parts[len(spec.sources.parts) :]
        for sentence in data.warnings
    ]
    if change.stop_when and (rare := rarely_shown(target.settings, terms.newest_audit)):
        warnings.append(rare)
    sheets: dict[Path, list[Handed]] = {}
    if change.classes and spec.settings.labeler == FILE:
        labeler = SheetLabeler(spec, ledger)
        sheets = labeler.sheets(labeler.waiting())
    return Outcome(
        labels=terms.labels,
        more=max(0, terms.labels - old_terms.labels),
        cost=None if paid is None else max(0, paid),
        audit=0 if change.budget is None else fresh_audit(terms),
        measures=measures,
        short=short,
        items=pool,
        owned=len(target.dataset.items) - len(spec.dataset.items) - pool,
        classes=None if target.dataset.classes is None else len(target.dataset.classes),
        mapped=sum((answer.index or 0) >= class_count for _, answer in hits),
        again=again_items,
        cost_again=spec.budget.cost_of(len(again_items)),
        left=left_to_train(target, ledger),
        annotators=tuple(target.settings.people),
        outdated=tuple((rows[0].annotator, str(path)) for path, rows in sheets.items()),
        dropped=len(ledger.open_purchases()) if change.drop else 0,
        warnings=tuple(warnings),
    )


# Files ----------------------------------------------------------------------------------------


def _with_file(spec: RunSpec, kind: Kind, path: str) -> RunSpec:
    if path in spec.files:
        raise RunError(
            f"the run {spec.folder.path} has the file {Path(path).name} already, and reads a"
            " file once: give new items a file of their own"
        )
    sources, settings = spec.sources, spec.settings
    if kind == "pool":
        dataset = read_like(path, sources.pool, settings, "file of more items")
        if shared := overlap(sources.dataset.items, dataset.items):
            rows = f"{shared:,} of {plural(len(dataset.items), 'row')}"
            warning = f"{rows} with the text of an item of the run (each stays its own item)"
            dataset = replace(dataset, warnings=(*dataset.warnings, warning))
        sources = sources.with_items(dataset, path)
        if settings.labeler != FILE and "labeler" not in spec.folder.read_state():
            check_labeler(settings, sources)
    elif (owned := load_owned(path, sources.pool, settings)) is not None:
        sources = sources.with_owned(owned, path)
    return replace(spec, sources=sources)


# Classes --------------------------------------------------------------------------------------


def _with_classes(spec: RunSpec, added: Mapping[str, str]) -> RunSpec:
    if not added:
        return spec
    _expect_classes(spec)
    names = list(spec.dataset.classes or ())
    for name in added:
        if not (normal_name := normal(name)) or "\0" in name:
            raise SettingsError(
                "a class needs a name of one character or more: give --add-class NAME"
            )
        normal_names = [normal(present) for present in names]
        if normal_name in normal_names:
            raise SettingsError(
                f"the run already has the class, as number {normal_names.index(normal_name) + 1} of"
                f" {len(normal_names)} (but for case and spaces): choose another name"
            )
        names.append(_tidy(name))
        expect_unlike_answers(len(names) - 1, tuple(names))
    tidy_classes = {_tidy(name): _tidy(description) for name, description in added.items()}
    return replace(spec, sources=spec.sources.with_added_classes(tidy_classes))


def _expect_classes(spec: RunSpec) -> None:
    if spec.settings.adapts:
        raise RunError(
            "a language model's features are of the options it began with, so no class can be"
            " added to its run: start a new run with --classes, and give this one's labels to"
            " --owned"
        )
    if spec.dataset.classes is None:
        raise RunError(
            f"the items of the run {spec.folder.path} have their own options, and a class is added"
            " to a fixed list of classes: correct the options in the data, and start a new run"
        )


def _tidy(text: str) -> str:
    return " ".join(text.split())


# Settings -------------------------------------------------------------------------------------


def _settings_of(spec: RunSpec, change: Change) -> dict[str, Any]:
    """The settings that a change has, by dotted name."""
    names = ",".join([spec.settings.annotators, *change.annotators])
    values = {
        "annotators": names if change.annotators else None,
        "labeler": change.labeler,
        "stop_when": change.stop_when,
    }
    return {**change.training, **{k: value for k, value in values.items() if value is not None}}


def _with_settings(spec: RunSpec, change: Change) -> RunSpec:
    """The spec with the settings of a change, which are checked together with the rest.

    Raises:
        StackslError: they are wrong, or the labeler cannot answer the run's items.
    """
    if not (values := _settings_of(spec, change)):
        return spec
    if change.training:
        _expect_training(spec, change)
    if known := [name for name in change.annotators if name in spec.settings.people]:
        raise SettingsError(
            f"{known[0]} is an annotator of this run already: `stacksl change {spec.folder.path}"
            f" --back {known[0]}` gives rows again to somebody who was away"
        )
    mistakes, flat = list[str](), {**spec.settings.flat(), **values}
    settings = validated({k: v for k, v in flat.items() if v is not None}, mistakes)
    if mistakes := mistakes or [*unknown_names(settings), *conflicts(settings, set(values))]:
        raise SettingsError("; ".join(mistakes))
    if change.labeler is not None:
        if spec.budget.audits[0] and settings.labeler_kind in (OPENAI, LOCAL):
            raise SettingsError(
                f"an audit is answered by people, and {change.labeler} is a model: give another"
                " labeler"
            )
        check_labeler(settings, spec.sources)
    if change.training and settings.adapts:
        expect_room(settings, spec.dataset.items)
    origin = {**spec.resolved.origin, **dict.fromkeys(values, "flag")}
    return replace(spec, resolved=replace(spec.resolved, settings=settings, origin=origin))


def _expect_training(spec: RunSpec, change: Change) -> None:
    """Check that no label that was bought depends on the settings to change."""
    settings = spec.settings.flat()
    if unknown := sorted(change.training.keys() - settings.keys()):
        raise SettingsError(unknown_setting(unknown[0]))
    changeable = TRAINING if spec.settings.adapts else set()
    if spec.settings.mode == "pool":  # a stream's gate reads it
        changeable = {"open_questions", *changeable}
    if fixed_names := sorted(change.training.keys() - changeable):
        flags = [f"--{n.replace('_', '-')}" for n in fixed_names if n in WITH_FLAG]
        remedy = f"give {', '.join(flags)} in place of --set" if flags else "start a new run"
        raise SettingsError(
            f"a run that has begun keeps its {', '.join(fixed_names)}; what --set can change is"
            f" {', '.join(sorted(changeable)) or 'none of its settings'}: {remedy}"
        )
    if change.budget is None and spec.folder.read_state()["state"] == "finished":
        raise RunError(
            f"the run {spec.folder.path} has finished, and asks nothing more: give --budget as well"
        )


# On disk --------------------------------------------------------------------------------------


def _set(spec: RunSpec, target: RunSpec, change: Change, ledger: Ledger) -> None:
    values: dict[str, Any] = {}
    new_parts = target.sources.parts[len(spec.sources.parts) :]
    if new_parts:
        values["more"] = [(part.kind, part.path) for part in target.sources.added]
        stamps = stamps_of(part.path for part in new_parts)
        values["files"] = {**spec.folder.resolved().get("files", {}), **stamps}
    if change.classes:
        values["classes_began"] = len(target.sources.began or ())
    if target.terms != spec.terms:
        values["budget_now"] = target.terms.as_setting
    if change.annotators and "," not in spec.settings.annotators:
        values["sheets_alone"] = max((row.sheet for row in ledger.private.handed()), default=0)
    flat, names = target.settings.flat(), _settings_of(spec, change)
    chosen_values = {name: flat[name] for name in names}
    if change.budget is not None:
        chosen_values["budget"] = change.budget
    changes = {name: Setting(value) for name, value in values.items()}
    changes |= {name: Setting(value, "flag") for name, value in chosen_values.items()}
    report: dict[str, Any] = {}
    if change.training:
        report["set"] = [f"{name}={flat[name]}" for name in change.training]
    if change.stop_when is not None:
        report["stop_when"] = change.stop_when
    if change.classes and (classes := target.sources.classes) is not None:
        changes[CLASSES] = class_setting(classes)
    if change.annotators:
        report["joined"] = ledger.codes_of(change.annotators)
    for kind, data, _ in new_parts:
        report[kind] = report.get(kind, 0) + len(data.items)
    if change.labeler is not None:
        report["labeler"] = change.labeler
    if changes:
        ledger.change_settings(changes, report)


def _record(spec: RunSpec, ledger: Ledger, again_items: Sequence[str], *, first: int) -> None:
    """Record the change in the ledger, in the open transaction.

    Items of the parts from number `first` on are new. One more label is bought of each of the
    `again_items`.
    """
    if first < len(spec.sources.parts):
        ledger.add_items(records_of(spec.sources, first), rejected_of(spec.sources, first))
    corpus = corpus_of(spec)
    order = current_order(spec, ledger, corpus)
    hits = answers_that_name(ledger, added_classes(spec))
    class_count = ledger.accounts.classes or len(spec.sources.began or ())
    classes = () if spec.sources.began is None else spec.dataset.classes or ()
    for size in range(class_count + 1, len(classes) + 1):
        ledger.add_class(classes[size - 1], size)
    for answer in (answer for purpose, answer in hits if purpose != "audit"):
        ledger.correct(answer.item, answer.index, answer.labeler, slot=answer.slot, named=True)
    if owned := new_owned(spec, ledger, audit_rows(corpus, ledger)):
        ledger.own(owned, "owned")
    next_terms(spec, ledger, order, first=len(corpus.began))
    if again_items:  # in a random order: audited rows come back among the others
        secret = int(spec.folder.resolved()[SECRET], 16)
        permutation = generator(secret, "again", ledger.head.count).permutation(len(again_items))
        ledger.reserve([again_items[n] for n in permutation], "again")
