"""Forgetting one item of a run: its texts, its id and its features, in every file of the run.

`forgetting.json` is written first and becomes `forgotten.json` last. While it is there, every other
command refuses the run, and another call of `forget` does what is left to do. The ledger forgets
late, since its keys and notes are needed to find the item in other files. What was learnt from the
item stays in the models; they are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stacksl.errors import RunError
from stacksl.features.cache import erase_texts
from stacksl.labelers.chat.calls import Calls
from stacksl.ledger.events import Row, tombstone
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.report.wording import plural
from stacksl.runs.changes.erasing import (
    Line,
    Marks,
    erase_facts,
    erase_features,
    erase_sheets,
    erase_state,
    erase_tables,
    left_untouched,
    rewrite,
)
from stacksl.runs.items.identity import unseal
from stacksl.runs.items.reading import Kept
from stacksl.runs.loop.trainer import BEGINS, UNUSED
from stacksl.runs.session.assignment import ask_folder
from stacksl.runs.session.views import catch_up
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import OWN, RunFolder, shown_facts
from stacksl.runs.storage.status import expect_begun
from stacksl.runs.storage.tables import write_rounds
from stacksl.runs.storage.tombstones import Tombstones, finish
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of forgetting one item.

    Attributes:
        name: the id of its tombstone.
        round: the round that saw it; None without one.
        learnt: whether its label was learnt.
        changed: what was rewritten, besides the ledger and the features.
        models: a sentence for each model that the item had a part in.
        alike: how many other items of the run have the same text.
        untouched: files among the sheets that hold the item, or cannot be searched for it; they
            are as they were.
        yours: a sentence for each place that is not the run's to erase.
    """

    name: str
    round: int | None
    learnt: bool
    changed: tuple[str, ...]
    models: tuple[str, ...]
    alike: int
    untouched: tuple[str, ...]
    yours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """One item that is being forgotten.

    `name` is the id of its tombstone and `rows` are those of the ledger that concern it. `row` is
    its number in the data and `item` the item; both are None where the ledger has forgotten it, in
    a call that was interrupted.
    """

    spec: RunSpec
    ledger: Ledger
    name: str
    row: int | None
    item: Item | None
    rows: tuple[Row, ...]
    keys: frozenset[str]

    @classmethod
    def of(cls, spec: RunSpec, ledger: Ledger, name: str) -> _Case:
        """The item that goes by `name` once it is forgotten."""
        row = next(
            (n for n, item in enumerate(spec.dataset.items) if _is(ledger, item, name)), None
        )
        item = None if row is None else spec.dataset.items[row]
        rows = (each for each in ledger.rows() if each.surrogate is not None)
        mine = tuple(each for each in rows if tombstone(str(each.surrogate)) == name)
        keys = (each.key for each in ledger.handed() if item is not None and each.item == item.id)
        return cls(spec, ledger, name, row, item, mine, frozenset(keys))

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return self.spec.folder

    @property
    def round(self) -> int | None:
        """The round that saw it; None without one."""
        return next((row.round for row in self.rows if row.event == "round"), None)

    @property
    def learnt(self) -> int | None:
        """The number of the ledger's row that learnt its label; None without one."""
        return next((row.seq for row in self.rows if row.event == "learnt"), None)


def forget(run: Path, item: str | None = None, *, data: str | None = None) -> Forgotten:
    """Erase one item in every file of a run's folder and in the cache of text vectors.

    The chain of the ledger keeps its numbers under a random name, and the item keeps its place, so
    that `verify` and `resume` still work, whether the row is deleted from the data or not.

    Args:
        run: the run's folder.
        item: its id, as the data or the report gives it; not needed to finish an interrupted call.
        data: where the data file is now, if it was moved.

    Raises:
        RunLocked: another process holds the run.
        RunError: the run knows no such item, the data has lost it, the run has asked nothing yet,
            or forgetting another item was interrupted.
        DataError, LedgerError, FeatureError: the data, the ledger or a cache cannot be used.
    """
    folder = RunFolder.open(run, forgetting=True)
    with folder.locked(forgetting=True):
        spec = RunSpec.open(folder, data)
        with Ledger.open(folder.database) as ledger:
            expect_begun(folder, ledger)
            case = _case(spec, ledger, item)
            result = _result(case)
            if case.item is not None and case.row is not None:
                unseal(folder)
                _charge_calls(case, case.item.id)
                result = _erase(case, case.row, case.item, result)
                ledger.forget(case.item.id)
            result = replace(result, changed=(*result.changed, *_made_again(case)))
        finish(folder)
        return result


