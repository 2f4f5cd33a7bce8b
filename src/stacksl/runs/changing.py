"""What a run is given to do after it has begun: another budget, more items, labels held elsewhere.

Each is written into `resolved.toml` and taken up when the run goes on; the ledger's row says when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Literal

from stacksl.errors import RunError, SettingsError
from stacksl.labels.labelers import make_labeler
from stacksl.labels.ledger import Ledger
from stacksl.report import facts
from stacksl.runs.audit import SMALLEST, default_size, expected_width
from stacksl.runs.budget import Budget, parse_budget
from stacksl.runs.folder import RunFolder, read_facts
from stacksl.runs.job import Job, Terms
from stacksl.runs.opening import expect_items
from stacksl.runs.people import FILE
from stacksl.runs.sources import More, Stock, with_more

__all__ = ["add_file", "change_budget", "fresh_audit", "reopened", "what_measures"]


def change_budget(folder: RunFolder, text: str) -> Terms:
    """Give a run another budget: labels, a share of its items, or money; what it comes to.

    Where the run had finished, and so had shown what its audit says, the change brings an audit of
    its own: of the labels added, as many as a run of that size would take.

    Raises:
        SettingsError: it is no budget, below what is spent already, or there is nothing left to buy
            with it.
        RunError: the run has asked nothing yet.
    """
    with _held(folder) as job:
        with Ledger.open(folder.ledger) as ledger:
            usable, spent, paid = _usable(job, ledger), ledger.spent, ledger.spent_money
            wanted = parse_budget(text, usable, job.settings.price)
            if text.strip().startswith("$"):
                wanted = replace(wanted, labels=_affordable(wanted, usable, spent, paid))
            states = [row["state"] for row in ledger.export() if row["purpose"] == "audit"]
            lost = states.count("released")
            audits = _audits(job, wanted.labels, spent=spent, leased=len(states), lost=lost)
            terms = Terms(wanted.labels, wanted.money, audits)
            if wanted.labels >= spent:
                expect_items(job, ledger, terms)
        if wanted.labels < spent or (wanted.money is not None and wanted.money < paid):
            raise SettingsError(
                f"a budget of '{text}' is {wanted.labels} labels, but {spent} are bought or"
                f" promised already: give at least {spent}"
            )
        reopened(folder, f"the budget is {wanted.labels} labels from here on")
        job.renewed(terms=terms)
    return terms


def _affordable(wanted: Budget, usable: int, spent: int, paid: int) -> int:
    """The labels that a budget in money comes to, since some answers cost less than the most."""
    left = (wanted.money or 0) - paid
    return wanted.labels if left < 0 else min(usable, spent + left // wanted.price)


def _usable(job: Job, ledger: Ledger) -> int:
    """The items that labels can be bought of, or were: those bought and forgotten since, too."""
    bought = {str(purchase["item"]) for purchase in ledger.export()}
    lost = {row for row in job.stock.gone if job.dataset.items[row].id not in bought}
    return len(job.dataset.items) - len(job.stock.aside | lost)


def fresh_audit(folder: RunFolder) -> int:
    """How many labels of the changed budget are kept for an audit of their own; 0 for none."""
    sizes = str(folder.read_toml("resolved.toml").get("audits_now", "")).split(",")
    return int(sizes[-1]) if len(sizes) > 1 else 0


def what_measures(folder: RunFolder, labels: int) -> str | None:
    """What the audit becomes under a changed budget of `labels`; None for a run without one."""
    said = str(folder.read_toml("resolved.toml").get("audits_now", "0"))
    first, *later = map(int, said.split(","))
    if fresh := fresh_audit(folder):
        return expected_width(fresh, labels)
    if not any((first, *later)):
        return None
    if later:
        return (
            f"no audit comes with this change, as one does with {SMALLEST} labels added: the one"
            " that was shown measures the new model, too"
        )
    return f"the {first} labels of the audit stay what they are: it was drawn before round 1"


def add_file(folder: RunFolder, path: str | Path, kind: Literal["pool", "owned"]) -> int:
    """Give a run more items to choose from, or labels that are held already; how many.

    Raises:
        DataError: the file cannot be read as the run's own was, or brings ids that are taken.
        LabelerError: the answers are the file's own, and it has none for some items.
        RunError: the run has the file already, or has asked nothing yet.
    """
    with _held(folder) as job:
        more = More(kind, str(Path(path).resolve()))
        _expect_new(job, more.path)
        wider = with_more(job.stock, more, job.settings)
        if kind == "pool":
            _expect_answers(job, wider)
        added = len(wider.dataset.items) - len(job.dataset.items)
        what = "items to choose from" if kind == "pool" else "labels that were held"
        reopened(folder, f"{added} {what} came")
        job.renewed(more=more)
    return added


def _expect_new(job: Job, path: str) -> None:
    known = [job.data, job.settings.owned, *(more.path for more in job.more)]
    if path in known:
        raise RunError(
            f"the run {job.folder.path} has the file {Path(path).name} already, and reads it again"
            f" whenever it goes on: `stacksl resume {job.folder.path}`, or give what is new a file"
            " of its own"
        )


def _expect_answers(job: Job, stock: Stock) -> None:
    """Refuse early what the labeler of the settings cannot answer."""
    if job.settings.labeler == FILE or "labeler" in job.folder.read_state():
        return
    answers, seed = stock.dataset.answers, job.settings.seed
    make_labeler(job.settings.labeler, answers=answers, sizes=stock.sizes, seed=seed)


@contextmanager
def _held(folder: RunFolder) -> Iterator[Job]:
    """The job of a run that has begun, held by this process."""
    if not folder.ledger.exists():
        raise RunError(
            f"the run {folder.path} has asked nothing yet, so nothing of it changes on the way:"
            f" `stacksl resume {folder.path}`, or start it anew"
        )
    with folder.locked():
        yield Job.open(folder)


def _audits(job: Job, labels: int, *, spent: int, leased: int, lost: int) -> tuple[int, ...]:
    """How many labels each audit takes of a budget of `labels`: one more where the last was shown.

    A change that nobody has taken up yet is forgotten over the next one.

    Args:
        job: the run.
        labels: the budget wanted, in all.
        spent: the labels bought or promised.
        leased: labels that audits asked for, and `lost` of them: their items were forgotten.
    """
    shown = _shown(job.folder)
    kept = (job.audit,) if shown is None else _up_to(job.terms.audits, shown.audit + lost)
    own = job.settings.audit
    if own == 0 or (own is None and job.test is not None) or (shown is None and job.audit):
        return kept
    if (begun := leased - sum(kept)) > 0:
        return (*kept, begun)
    added = labels - (spent if shown is None else shown.asked + shown.audit)
    size = default_size(added)
    return (*kept, size) if size or (shown is not None and added > 0) else kept


def _up_to(audits: Sequence[int], shown: int) -> tuple[int, ...]:
    """The first of the audits, as far as they come to what was shown."""
    sums = accumulate(audits)
    return tuple(size for size, total in zip(audits, sums, strict=True) if total <= shown)


def _shown(folder: RunFolder) -> facts.Budget | None:
    """What was bought when the run had last finished, and its audit was shown; None before."""
    done = (folder.path / "facts.json").is_file()
    return read_facts(folder).budget if done else None


def reopened(folder: RunFolder, sentence: str) -> None:
    """Let a finished run be taken up again; what its state told stays."""
    state = folder.read_state()
    name = state.pop("state")
    if name == "finished":
        folder.write_state("stopped", **{**state, "sentence": sentence, "reopened": True})
