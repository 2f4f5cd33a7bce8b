"""Forgetting one item of a run: its texts, its id and its features, wherever the run keeps them.

The order makes a crash harmless: the ledger is last, and until then the same call goes on where the
last one stopped. What was learnt from the item stays in the models, which are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stacksl.errors import LedgerError, RunError
from stacksl.features.cache import erase_texts
from stacksl.items import Item
from stacksl.labels.ledger import Ledger
from stacksl.runs import checkpoints
from stacksl.runs.erasing import (
    Marks,
    erase_features,
    erase_lines,
    erase_records,
    erase_sheets,
    erase_tables,
)
from stacksl.runs.finish import NO_TEXT, write_pages
from stacksl.runs.folder import RunFolder, read_facts
from stacksl.runs.items.identity import unseal
from stacksl.runs.job import Job
from stacksl.runs.people import ask_folder
from stacksl.runs.session.views import catch_up
from stacksl.runs.tombstones import Tombstones

__all__ = ["Forgotten", "forget"]

OWN = "data.jsonl"  # the run's own copy of items that came from no file


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What came of forgetting one item.

    Attributes:
        name: the id by which its place goes from now on.
        round: the round that saw it; None where none had.
        learnt: whether its label was learnt.
        changed: what was rewritten, by file; the ledger and the features always are.
        models: a sentence for each model that the item had a part in.
        alike: how many other items of the run have the very same text.
        yours: what is not the run's to erase, a sentence each.
    """

    name: str
    round: int | None
    learnt: bool
    changed: tuple[str, ...]
    models: tuple[str, ...]
    alike: int
    yours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """One item that is being forgotten, and what the ledger knows of it.

    `item` is None where an earlier call that was cut off has placed the tombstone already: texts
    are gone then. `round` saw it, and row `learnt` of the ledger is its lesson.
    """

    job: Job
    id: str
    name: str
    row: int
    item: Item | None
    round: int | None
    learnt: int | None
    keys: frozenset[str]

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return self.job.folder


def forget(run: Path, item: str, *, data: str | None = None) -> Forgotten:
    """Erase one item everywhere in a run's folder and in the cache of text vectors.

    The chain of the ledger keeps its numbers under a random name, and the item keeps its place, so
    that `verify` and `resume` go on to work, whether the row is deleted from the data or not.

    Args:
        run: the run's folder.
        item: its id, as the data or the report gives it.
        data: where the data file lies now, if it was moved.

    Raises:
        RunLocked: another process holds the run.
        RunError: the run knows no such item, the data has lost it, or there is no ledger yet.
        DataError, LedgerError, FeatureError: the data, the ledger or a cache cannot be used.
    """
    folder = RunFolder.open(run)
    with folder.locked():
        unseal(folder)
        if not folder.ledger.exists():
            raise RunError(
                f"the run {run} has no ledger yet, it stopped before round 1: delete the row from"
                " the data and the folder of the run, and run again"
            )
        job = Job.open(folder, data, forgetting=True)
        known = Tombstones.read(folder) or Tombstones.over(job.stock)
        with Ledger.open(folder.ledger) as ledger:
            case = _case(job, ledger, item)
            changed: list[str] = []
            if case.item is not None:
                start = catch_up(job, ledger)  # while the features are there
                changed = _erase_texts(case, case.item, ledger)
                known = known.with_stone(job.stock, case.row, case.name)
                known = known if known.gate_state is not None else replace(known, **start)
                known.write(folder)
            changed += _erase_rows(case)
            told = _told(case, changed, ledger)
            ledger.forget(item)
        checkpoints.keep_latest(folder.checkpoints)
        return told


def _case(job: Job, ledger: Ledger, item: str) -> _Case:
    """The item as the run knows it.

    Raises:
        RunError: it does not, or the data has lost it.
    """
    try:
        name = ledger.tombstone(item)
    except LedgerError:
        name = item
    if name == item:  # unknown, or the name of a tombstone
        raise RunError(
            f"the run {job.folder.path} knows no item '{item}': give its id as the data or the"
            " report has it; what was forgotten before has none"
        )
    row, text = _found(job, item, name)
    seen = [row.round for row in ledger.rows() if row.event == "round" and row.item == item]
    learnt = [row.seq for row in ledger.rows() if row.event == "learnt" and row.item == item]
    keys = frozenset(handed.key for handed in ledger.handed() if handed.item == item)
    return _Case(
        job, item, name, row, text, seen[0] if seen else None, learnt[0] if learnt else None, keys
    )


