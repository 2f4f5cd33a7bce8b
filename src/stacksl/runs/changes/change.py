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
from stacksl.data.values import normal, one_line
from stacksl.errors import RunError, SettingsError
from stacksl.labelers.sheets.cells import expect_unlike_answers
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Handed
from stacksl.ledger.store.settings import CLASSES, Setting
from stacksl.models.promise import step_of
from stacksl.report.wording import plural
from stacksl.runs.changes.added_classes import added_classes, answered_none, answers_that_name
from stacksl.runs.finish.forecasting import expect_stop_rule
from stacksl.runs.finish.promise_sentences import before_a_look, looks_left
from stacksl.runs.finish.promising import expected_labels, last_drawn, open_look
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
from stacksl.runs.storage.status import EXPECTED, SHORT, expect_begun, reopen

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
        warnings: on the files that were added, such as how many rows cannot be used.
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
        wanted, outcome = _planned(spec, ledger, change)
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
            ledger.free(dropped := ledger.open_purchases()[: outcome.dropped], dropped)
            _set(spec, wanted, change, ledger)
            first = len(spec.sources.parts)
            if len(wanted.terms.audits) > len(spec.terms.audits):  # that one is looked at instead
                ledger.free(looks := ledger.second_looks(), looks)
            _record(wanted, ledger, outcome.again if change.reopen else (), first=first)
            if change.labeler is not None:  # a program is not asked an item twice
                leases, seen = ledger.open_purchases(), ledger.audited_by_all()
                second = {x for x in leases if x.slot and (x.purpose == "train" or x.item in seen)}
                ledger.free(leases, () if change.labeler == FILE else second)
            # a run that has ended named a budget by what it learned
            ended = folder.read_state()["state"] == "finished"
            promise = {SHORT: outcome.short, EXPECTED: [] if ended else expected_labels(wanted)}
            reopen(folder, ledger, other_labeler=change.labeler is not None, **promise)
    return outcome


def _planned(spec: RunSpec, ledger: Ledger, change: Change) -> tuple[RunSpec, Outcome]:
    if change == Change():
        raise SettingsError(
            "expected something to change, got nothing: give --budget, --items, --owned,"
            " --add-class, --reopen, --add-annotator, --labeler, --stop-when or --set, or an option"
            " of who answers, such as --away"
        )
    wanted = _with_classes(_with_settings(spec, change), change.classes)
    if change.reopen:
        _expect_classes(spec)
    for path in change.items:
        wanted = _with_file(wanted, "pool", str(Path(path).resolve()))
    pool = len(wanted.dataset.items) - len(spec.dataset.items)
    for path in change.owned:
        wanted = _with_file(wanted, "owned", str(Path(path).resolve()))
    if change.budget is not None:
        wanted = replace(wanted, terms=new_terms(wanted, ledger, change.budget, drop=change.drop))
        expect_items(wanted, ledger)
    promised = wanted.settings.promised_share is not None
    looks = wanted.settings.accuracy_mark is not None
    if change.stop_when is not None or looks or (promised and change.owned):
        terms = wanted.terms
        audit = next((size for size in reversed(terms.audits) if size), 0)
        expect_stop_rule(wanted.settings, wanted.sources, audit, terms.further)
    if promised and last_drawn(ledger) is not None and open_look(ledger) is None:
        # a look that was judged keeps no labels for further answers
        wanted = replace(wanted, terms=replace(wanted.terms, further=ledger.accounts.further))
    outcome = _outcome(spec, wanted, ledger, change, pool)
    if change.reopen and not outcome.again and outcome.mapped == 0:
        raise RunError(
            f"the run {spec.folder.path} has no item to ask about again: items answered with none"
            " of the classes are offered again after a class was added, each once for every class"
        )
    if change.reopen and len(outcome.again) > outcome.left:
        reserved = max(0, wanted.terms.further - ledger.accounts.further)
        raise SettingsError(
            f"{plural(len(outcome.again), 'more label')} would be bought to ask again, but the"
            f" budget has {plural(max(0, outcome.left), 'label')} left to train on"
            + f" and {reserved:,} for further answers to audited items" * bool(reserved)
            + ": raise it as well with --budget, or leave --reopen out"
        )
    return wanted, outcome


