"""Forgetting one item of a run: its texts, its id, its features, and what was made from them.

One transaction erases the item in the run's database and marks it with what finds its copies
outside. Then the copies are erased, and the mark goes with the last byte in the database; where a
call was cut off, the next command does the rest. Nothing is fitted here: the model and the report
are deleted, and `resume` makes them again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import DataError, RunError
from stacksl.features.cache import erase_keys, text_key
from stacksl.features.store import erase, has_block, items_in
from stacksl.labelers.chat.calls import Calls
from stacksl.labelers.sheets.erasing import erase_rows
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.ledger.store.settings import SALT, Setting, new_salt
from stacksl.runs.items.stored import ASIDE, ASIDE_AT_FIRST
from stacksl.runs.loop.head_fitting import GRAPH
from stacksl.runs.session.assignment import FILE, SHEET, SheetLabeler, ask_folder
from stacksl.runs.session.session import bring_arrays
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.derived import DERIVED, MAP, expect_derived, note_derived
from stacksl.runs.storage.folder import RunFolder, shown_facts
from stacksl.runs.storage.status import expect_begun
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The `name` of a forgotten item's place from now on, and a sentence for each that remains."""

    name: str
    learnt: bool
    remains: tuple[str, ...]


def forget(run: Path, item: str) -> Forgotten:
    """Erase one item in a run's folder and in the cache of text vectors.

    The chain of the ledger keeps its numbers under a random name, and the item keeps its place, so
    that `verify` and `resume` still work. The same call again finishes one that was cut off.

    Raises:
        RunLocked: another process holds the run.
        RunError: the run knows no such item, has asked nothing yet, or has not read an answer to
            the item in a sheet of its own.
        LedgerError, FeatureError: the database or a cache cannot be used.
    """
    folder = RunFolder.open(run)
    finished = finish_erasing(folder) if folder.erasing() else {}
    if item in finished:
        return finished[item]
    with folder.locked(), Ledger.open(folder.database) as ledger:
        expect_begun(folder, ledger)
        spec = RunSpec.open(folder)
        if item not in spec.sources.usable:
            raise RunError(
                f"the run {run} knows no item '{item}': give its id as the data or the report has"
                " it; forgotten items have none"
            )
        _expect_read(spec, ledger, item)
        return _erase_copies(folder, ledger, *_erase_item(spec, ledger, item))


def finish_erasing(folder: RunFolder) -> dict[str, Forgotten]:
    """Do what interrupted calls have left to do; the result of each, by the item's former id."""
    with folder.locked(erasing=True), Ledger.open(folder.database) as ledger:
        return {
            str(copies.get("id")): _erase_copies(folder, ledger, name, copies)
            for name, copies in ledger.erasing().items()
        }


def _expect_read(spec: RunSpec, ledger: Ledger, item: str) -> None:
    """Check that no sheet of the run has an answer to the item that is still to be entered.

    Raises:
        RunError: one has. Its annotator is to be paid, and the answer would be lost with the row.
    """
    if spec.settings.labeler != FILE:
        return
    labeler = SheetLabeler(spec, ledger)
    rows = (each for each in ledger.export() if each["item"] == item)
    waiting = {each["slot"] for each in rows if each["state"] != "answered"}  # a late one counts
    sheets = sorted(labeler.folder.iterdir()) if waiting and labeler.folder.is_dir() else []
    for sheet in filter(lambda path: SHEET(path.name), sheets):
        with suppress(DataError):  # of one that nobody can read
            found = labeler.read([sheet]).answers
            if any(each.item == item and each.slot in waiting for each in found):
                raise RunError(
                    f"the sheet {sheet} has an answer to the item '{item}' that was not entered:"
                    f" `stacksl answer {spec.folder.path} {sheet}` first, or empty the answer there"
                    " to drop it unpaid"
                )