def _found(job: Job, item: str, name: str) -> tuple[int, Item | None]:
    for row, each in enumerate(job.dataset.items):
        if each.id in (item, name):
            return row, each if each.id == item else None
    raise RunError(
        f"the data no longer has the item '{item}', and its text is needed to find all that was"
        " kept of it: put the row back, or name a copy of the file that has it with --data"
    )


def _erase_texts(case: _Case, item: Item, ledger: Ledger) -> list[str]:
    """Take out what can be found by the item's texts alone; the names of the files that changed."""
    folder, job = case.folder, case.job
    own = () if job.dataset.classes is not None else item.candidates
    said = [word for a in ledger.texts(case.id) for word in (a.text, a.note) if word]
    marks = Marks(case.id, case.name, frozenset((item.prompt, *own, *said)), case.keys)
    place = ask_folder(job.settings, folder.path)
    where = "ask" if job.settings.ask_dir is None else str(place)
    changed = [f"{where}/{name}" for name in erase_sheets(place, marks)]
    changed += erase_tables(folder, marks)
    records = erase_records(folder, marks)
    changed += records
    if erase_lines(folder.path / "test.jsonl", lambda row: row.get("prompt") == item.prompt):
        changed.append("test.jsonl")
    if "facts.json" in records:
        changed += _write_pages(folder)
    if erase_texts((item.prompt, *own)):
        changed.append("the cache of text vectors")
    return changed


def _write_pages(folder: RunFolder) -> list[str]:
    """The report and the card anew, and those to forward where there were some."""
    write_pages(folder)
    if not (folder.path / NO_TEXT).is_dir():
        return ["report.html", "README.md"]
    write_pages(folder, text=False)
    return ["report.html", "README.md", f"{NO_TEXT}/"]


def _erase_rows(case: _Case) -> list[str]:
    """Take out what is found by the item's id and its place."""
    ids = [item.id for item in case.job.dataset.items]
    ids[case.row] = case.name
    erase_features(case.folder, case.job.stock.features, case.row, ids)
    mine = erase_lines(case.folder.path / OWN, lambda row: row.get("id") == case.id)
    return [OWN] if mine else []


def _told(case: _Case, changed: list[str], ledger: Ledger) -> Forgotten:
    items = case.job.dataset.items
    alike = 0
    if case.item is not None:
        text = (case.item.prompt, case.item.candidates)
        alike = sum((item.prompt, item.candidates) == text for item in items) - 1
    return Forgotten(
        case.name,
        case.round,
        case.learnt is not None,
        tuple(changed),
        tuple(_models(case, ledger)),
        alike,
        tuple(_yours(case)),
    )


def _models(case: _Case, ledger: Ledger) -> Iterator[str]:
    """A sentence for each model that the item had a part in."""
    yield "the feature map was fitted on the texts of all items, this one among them"
    if case.learnt is None:
        if _taught_by_audit(case, ledger):
            yield "the head in model/ was trained on the audit's labels, this one among them"
        return
    yield "the online model and its checkpoint learnt its label"
    after = [row for row in ledger.rows(case.learnt) if row.event == "refit"]
    adapters = [str(row.payload["adapter"]) for row in after if "adapter" in row.payload]
    if adapters:
        yield f"the adapters of the refits {', '.join(adapters)} were trained on it"
    elif after:
        yield f"{len(after)} refits of the head were on it, the one in model/ among them"


def _taught_by_audit(case: _Case, ledger: Ledger) -> bool:
    """Whether it was an item of the audit, and the final model was trained on that afterwards."""
    names = {case.id, case.name}
    audited = any(
        bought["purpose"] == "audit" and bought["item"] in names for bought in ledger.export()
    )
    if not audited or not (case.folder.path / "facts.json").is_file():
        return False
    audit = read_facts(case.folder).audit
    return audit is not None and audit.trained_on > 0


def _yours(case: _Case) -> Iterator[str]:
    """A sentence for each place that the run cannot clean."""
    source = Path(case.job.data)
    if source.is_file() and source.parent.resolve() != case.folder.path.resolve():
        yield f"delete the row from {source}: the run goes on without it"
    if case.keys:
        keys = ", ".join(sorted(case.keys))
        yield f"files of answers that lie elsewhere hold its rows {keys}"
    yield "copies of the run, backups, exports and predictions are as they were"
