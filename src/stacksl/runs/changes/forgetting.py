"""Forgetting one item of a run: its texts, its id, its features, and what was made from them.

The item is marked, its copies outside the run's database are erased, then its texts in it, and the
mark goes with their last byte. Where a call was cut off, the next command on the run does all of
this for the marked item. Nothing is fitted here: the model and the report are deleted, and `resume`
makes them again.
"""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from stacksl.errors import DataError, RunError
from stacksl.features.cache import erase_keys, text_key
from stacksl.features.store import erase, has_block, items_in
from stacksl.labelers.chat.calls import Calls
from stacksl.labelers.sheets.erasing import erase_rows, sheets_in
from stacksl.ledger.events import erased_name
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.ledger.store.settings import CLASSES, SALT, Setting, new_salt
from stacksl.runs.items.sources import OWNED
from stacksl.runs.items.stored import EXCLUDED, EXCLUDED_AT_FIRST
from stacksl.runs.loop.head_fitting import GRAPH
from stacksl.runs.session.assignment import FILE, SheetLabeler, ask_folder
from stacksl.runs.session.session import bring_arrays
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import (
    DERIVED,
    MAP,
    RunFolder,
    class_setting,
    expect_derived,
    note_derived,
)
from stacksl.runs.storage.status import expect_begun
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The `name` of a forgotten item's place from now on, and a sentence for each that remains."""

    name: str
    learned: bool
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
    with folder.locked(erasing=True), Ledger.open(folder.database) as ledger:
        forgotten_items = _erase_marked(folder, ledger)
        if item in forgotten_items:
            return forgotten_items[item]
        expect_begun(folder, ledger)
        spec = RunSpec.open(folder)
        if item not in spec.sources.usable:
            raise RunError(
                f"the run {run} knows no item '{item}': give its id as the data or the report has"
                " it; forgotten items have none"
            )
        _expect_read(spec, ledger, item)
        expect_derived(folder, MAP)
        bring_arrays(spec, ledger)  # saves the learner while the item's features are there
        names = _same_row(spec, item)
        for name in names:
            ledger.begin_erasing(name)
        erased = _erase_marked(folder, ledger)
        learned = any(erased[name].learned for name in names)
        remains = dict.fromkeys(chain.from_iterable(erased[name].remains for name in names))
        return Forgotten(erased[item].name, learned, tuple(remains))


def _same_row(spec: RunSpec, item: str) -> list[str]:
    """The items of a row of the data: one of a column of owned labels is one to choose from, too.

    The `item` itself comes last, so that a call that was cut off can be given again.
    """
    if spec.settings.owned_column is None:
        return [item]
    row = item.removeprefix(OWNED)
    twin = row if item.startswith(OWNED) else OWNED + row
    return [*([twin] if twin in spec.sources.usable else []), item]


def finish_erasing(folder: RunFolder) -> None:
    """Do what an interrupted call has left to do."""
    with folder.locked(erasing=True), Ledger.open(folder.database) as ledger:
        _erase_marked(folder, ledger)


def _erase_marked(folder: RunFolder, ledger: Ledger) -> dict[str, Forgotten]:
    """Erase the marked items and their marks; what is known of each, by its former id."""
    marked_items, forgotten = ledger.erasing(), {}
    for item in marked_items:
        spec = RunSpec.open(folder)
        if item in spec.sources.usable:  # else bytes in the database alone are left
            forgotten[item] = _erase(spec, ledger, spec.sources.usable[item])
    if marked_items:
        ledger.erased()
    return forgotten


def _expect_read(spec: RunSpec, ledger: Ledger, item: str) -> None:
    """Check that no sheet of the run has an answer to the item that is still to be entered.

    Raises:
        RunError: one has. Its annotator is to be paid, and the answer would be lost with the row.
    """
    if spec.settings.labeler != FILE:
        return
    labeler = SheetLabeler(spec, ledger)
    item_rows = (row for row in ledger.export() if row["item"] == item)
    waiting = {row["slot"] for row in item_rows if row["state"] != "answered"}  # a late one counts
    for sheet in sheets_in(labeler.folder):  # whatever the name of a copy, its row is erased
        with suppress(DataError):  # of one that nobody can read
            answers = labeler.read([sheet]).answers if waiting else ()
            if any(answer.item == item and answer.slot in waiting for answer in answers):
                call = shlex.join(["stacksl", "answer", str(spec.folder.path), str(sheet)])
                raise RunError(
                    f"the sheet {sheet} has an answer to the item '{item}' that was not entered:"
                    f" `{call}` first, or empty the answer there to drop it unpaid"
                )


