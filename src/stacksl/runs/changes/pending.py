"""Recording of a pending change: classes, ledger, state, then the mark in `resolved.toml`.

Each step may be repeated, so an interrupted change is completed when the run is opened next. The
effect of the change on the learner follows from the ledger's rows.
"""

from __future__ import annotations

from dataclasses import replace

from stacksl.data import write_classes
from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.runs.changes.added_classes import added_classes, answered_none, named
from stacksl.runs.items.identity import records_of
from stacksl.runs.items.reading import CLASSES
from stacksl.runs.items.roles import audit_rows, corpus_of, current_order, new_owned, next_terms
from stacksl.runs.spec import PENDING, RunSpec
from stacksl.runs.storage.folder import RunFolder


def complete(spec: RunSpec) -> RunSpec:
    """The spec with its pending change recorded; the caller must hold the run's lock.

    Raises:
        LedgerError: the data is not the run's own, or the ledger cannot be written.
    """
    if not spec.pending:
        return spec
    if spec.sources.began is not None and spec.sources.classes is not None:
        text = write_classes(spec.sources.classes)
        spec.announce_classes(text)
        write_atomic(spec.folder.path / CLASSES, text)
    with Ledger.open(spec.folder.ledger) as ledger:
        record(spec, ledger)
    reopen(spec.folder)
    table = spec.folder.resolved()
    rest = {name: value for name, value in table.items() if not name.startswith(PENDING)}
    spec.folder.write_resolved(rest)
    return replace(spec, pending=False, reopen=False)


def record(spec: RunSpec, ledger: Ledger) -> None:
    """Enter a change into the ledger in one transaction; rows already entered are kept."""
    with ledger.together():
        _enter(spec, ledger)
        corpus = corpus_of(spec)
        order = current_order(spec, ledger, corpus)
        audited = set(ledger.bought("audit"))
        hits = named(ledger, added_classes(spec))
        before = ledger.classes or len(spec.sources.began or ())
        again = answered_none(ledger, adding=_classes(spec) > before) if spec.reopen else []
        for size in range(before + 1, _classes(spec) + 1):
            ledger.add_class((spec.dataset.classes or ())[size - 1], size)
        for each in (hit for hit in hits if hit.purpose != "audit"):
            ledger.correct(each.item, each.index, each.labeler, slot=each.slot, named=True)
        if owned := new_owned(spec, ledger, audit_rows(corpus, ledger)):
            ledger.own(owned, "owned")
        next_terms(spec, ledger, order, audited, first=len(corpus.began))
        mapped = {each.item for each in hits if each.purpose == "train"}
        if wanted := [item for item in again if item not in mapped]:
            ledger.reserve(wanted, "train")


def _enter(spec: RunSpec, ledger: Ledger) -> None:
    """Enter the items that are new to the ledger, and compare all items with the data."""
    records = records_of(spec)
    later = range(spec.sources.first, len(records))
    ledger.add_items([records[row] for row in later if row not in spec.sources.forgotten])
    ledger.check_items(records)


def _classes(spec: RunSpec) -> int:
    return 0 if spec.sources.began is None else len(spec.dataset.classes or ())


def reopen(folder: RunFolder) -> None:
    """Mark a finished run as stopped, so that it can be resumed; its other facts are kept."""
    state = folder.read_state()
    if state.pop("state") == "finished":
        sentence = f"the run was changed: `stacksl resume {folder.path}` continues it"
        folder.write_state("stopped", **{**state, "sentence": sentence, "reopened": True})
