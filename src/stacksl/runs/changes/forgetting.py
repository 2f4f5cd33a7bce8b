"""Forgetting one item of a run: its texts, its id, its features, and what was made from them.

One transaction erases the item in the run's database and notes what finds its copies outside. Then
the copies are erased and the note with them; where a call was cut off, the next one does the rest.
Nothing is fitted here: the model and the report are deleted, and `resume` makes them again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import RunError
from stacksl.features.cache import erase_keys, text_key
from stacksl.features.store import erase, has_block, items_in
from stacksl.labelers.chat.calls import Calls
from stacksl.labelers.sheets.erasing import erase_rows
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.ledger.store.settings import Setting
from stacksl.runs.finish.finish import DERIVED
from stacksl.runs.items.stored import ASIDE, ASIDE_AT_FIRST
from stacksl.runs.loop.final_model import GRAPH
from stacksl.runs.loop.trainer import BEGINS, UNUSED
from stacksl.runs.session.assignment import ask_folder
from stacksl.runs.session.session import bring_arrays
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder, shown_facts
from stacksl.runs.storage.status import expect_begun
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of forgetting one item.

    Attributes:
        name: what its place is called from now on.
        round: the round that saw it; None without one.
        learnt: whether its label was learnt.
        alike: how many other items of the run have the same text.
        remains: a sentence for each place that still knows of it.
    """

    name: str
    round: int | None
    learnt: bool
    alike: int
    remains: tuple[str, ...]


def forget(run: Path, item: str | None = None) -> Forgotten:
    """Erase one item in a run's folder and in the cache of text vectors.

    The chain of the ledger keeps its numbers under a random name, and the item keeps its place, so
    that `verify` and `resume` still work.

    Args:
        run: the run's folder.
        item: its id, as the data or the report gives it; not needed to finish an interrupted call.

    Raises:
        RunLocked: another process holds the run.
        RunError: the run knows no such item, or has asked nothing yet.
        LedgerError, FeatureError: the database or a cache cannot be used.
    """
    folder = RunFolder.open(run, forgetting=True)
    finished = finish_forgetting(folder)
    if item is None and finished:
        return finished[-1]
    with folder.locked(), Ledger.open(folder.database) as ledger:
        expect_begun(folder, ledger)
        if item is None:
            raise RunError(f"name the item of the run {run} to forget with --id ID")
        if not ledger.knows(item) or ledger.tombstone(item) == item:
            raise RunError(
                f"the run {run} knows no item '{item}': give its id as the data or the report has"
                " it; forgotten items have none"
            )
        return _erase_copies(folder, ledger, *_erase_item(RunSpec.open(folder), ledger, item))


def finish_forgetting(folder: RunFolder) -> list[Forgotten]:
    """Do what interrupted calls have left to do; the result of each."""
    with folder.locked(forgetting=True), Ledger.open(folder.database) as ledger:
        return [_erase_copies(folder, ledger, *each) for each in ledger.erasing().items()]


def _erase_item(spec: RunSpec, ledger: Ledger, id: str) -> tuple[str, dict[str, Any]]:
    """Erase an item in the run's database; its name from now on, and what finds its copies."""
    items = spec.dataset.items
    row, item = next((row, each) for row, each in enumerate(items) if each.id == id)
    name, same = ledger.tombstone(id), (item.prompt, item.candidates)
    shared = spec.dataset.classes is not None or spec.settings.bank is not None
    facts = shown_facts(spec.folder)
    copies = {
        "row": row,
        "keys": [each.key for each in ledger.handed() if each.item == id],
        "texts": [
            text_key(text).hex() for text in (item.prompt, *(() if shared else item.candidates))
        ],
        "refitted": facts is not None and facts.audit is not None and facts.audit.trained_on > 0,
        "alike": sum((each.prompt, each.candidates) == same for each in items) - 1,
    }
    bring_arrays(spec, ledger)  # saves the learner while the item's features are there
    known = {ASIDE: sorted(spec.sources.aside), ASIDE_AT_FIRST: sorted(spec.sources.aside_at_first)}
    state = _without(spec.folder.read_state(), item)
    ledger.keep_last_arrays()  # two would reveal what was learnt between
    with ledger.together():
        _charge_calls(spec, ledger, id)
        ledger.change_settings({name: Setting(value) for name, value in known.items()})
        ledger.write_state(state.pop("state"), state)
        ledger.forget(id, copies)
    return name, copies