def _erase(spec: RunSpec, ledger: Ledger, item: Item) -> Forgotten:
    """Erase all copies of an item, then its texts in the database; each step may be done again."""
    folder, sheets = spec.folder, ask_folder(spec.settings, spec.folder.path)
    keys = [row.key for row in ledger.private.handed() if row.item == item.id]
    unread = [str(sheets / name) for name in erase_rows(sheets, keys)]
    _erase_features(spec, item, erased_name(ledger.items.surrogates[item.id]))
    shared = spec.dataset.classes is not None
    erase_keys(map(text_key, (item.prompt, *(() if shared else item.candidates))))
    learned = any(row.item == item.id for row in ledger.rows(only=("learned",)))
    remains = ["the feature map was fitted on the texts of all items, this one among them"]
    if learned:
        adapters = ", and so did every adapter trained since" if spec.settings.adapts else ""
        remains.append(f"the online model learned its label{adapters}")
    remains.append("its row in your data is yours to delete: the run does not read it again")
    remains += [f"{sheet} cannot be read as a sheet and is as it was" for sheet in unread]
    peers = [peer.id for peer in spec.dataset.items if peer.content == item.content]
    if count := len({*peers} - {*_same_row(spec, item.id)}):
        remains.append(f"other items of the run with the same text: {count:,}")
    if keys:
        remains.append(f"copies of sheets in other places hold its rows {', '.join(keys)}")
    remains.append("copies of the run, backups, exports and predictions are as they were")
    for derived in DERIVED:
        path = folder.path / derived
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    changes = {
        EXCLUDED: Setting(sorted(spec.sources.excluded)),
        EXCLUDED_AT_FIRST: Setting(sorted(spec.sources.excluded_at_first)),
        SALT: new_salt(),  # with the old one a digest of the report might confirm a guessed text
    }
    if (classes := folder.classes()) is not None:  # one of their examples may have its text
        changes[CLASSES] = class_setting(classes.without(item.prompt))
    state, calls, model = folder.read_state(), Calls(folder.database), spec.settings.labeler
    search = re.compile(rf"(?<![\w-]){re.escape(item.id)}(?![\w-])|{re.escape(item.prompt)}").search
    facts = {key: value for key, value in state.items() if key != "sentence" or not search(value)}
    facts.pop("proposed", None)  # words of texts, perhaps of this one
    facts["warnings"] = [warning for warning in state.get("warnings", ()) if not search(warning)]
    with ledger.together():
        ledger.take(  # what calls about it may have cost, before its open leases are released
            Answer(item.id, lease.slot, lease.token, None, model, min(cost, lease.price), "broken")
            for lease in ledger.open_purchases()
            if lease.item == item.id and (cost := calls.cost(item.id, lease.slot))
        )
        ledger.change_settings(changes)
        note_derived(folder, ledger, MAP)
        ledger.write_state(facts.pop("state"), facts)
        return Forgotten(ledger.forget(item.id), learned, tuple(remains))


def _erase_features(spec: RunSpec, item: Item, name: str) -> None:
    """Zero the features of an item in every epoch; `name` is what it is called from now on.

    They are not computed again: the map was fitted on this item too, and an encoder or a language
    model need not give the others the same bits.
    """
    folder, ids = spec.folder.features, [stored.id for stored in spec.dataset.items]
    row = ids.index(item.id)
    ids[row] = name
    for epoch in (folder, *sorted(folder.glob("epoch-*"))):
        for subfolder, rows in spec.sources.features.items():
            if has_block(epoch / subfolder):  # an epoch's own has the items that there were
                epoch_ids = ids[rows.start : rows.start + items_in(epoch / subfolder)]
                if 0 <= row - rows.start < len(epoch_ids):
                    erase(epoch / subfolder, row - rows.start, epoch_ids)
    (folder / GRAPH).unlink(missing_ok=True)  # made again without the item
