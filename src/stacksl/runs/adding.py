"""What a user asks of a run's classes: one more of them, and an answer once more.

A none-of-these is bought and paid for. Where its right text names the class that is added it is
learnt for nothing; otherwise nobody knows whether the class would have been chosen, and only a new
label can tell. So those are offered again when the price was agreed to, never by themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from stacksl.data import Classes, write_classes
from stacksl.data.values import one_line
from stacksl.errors import RunError, SettingsError
from stacksl.labels.ledger import Ledger
from stacksl.runs.changing import reopened
from stacksl.runs.classes import answered_none, in_common, named
from stacksl.runs.execution import execute
from stacksl.runs.folder import RunFolder, write_atomic
from stacksl.runs.job import Job
from stacksl.runs.progress import Report
from stacksl.runs.sources import CLASSES

__all__ = ["Prospect", "add_class", "ask_again", "prospect"]


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the none-of-these of a run come to, with a class that is to be added or without one.

    Attributes:
        classes: how many there are, the one to be added among them.
        mapped: answers to train on whose right text names it: learnt, and free.
        measured: answers of the audit that name it: right from then on where the model says so.
        again: the other items to train on that were answered with none; to be bought once more.
        price: micro-units of one label; None where the run has no price.
        left: labels that can still be bought.
    """

    classes: int
    mapped: int
    measured: int
    again: tuple[str, ...]
    price: int | None
    left: int

    @property
    def cost(self) -> int | None:
        """Micro-units of all labels that would be bought once more."""
        return None if self.price is None else self.price * len(self.again)


def prospect(folder: RunFolder, name: str | None = None) -> Prospect:
    """What a class `name` would do to a run; without one, what could be offered again as it is.

    Raises:
        RunError: the run has no fixed classes, trains a language model, or has asked nothing yet.
        SettingsError: the name is empty, or of a class that there is.
    """
    job = _job(folder)
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        return _prospect(job, ledger, name)


def add_class(
    folder: RunFolder,
    name: str,
    report: Report,
    *,
    description: str = "",
    reopen: Collection[str] | bool = False,
) -> Prospect:
    """Add a class to a run that has begun, and go on with it; what it came to.

    Args:
        folder: the run's.
        name: of the class, as people are to read it.
        report: told how far the run is.
        description: what it means, where that helps.
        reopen: buy one more label of each item that was answered with none and does not name it,
            or of those among them that are given: what was agreed to while no answer came in.

    Raises:
        RunError, SettingsError: see `prospect`; or the budget has too few labels left to reopen.
    """
    with folder.locked():
        job = _job(folder)
        with Ledger.open(folder.ledger) as ledger:
            found = _agreed(_prospect(job, ledger, name), reopen)
        _expect_affordable(found, bool(reopen))
        _write(job, _tidy(name), _tidy(description))
    execute(Job.open(folder), report, reopen=found.again if reopen else ())
    return found


def ask_again(folder: RunFolder, report: Report, agreed: Collection[str] | bool = True) -> Prospect:
    """Buy one more label of each item answered with none before the last class was added.

    Of those that are `agreed` alone, where they are given.

    Raises:
        RunError: see `prospect`; or no class was added, nothing is to be asked, or too few labels
            are left.
    """
    with folder.locked():
        job = _job(folder)
        with Ledger.open(folder.ledger) as ledger:
            found = _agreed(_prospect(job, ledger, None), agreed)
        if not found.again:
            raise RunError(
                f"the run {folder.path} has no item to ask for once more: items answered with none"
                " of these are offered again after a class was added, each once for every class"
            )
        _expect_affordable(found, True)
        reopened(folder, f"{len(found.again)} items are asked for once more")
    execute(job, report, reopen=found.again)
    return found


def _agreed(found: Prospect, agreed: Collection[str] | bool) -> Prospect:
    """`found` with no more items to buy than were agreed to."""
    if isinstance(agreed, bool):
        return found
    return replace(found, again=tuple(item for item in found.again if item in agreed))


def _job(folder: RunFolder) -> Job:
    """A run that may take on a class."""
    if not folder.ledger.exists():
        raise RunError(
            f"the run {folder.path} has asked nothing yet: start it anew with the class among"
            " those of --classes"
        )
    job = Job.open(folder)
    if job.settings.adapts:
        raise RunError(
            "a language model's features are of the options it began with, so its run takes on no"
            " class on the way: start a new run with --classes, and give this one's labels to"
            " --owned"
        )
    if job.dataset.classes is None:
        raise RunError(
            f"the items of the run {folder.path} bring their own options, and a class is added to"
            " a fixed list of classes: correct the options in the data, and start a new run"
        )
    return job


def _prospect(job: Job, ledger: Ledger, name: str | None) -> Prospect:
    classes = job.dataset.classes or ()
    known = {in_common(each): index for index, each in enumerate(classes)}
    if name is not None:
        _expect_new(name, known)
    first = len(job.stock.began or classes)
    wanted = {each: index for each, index in known.items() if index >= first}
    if name is not None:
        wanted[in_common(name)] = len(classes)
    hits = named(ledger, wanted)
    mapped = {each.item for each in hits if each.purpose == "train"}
    rest = answered_none(ledger, anew=name is not None)
    return Prospect(
        classes=len(classes) + (name is not None),
        mapped=len(mapped),
        measured=sum(each.purpose == "audit" for each in hits),
        again=tuple(item for item in rest if item not in mapped),
        price=None if job.budget.money is None else job.budget.price,
        left=_left(job, ledger),
    )


def _left(job: Job, ledger: Ledger) -> int:
    """The labels that can be bought to train on when the run goes on."""
    audited = sum(row["purpose"] == "audit" for row in ledger.export())
    if job.now is None:
        return ledger.left
    return job.terms.labels - ledger.spent - max(0, sum(job.terms.audits) - audited)


def _expect_new(name: str, known: dict[str, int]) -> None:
    said = in_common(name)
    if not said or "\0" in name:
        raise SettingsError("a class needs a name of one or more characters: give it with --add")
    if said in known:
        raise SettingsError(
            f"the class is there already, as number {known[said] + 1} of {len(known)} (but for"
            " case and spaces): choose another name"
        )


def _expect_affordable(found: Prospect, reopen: bool) -> None:
    if reopen and len(found.again) > found.left:
        raise SettingsError(
            f"{len(found.again)} items were to be asked for once more, but the budget has"
            f" {found.left} labels left: raise it first with `stacksl budget`, or leave --reopen"
            " out"
        )


def _tidy(text: str) -> str:
    return " ".join(text.split())


def _write(job: Job, name: str, description: str) -> None:
    """Keep the class in the run's folder; how many there were at first is kept before it."""
    classes = job.stock.classes
    assert classes is not None  # `_job` has seen to it
    if any("\t" in each or each != one_line(each).strip() for each in classes.names):
        raise RunError(
            "a class of this run has tabs or line breaks in its name, which a list of classes"
            " cannot hold: write each name on one line in the data, and start anew"
        )
    wider = write_classes(Classes((*classes.names, name), (*classes.descriptions, description)))
    job.renewed(classes_began=len(job.stock.began or classes.names), classes=wider)
    reopened(job.folder, f"a class was added: there are {len(classes.names) + 1} now")
    write_atomic(job.folder.path / CLASSES, wider)
