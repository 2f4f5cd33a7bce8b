"""What a run is given to do after it has begun: another budget, more items, labels held elsewhere.

Each is written into `resolved.toml` and taken up when the run goes on; the ledger's row says when.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from stacksl.errors import RunError, SettingsError
from stacksl.labels.ledger import Ledger
from stacksl.runs.audit import default_size
from stacksl.runs.budget import parse_budget
from stacksl.runs.folder import RunFolder
from stacksl.runs.job import Job, Terms
from stacksl.runs.sources import More, with_more

__all__ = ["add_file", "change_budget", "reopened"]


def change_budget(folder: RunFolder, text: str) -> Terms:
    """Give a run another budget: labels, a share of its items, or money; what it comes to.

    Where the run had finished, and so had shown what its audit says, the change brings an audit of
    its own: of the labels added, as many as a run of that size would take.

    Raises:
        SettingsError: it is no budget, or below what is spent already.
        RunError: the run adapts a language model, whose refits were planned by its budget.
    """
    with _held(folder) as job:
        items = sum(len(rows) for rows in job.stock.segments) - len(job.stock.aside)
        price = job.settings.price
        wanted = parse_budget(text, items, price)
        with Ledger.open(folder.ledger) as ledger:
            spent, paid = ledger.spent, ledger.spent_money
        if wanted.labels < spent or (wanted.money is not None and wanted.money < paid):
            raise SettingsError(
                f"a budget of '{text}' is {wanted.labels} labels, but {spent} are bought or"
                f" promised already: give at least {spent}"
            )
        audits = job.terms.audits
        if _finished(folder):
            audits = (*audits, min(default_size(wanted.labels - spent), wanted.labels - spent))
        terms = Terms(wanted.labels, wanted.money, audits)
        job.renewed(terms=terms)
        reopened(folder, f"the budget is {wanted.labels} labels from here on")
    return terms


def add_file(folder: RunFolder, path: str | Path, kind: Literal["pool", "owned"]) -> int:
    """Give a run more items to choose from, or labels that are held already; how many.

    Raises:
        DataError: the file cannot be read as the run's own was, or brings ids that are taken.
        RunError: the run adapts a language model.
    """
    with _held(folder) as job:
        more = More(kind, str(Path(path).resolve()))
        before = len(job.stock.dataset.items)
        added = len(with_more(job.stock, more, job.settings).dataset.items) - before
        job.renewed(more=more)
        what = "items to choose from" if kind == "pool" else "labels that were held"
        reopened(folder, f"{added} {what} came")
    return added


@contextmanager
def _held(folder: RunFolder) -> Iterator[Job]:
    """The job of a run that has begun, held by this process."""
    if not folder.ledger.exists():
        raise RunError(
            f"the run {folder.path} has asked nothing yet, so nothing of it changes on the way:"
            f" `stacksl resume {folder.path}`, or start it anew"
        )
    with folder.locked():
        job = Job.open(folder)
        if job.settings.adapts:
            raise RunError(
                "the refits of a language model were planned by the budget and the items it began"
                " with: start a new run for other ones"
            )
        yield job


def _finished(folder: RunFolder) -> bool:
    return (folder.path / "facts.json").is_file()


def reopened(folder: RunFolder, sentence: str) -> None:
    """Let a finished run be taken up again; what its state told stays."""
    state = folder.read_state()
    name = state.pop("state")
    if name == "finished":
        folder.write_state("stopped", **{**state, "sentence": sentence})