def _case(spec: RunSpec, ledger: Ledger, item: str | None) -> _Case:
    """The item that an interrupted call was forgetting, else the one to forget, now announced.

    Raises:
        RunError: none is named, the run does not know it, another one is to be finished first, or
            the data has lost it.
    """
    run, known = spec.folder.path, Tombstones.read(spec.folder)
    begun = Tombstones.begun(spec.folder)
    if begun is not None:
        (name,) = begun.names - (frozenset() if known is None else known.names)
        if item is not None and ledger.knows(item) and ledger.tombstone(item) != name:
            raise RunError(
                f"forgetting another item of the run {run} was interrupted: finish that first with"
                f" `stacksl forget {run}`"
            )
    elif item is None:
        raise RunError(f"name the item of the run {run} to forget with --id ID")
    elif not ledger.knows(item) or (name := ledger.tombstone(item)) == item:
        raise RunError(
            f"the run {run} knows no item '{item}': give its id as the data or the report has it;"
            " forgotten items have none"
        )
    case = _Case.of(spec, ledger, name)
    if case.item is None and (begun is None or not ledger.knows(name)):
        what = f"the item '{item}'" if begun is None else "the item that was being forgotten"
        raise RunError(
            f"the data no longer has {what}, and its text is needed to find all copies of it: put"
            " the row back, or name a copy of the file that has it with --data"
        )
    if begun is None:
        _begin(case)
    return case


def _is(ledger: Ledger, item: Item, name: str) -> bool:
    return ledger.knows(item.id) and ledger.tombstone(item.id) == name != item.id


def _begin(case: _Case) -> None:
    """Save the learner and the initial values while the features are there; then announce it."""
    spec, row = case.spec, case.row
    assert row is not None
    start = catch_up(spec, case.ledger)
    known = Tombstones.read(spec.folder) or Tombstones.over(spec.sources)
    known = known.with_stone(spec.sources, row, case.name)
    known = known if known.gate_state is not None else replace(known, **start)
    known.begin(spec.folder)


def _charge_calls(case: _Case, item: str) -> None:
    """Charge what calls about the item may have cost, before its open leases are released."""
    calls, model = Calls(case.folder.database), case.spec.settings.labeler
    case.ledger.take(
        Answer(item, each.slot, each.token, None, model, min(cost, each.price), "broken")
        for each in case.ledger.open_purchases()
        if each.item == item and (cost := calls.cost(item, each.slot))
    )


def _erase(case: _Case, row: int, item: Item, result: Forgotten) -> Forgotten:
    """Erase the item in all files but the ledger and what is made again from it."""
    folder, spec = case.folder, case.spec
    shared = spec.dataset.classes is not None or spec.settings.bank is not None
    own = () if shared else item.candidates
    if (kept := Kept.read(folder)) is not None:
        kept.without(item.prompt).write(folder)
    said = [word for a in case.ledger.texts(item.id) for word in (a.text, a.note) if word]
    texts = frozenset((item.prompt, *own, *said))
    marks = Marks(item.id, case.name, item.prompt, texts, case.keys)
    place = ask_folder(spec.settings, folder.path)
    where = "ask" if spec.settings.ask_dir is None else str(place)

    case.ledger.keep_last_arrays()  # two would reveal what was learnt between
    for path in _older_model(case):
        path.unlink()
    changed = [f"{where}/{name}" for name in erase_sheets(place, marks)]
    changed += erase_tables(folder, marks)
    changed += erase_state(folder, marks)
    changed += erase_facts(folder, marks)
    if erase_texts((item.prompt, *own)):
        changed.append("the cache of text vectors")
    ids = [each.id for each in spec.dataset.items]
    ids[row] = case.name
    erase_features(folder, spec.sources.features, row, ids)
    untouched = tuple(f"{where}/{name}" for name in left_untouched(place, marks))
    return replace(result, changed=tuple(changed), untouched=untouched)


