"""What the page shows of a run: replaced as a whole, and read by the threads of the server.

Labels that are reserved but in nobody's rows are left out: they are those of the audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from stacksl.data import Classes
from stacksl.labelers.sheets.rows import Asked
from stacksl.report.quality import Differing
from stacksl.runs.session.assignment import SheetLabeler

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
class Silence:
    """A model beside people that is awaited and gives no label.

    Attributes:
        model: its name.
        host: where it is asked.
        since: the time of the first call without an answer; empty where it answered.
        why: why it is not asked now.
        again: the time at which it is asked again; empty where it is not.
    """

    model: str
    host: str
    since: str
    why: str
    again: str

    @classmethod
    def of(cls, labeler: SheetLabeler, again: float) -> Silence | None:
        """The silence of a model that is asked again at `again`, in seconds since the epoch."""
        model, since = labeler.model, labeler.silent_since
        assert model is not None  # it is silent
        for place, _, why in model.pending():
            begun = _shown(datetime.fromisoformat(since)) if since else ""
            then = _shown(datetime.fromtimestamp(again, UTC)) if math.isfinite(again) else ""
            return cls(model.name.partition(":")[2], urlsplit(place).netloc, begun, why, then)
        return None


def _shown(time: datetime) -> str:
    """A time to the minute.

    >>> _shown(datetime(2026, 5, 4, 7, 8, 9, tzinfo=UTC))
    '2026-05-04 07:08 UTC'
    """
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


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
        silence: of a model beside people.
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
    silence: Silence | None = None

    def of(self, name: str) -> Person:
        """One annotator."""
        return next((each for each in self.people if each.name == name), Person(name))

    @property
    def hours(self) -> float | None:
        """Hours to the last label at everybody's pace of late; None where nobody has one."""
        pace = sum(each.an_hour or 0.0 for each in self.people)
        return (self.budget - self.answered) / pace if pace else None
