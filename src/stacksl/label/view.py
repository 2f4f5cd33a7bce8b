"""What the page shows of a run: replaced as a whole, and read by the threads of the server.

Labels that are reserved but in nobody's rows are left out: they are those of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stacksl.data import Classes
from stacksl.labelers.sheets.rows import Asked
from stacksl.report.quality import Differing

State = Literal["open", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class Person:
    """An annotator as the owner sees them.

    Attributes:
        name: of the annotator.
        open, answered, skipped: rows; `answered` counts all purposes together.
        cost: of the accepted answers, in micro-units.
        an_hour: answers an hour lately, if there are enough.
        agreed, compared: training answers that a second person gave too, and how many agree.
        standing: `idle`, `away`, `set aside` or empty.
    """

    name: str
    open: int = 0
    answered: int = 0
    skipped: int = 0
    cost: int = 0
    an_hour: float | None = None
    agreed: int = 0
    compared: int = 0
    standing: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A run as the page shows it.

    Attributes:
        state: `open` until the run has finished or failed.
        rows: the open rows of each annotator, oldest sheet first, else by their random keys, so
            that the order says nothing of the reason for a row.
        people: the annotators, in the order of the settings.
        answered: accepted answers, in all.
        budget: the most labels.
        money: the most micro-units; None where labels have no price.
        agreed, compared: pairs of training answers to one item, and how many agree.
        differing: annotators who answer in another way than the others.
        classes: the fixed classes, if any.
        sentence: why the run failed.
    """

    state: State = "open"
    rows: Mapping[str, tuple[Asked, ...]] = field(default_factory=dict)
    people: tuple[Person, ...] = ()
    answered: int = 0
    budget: int = 0
    money: int | None = None
    agreed: int = 0
    compared: int = 0
    differing: tuple[Differing, ...] = ()
    classes: Classes | None = None
    sentence: str | None = None

    def of(self, name: str) -> Person:
        """One annotator."""
        return next((each for each in self.people if each.name == name), Person(name))

    @property
    def hours(self) -> float | None:
        """Hours to the last label at everybody's pace of late; None where nobody has one."""
        pace = sum(each.an_hour or 0.0 for each in self.people)
        return (self.budget - self.answered) / pace if pace else None