def _older_model(case: _Case) -> list[Path]:
    """The files of a model from before the label was learnt, where the run has gone on since.

    Its difference from the learner's arrays is what was learnt between.
    """
    facts = shown_facts(case.folder)
    if case.learnt is None or case.spec.settings.adapts or facts is None:
        return []
    ledger = next(each for each in facts.fingerprints if each.name == "ledger")
    counted = int(ledger.value.split()[0])  # "N rows, last HASH"
    return sorted(case.folder.model.iterdir()) if case.learnt > counted else []


def _made_again(case: _Case) -> list[str]:
    """Make again what follows from the ledger, which has forgotten the item; what changed."""
    folder, ledger, changed = case.folder, case.ledger, []

    def known(row: Line) -> Line | None:
        return row if ledger.knows(str(row.get("id"))) else None

    if rewrite(folder.path / OWN, known):
        changed.append(OWN)
    if (folder.path / "rounds.parquet").is_file():
        write_rounds(ledger, folder.path / "rounds.parquet")
        changed.append("rounds.parquet")
    return changed


def _result(case: _Case) -> Forgotten:
    """What is known before anything is erased."""
    alike = 0
    if case.item is not None:
        text = (case.item.prompt, case.item.candidates)
        alike = sum((item.prompt, item.candidates) == text for item in case.spec.dataset.items) - 1
    learnt = case.learnt is not None
    models, yours = tuple(_models(case)), tuple(_yours(case))
    return Forgotten(case.name, case.round, learnt, (), models, alike, (), yours)


def _models(case: _Case) -> Iterator[str]:
    """A sentence for each model that the item had a part in."""
    yield "the feature map was fitted on the texts of all items, this one among them"
    if case.learnt is None:
        if _taught_by_audit(case):
            yield "the head in model/ was trained on the audit's labels, this one among them"
        return
    yield "the online model learnt its label"
    older = _older_model(case)
    if older:
        yield (
            "model/ was made before that and is deleted, since the difference of the two shows the"
            " item's features: `resume` makes it again"
        )
    after = list(_refits_on(case.ledger.rows(), case.learnt))
    adapters = [str(row.payload["adapter"]) for row in after if "adapter" in row.payload]
    if adapters:
        yield f"the adapters of the refits {', '.join(adapters)} were trained on it"
    elif after and not older:
        yield f"{plural(len(after), 'refit')} of the head learnt it, the one in model/ among them"


def _refits_on(rows: Iterable[Row], learnt: int) -> Iterator[Row]:
    """The refits on a label that was learnt in row `learnt`."""
    early = set()
    for row in rows:
        if row.event != "refit" or row.payload.get(UNUSED):
            continue
        if BEGINS in row.payload:
            early |= {row.payload[BEGINS]} if row.seq < learnt else set()
        elif row.seq > learnt and row.payload.get("adapter") not in early:
            yield row


def _taught_by_audit(case: _Case) -> bool:
    """Whether it was an item of the audit, and the final model was trained on that afterwards."""
    audited, facts = any(row.purpose == "audit" for row in case.rows), shown_facts(case.folder)
    audit = None if facts is None else facts.audit
    return audited and audit is not None and audit.trained_on > 0


def _file_of(case: _Case) -> Path:
    """The file that the item was read from; the data where that is not known any more."""
    spec, row = case.spec, case.row
    owned = [spec.settings.owned or ""] * (spec.sources.start - 1)
    files = [spec.data, *owned, *(each.path for each in spec.more)]
    for path, part in zip(files, spec.sources.parts, strict=True):
        if row is None or row < len(part.data.items):
            return Path(path)
        row -= len(part.data.items)
    return Path(spec.data)


def _yours(case: _Case) -> Iterator[str]:
    """A sentence for each place that the run cannot clean."""
    source = _file_of(case)
    if source.is_file() and source.parent.resolve() != case.folder.path.resolve():
        yield f"delete the row from {source}: the run continues without it"
    if case.keys:
        keys = ", ".join(sorted(case.keys))
        yield f"files of answers in other places hold its rows {keys}"
    yield "copies of the run, backups, exports and predictions are as they were"