def _outcome(spec: RunSpec, wanted: RunSpec, ledger: Ledger, change: Change, pool: int) -> Outcome:
    before, terms = spec.terms, wanted.terms
    measures = None if change.budget is None else what_measures(terms, before)
    none_yet = last_drawn(ledger) is None
    if spec.settings.promised_share is not None:  # else it has an estimate of its own
        none_yet &= ledger.accounts.asked < 3 * step_of(spec.sources.available)
    short = before_a_look(wanted, terms.labels, ledger.accounts) if none_yet else ""
    if wanted.settings.promised_share is not None:
        left = looks_left(wanted, ledger)
        measures = f"{short}. {left}" if short else left
    hits = answers_that_name(ledger, added_classes(wanted))
    named, known = {answer.item for _, answer in hits}, len(spec.dataset.classes or ())
    unnamed = answered_none(wanted, ledger, adding=bool(change.classes))
    again = tuple(item for item in unnamed if item not in named)
    more = max(0, terms.labels - before.labels)
    paid = None if before.money is None else most_paid(wanted, ledger) - most_paid(spec, ledger)
    sheets: dict[Path, list[Handed]] = {}
    if change.classes and spec.settings.labeler == FILE:
        labeler = SheetLabeler(spec, ledger)
        sheets = labeler.sheets(labeler.waiting())
    return Outcome(
        labels=terms.labels,
        more=more,
        cost=None if paid is None else max(0, paid),
        audit=0 if change.budget is None else fresh_audit(terms),
        measures=measures,
        short=short,
        items=pool,
        owned=len(wanted.dataset.items) - len(spec.dataset.items) - pool,
        classes=None if wanted.dataset.classes is None else len(wanted.dataset.classes),
        mapped=sum((answer.index or 0) >= known for _, answer in hits),
        again=again,
        cost_again=spec.budget.cost_of(len(again)),
        left=left_to_train(wanted, ledger),
        annotators=tuple(wanted.settings.people),
        outdated=tuple((rows[0].annotator, str(path)) for path, rows in sheets.items()),
        dropped=len(ledger.open_purchases()) * change.drop,
        warnings=tuple(
            f"{data.name}: {sentence}"
            for _, data, _ in wanted.sources.parts[len(spec.sources.parts) :]
            for sentence in data.warnings
        ),
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
        more = read_like(path, sources.pool, settings, "file of more items")
        if shared := overlap(sources.dataset.items, more.items):
            rows = f"{shared:,} of {plural(len(more.items), 'row')}"
            known = f"{rows} have the text of an item of the run (each stays its own item)"
            more = replace(more, warnings=(*more.warnings, known))
        sources = sources.with_items(more, path)
    elif (owned := load_owned(path, sources.pool, settings)) is not None:
        sources = sources.with_owned(owned, path)
    by_settings = settings.labeler != FILE and "labeler" not in spec.folder.read_state()
    if kind == "pool" and by_settings:
        check_labeler(settings, sources)
    return replace(spec, sources=sources)


# Classes --------------------------------------------------------------------------------------


def _with_classes(spec: RunSpec, added: Mapping[str, str]) -> RunSpec:
    if not added:
        return spec
    _expect_classes(spec)
    names = list(spec.dataset.classes or ())
    if any("\t" in name or name != one_line(name).strip() for name in names):
        raise RunError(
            "a class of this run has tabs or line breaks in its name, which a list of classes"
            " cannot hold: write each name on one line in the data, and start a new run"
        )
    for name in added:
        if not (plain := normal(name)) or "\0" in name:
            raise SettingsError(
                "a class needs a name of one character or more: give --add-class NAME"
            )
        known = [normal(present) for present in names]
        if plain in known:
            raise SettingsError(
                f"the run already has the class, as number {known.index(plain) + 1} of"
                f" {len(known)} (but for case and spaces): choose another name"
            )
        names.append(_tidy(name))
        expect_unlike_answers(len(names) - 1, tuple(names))
    tidy = {_tidy(name): _tidy(description) for name, description in added.items()}
    return replace(spec, sources=spec.sources.with_added_classes(tidy))


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
    given = {
        "annotators": names if change.annotators else None,
        "labeler": change.labeler,
        "stop_when": change.stop_when,
    }
    return {**change.training, **{k: value for k, value in given.items() if value is not None}}


def _with_settings(spec: RunSpec, change: Change) -> RunSpec:
    """The spec with the settings of a change, which are checked together with the rest.

    Raises:
        StackslError: they are wrong, or the labeler cannot answer the run's items.
    """
    if not (values := _settings_of(spec, change)):
        return spec
    if change.training:
        _expect_training(spec, change)
    labeler = spec.settings.labeler if change.labeler is None else change.labeler
    if change.annotators and labeler != FILE:
        raise RunError(
            f"the labels of the run {spec.folder.path} come from '{labeler}', not from people:"
            " annotators are added to runs with --labeler file"
        )
    mistakes, flat = list[str](), {**spec.settings.flat(), **values}
    settings = validated({k: v for k, v in flat.items() if v is not None}, mistakes)
    if mistakes := mistakes or [*unknown_names(settings), *conflicts(settings, set(values))]:
        raise SettingsError("; ".join(mistakes))
    if change.labeler is not None:
        if spec.budget.audits[0] and settings.labeler_kind in (OPENAI, LOCAL):
            raise SettingsError(
                f"an audit is answered by people, and {labeler} is a model: give another labeler"
            )
        check_labeler(settings, spec.sources)
    if change.training and settings.adapts:
        expect_room(settings, spec.dataset.items)
    origin = {**spec.resolved.origin, **dict.fromkeys(values, "flag")}
    return replace(spec, resolved=replace(spec.resolved, settings=settings, origin=origin))


def _expect_training(spec: RunSpec, change: Change) -> None:
    """Check that no label that was bought depends on the settings to change."""
    known = spec.settings.flat()
    if unknown := sorted(change.training.keys() - known.keys()):
        raise SettingsError(unknown_setting(unknown[0]))
    can = {"open_questions"} if spec.settings.mode == "pool" else set()  # a stream's gate reads it
    can |= TRAINING if spec.settings.adapts else set()
    if fixed := sorted(change.training.keys() - can):
        raise SettingsError(
            f"a run that has begun keeps its {', '.join(fixed)}; what can be changed is"
            f" {', '.join(sorted(can)) or 'none of its settings'}: start a new run"
        )
    if change.budget is None and spec.folder.read_state()["state"] == "finished":
        raise RunError(
            f"the run {spec.folder.path} has finished, and asks nothing more: give --budget as well"
        )


# On disk --------------------------------------------------------------------------------------


def _set(spec: RunSpec, wanted: RunSpec, change: Change, ledger: Ledger) -> None:
    values: dict[str, Any] = {}
    added = wanted.sources.parts[len(spec.sources.parts) :]
    if added:
        values["more"] = [(part.kind, part.path) for part in wanted.sources.added]
        stamps = stamps_of(part.path for part in added)
        values["files"] = {**spec.folder.resolved().get("files", {}), **stamps}
    if change.classes:
        values["classes_began"] = len(wanted.sources.began or ())
    if wanted.terms != spec.terms:
        values["budget_now"] = wanted.terms.as_setting
    if change.annotators and "," not in spec.settings.annotators:
        values["sheets_alone"] = max((row.sheet for row in ledger.private.handed()), default=0)
    checked, names = wanted.settings.flat(), _settings_of(spec, change)
    chosen = {name: checked[name] for name in names}
    chosen |= {} if change.budget is None else {"budget": change.budget}
    changes = {name: Setting(value) for name, value in values.items()}
    changes |= {name: Setting(value, "flag") for name, value in chosen.items()}
    report: dict[str, Any] = {}
    if change.training:
        report["set"] = [f"{name}={checked[name]}" for name in change.training]
    if change.stop_when is not None:
        report["stop_when"] = change.stop_when
    if change.classes and (classes := wanted.sources.classes) is not None:
        changes[CLASSES] = class_setting(classes)
    if change.annotators:
        report["joined"] = ledger.codes_of(change.annotators)
    for kind, data, _ in added:
        report[kind] = report.get(kind, 0) + len(data.items)
    if change.labeler is not None:
        report["labeler"] = change.labeler
    if changes:
        ledger.change_settings(changes, report)


def _record(spec: RunSpec, ledger: Ledger, again: Sequence[str], *, first: int) -> None:
    """Record the change in the ledger, in the open transaction.

    Items of the parts from number `first` on are new. One more label is bought of each in `again`.
    """
    if first < len(spec.sources.parts):
        ledger.add_items(records_of(spec.sources, first), rejected_of(spec.sources, first))
    corpus = corpus_of(spec)
    order = current_order(spec, ledger, corpus)
    hits = answers_that_name(ledger, added_classes(spec))
    before = ledger.accounts.classes or len(spec.sources.began or ())
    classes = () if spec.sources.began is None else spec.dataset.classes or ()
    for size in range(before + 1, len(classes) + 1):
        ledger.add_class(classes[size - 1], size)
    for answer in (answer for purpose, answer in hits if purpose != "audit"):
        ledger.correct(answer.item, answer.index, answer.labeler, slot=answer.slot, named=True)
    if owned := new_owned(spec, ledger, audit_rows(corpus, ledger)):
        ledger.own(owned, "owned")
    next_terms(spec, ledger, order, first=len(corpus.began))
    if again:  # in a random order: audited rows come back among the others
        secret = int(spec.folder.resolved()[SECRET], 16)
        mixed = generator(secret, "again", ledger.head.count).permutation(len(again))
        ledger.reserve([again[place] for place in mixed], "again")