def _erase_item(spec: RunSpec, ledger: Ledger, id: str) -> tuple[str, dict[str, Any]]:
    """Erase an item in the run's database; its name from now on, and what finds its copies."""
    items, item = spec.dataset.items, spec.sources.usable[id]
    shared = spec.dataset.classes is not None or spec.settings.bank is not None
    texts = (item.prompt, *(() if shared else item.candidates))
    same, facts = (item.prompt, item.candidates), shown_facts(spec.folder)
    copies = {
        "id": id,
        "row": items.index(item),
        "keys": [each.key for each in ledger.private.handed() if each.item == id],
        "texts": [text_key(text).hex() for text in texts],
        "alike": sum((each.prompt, each.candidates) == same for each in items) - 1,
        "refitted": facts is not None and facts.audit is not None and facts.audit.trained_on > 0,
    }
    expect_derived(spec.folder, MAP)
    bring_arrays(spec, ledger)  # saves the learner while the item's features are there
    changes = {
        ASIDE: Setting(sorted(spec.sources.aside)),
        ASIDE_AT_FIRST: Setting(sorted(spec.sources.aside_at_first)),
        SALT: new_salt(),  # with the old one a digest of the report might confirm a guessed text
    }
    state = _without(spec.folder.read_state(), item)
    with ledger.together():
        ledger.keep_last_arrays()  # two would reveal what was learnt between
        _charge_calls(spec, ledger, id)
        ledger.change_settings(changes)
        note_derived(spec.folder, ledger, MAP)
        ledger.write_state(state.pop("state"), state)
        return ledger.forget(id, copies), copies


def _charge_calls(spec: RunSpec, ledger: Ledger, item: str) -> None:
    """Charge what calls about the item may have cost, before its open leases are released."""
    calls, model = Calls(spec.folder.database), spec.settings.labeler
    ledger.take(
        Answer(item, each.slot, each.token, None, model, min(cost, each.price), "broken")
        for each in ledger.open_purchases()
        if each.item == item and (cost := calls.cost(item, each.slot))
    )


def _without(state: Mapping[str, Any], item: Item) -> dict[str, Any]:
    """The state of a run without sentences that name the item or quote its text."""
    named = re.compile(rf"(?<![\w-]){re.escape(item.id)}(?![\w-])|{re.escape(item.prompt)}").search
    kept = {key: value for key, value in state.items() if key != "sentence" or not named(value)}
    return kept | {"warnings": [each for each in state.get("warnings", ()) if not named(each)]}


def _erase_copies(
    folder: RunFolder, ledger: Ledger, name: str, copies: Mapping[str, Any]
) -> Forgotten:
    """Erase the copies of a forgotten item, then its mark; what is known of it then.

    `copies` is empty where bytes in the database alone were left.
    """
    spec = RunSpec.open(folder)  # anew: features are hashed with the names of items
    sheets = ask_folder(spec.settings, folder.path)
    unread = erase_rows(sheets, copies.get("keys", ()))
    if "row" in copies:
        _erase_features(spec, copies["row"])
    erase_keys(map(bytes.fromhex, copies.get("texts", ())))
    for derived in DERIVED:
        place = folder.path / derived
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    ledger.erased(name)
    learnt = any(row.item == name and row.event == "learnt" for row in ledger.rows())
    unread = [str(sheets / each) for each in unread]
    return Forgotten(name, learnt, tuple(_remains(spec, copies, unread, learnt)))


def _erase_features(spec: RunSpec, row: int) -> None:
    """Zero the features of item number `row` in every epoch.

    They are not computed again: the map was fitted on this item too, and an encoder or a language
    model need not give the others the same bits.
    """
    place, ids = spec.folder.features, [item.id for item in spec.dataset.items]
    for epoch in (place, *sorted(place.glob("epoch-*"))):
        for name, part in spec.sources.features.items():
            if has_block(epoch / name):  # an epoch's own has the items that there were
                held = ids[part.start : part.start + items_in(epoch / name)]
                if 0 <= row - part.start < len(held):
                    erase(epoch / name, row - part.start, held)
    (place / GRAPH).unlink(missing_ok=True)  # made again without the item


def _remains(
    spec: RunSpec, copies: Mapping[str, Any], unread: list[str], learnt: bool
) -> Iterator[str]:
    """A sentence for each place that still knows of the item."""
    yield "the feature map was fitted on the texts of all items, this one among them"
    if learnt:
        adapters = ", and so did every adapter trained since" if spec.settings.adapts else ""
        yield f"the online model learnt its label{adapters}"
    if copies.get("refitted"):
        yield (
            "the model that `resume` makes learns no label of the audit:"
            f" `stacksl change {spec.folder.path} --train-on-audit` again"
        )
    yield "its row in your data is yours to delete: the run does not read it again"
    for sheet in unread:
        yield f"{sheet} cannot be read as a sheet and is as it was"
    if alike := copies.get("alike"):
        yield f"{alike:,} other items of the run have the same text"
    if keys := ", ".join(copies.get("keys", ())):
        yield f"copies of sheets in other places hold its rows {keys}"
    yield "copies of the run, backups, exports and predictions are as they were"