def _charge_calls(spec: RunSpec, ledger: Ledger, item: str) -> None:
    """Charge what calls about the item may have cost, before its open leases are released."""
    calls, model = Calls(spec.folder.database), spec.settings.labeler
    ledger.take(
        Answer(item, each.slot, each.token, None, model, min(cost, each.price), "broken")
        for each in ledger.open_purchases()
        if each.item == item and (cost := calls.cost(item, each.slot))
    )


def _without(state: dict[str, Any], item: Item) -> dict[str, Any]:
    """The state of a run without sentences that name the item or quote its text."""
    id = re.compile(rf"(?<![\w-]){re.escape(item.id)}(?![\w-])")

    def names_it(sentence: object) -> bool:
        return id.search(str(sentence)) is not None or item.prompt in str(sentence)

    kept = {key: value for key, value in state.items() if key != "sentence" or not names_it(value)}
    return kept | {"warnings": [each for each in state.get("warnings", ()) if not names_it(each)]}


def _erase_copies(
    folder: RunFolder, ledger: Ledger, name: str, copies: Mapping[str, Any]
) -> Forgotten:
    """Erase the copies of a forgotten item outside the database; what is known of it then."""
    spec = RunSpec.open(folder)
    sheets = ask_folder(spec.settings, folder.path)
    unread = erase_rows(sheets, copies["keys"])
    _erase_features(spec, int(copies["row"]))
    erase_keys(map(bytes.fromhex, copies["texts"]))
    for derived in DERIVED:
        place = folder.path / derived
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    ledger.erased(name)
    rows = [row for row in ledger.rows() if row.item == name]
    remains = (*_models(ledger, rows), *_yours(spec, copies, sheets, unread))
    return Forgotten(
        name,
        next((row.round for row in rows if row.event == "round"), None),
        any(row.event == "learnt" for row in rows),
        int(copies["alike"]),
        remains,
    )


def _erase_features(spec: RunSpec, row: int) -> None:
    """Zero the features of item number `row` in every epoch.

    They are not computed again: the map was fitted on this item too, and an encoder or a language
    model need not give the others the same bits.
    """
    place, ids = spec.folder.features, [item.id for item in spec.dataset.items]
    for name, part in spec.sources.features.items():
        if part.start <= row < part.stop and has_block(place / name):
            erase(place / name, row - part.start, ids[part])
    for epoch in sorted(place.glob("epoch-*")):
        began = items_in(epoch) if has_block(epoch) else 0
        if row < began:
            erase(epoch, row, ids[:began])
        for name, part in spec.sources.features.items():  # of items added during the epoch
            if began <= part.start <= row < part.stop and has_block(epoch / name):
                erase(epoch / name, row - part.start, ids[part])
    (place / GRAPH).unlink(missing_ok=True)  # made again without the item


def _models(ledger: Ledger, rows: list[Row]) -> Iterator[str]:
    """A sentence for each model that the item had a part in."""
    yield "the feature map was fitted on the texts of all items, this one among them"
    learnt = next((row.seq for row in rows if row.event == "learnt"), None)
    if learnt is None:
        return
    yield "the online model learnt its label"
    early: set[object] = set()
    adapters = []
    for row in ledger.rows():
        named = row.payload.get("adapter")
        if row.event != "refit" or named is None or row.payload.get(UNUSED):
            continue
        if BEGINS in row.payload:
            early |= {row.payload[BEGINS]} if row.seq < learnt else set()
        elif row.seq > learnt and named not in early:
            adapters.append(str(named))
    if adapters:
        yield f"the adapters of the refits {', '.join(adapters)} were trained on it"


def _yours(
    spec: RunSpec, copies: Mapping[str, Any], sheets: Path, unread: list[str]
) -> Iterator[str]:
    """A sentence for each place that the run cannot clean."""
    rows = zip(spec.files, spec.sources.rows, strict=True)
    source = Path(next(path for path, part in rows if int(copies["row"]) in part))
    if source.is_file():
        yield f"delete the row from {source}: the run does not read it again"
    if copies["refitted"]:
        yield (
            "the model that `resume` makes learns no label of the audit:"
            f" `stacksl refit {spec.folder.path} --with-audit` again"
        )
    for name in unread:
        yield f"{sheets / name} cannot be read as a workbook and is as it was"
    if copies["keys"]:
        keys = ", ".join(copies["keys"])
        yield f"copies of sheets in other places hold its rows {keys}"
    yield "copies of the run, backups, exports and predictions are as they were"
