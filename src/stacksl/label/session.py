"""A session whose refits are made beside the entry of answers, one before each purchase.

And its labeler: people, maybe with a model beside them that is asked beside the entry as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stacksl.labelers.protocol import Pending, Request
from stacksl.ledger.events import SOFT
from stacksl.ledger.purchases import Answer, Handed
from stacksl.runs.loop.trainer import Beside, at_once
from stacksl.runs.session.assignment import SheetLabeler
from stacksl.runs.session.session import Session


@dataclass(slots=True, eq=False, kw_only=True)
class PageSession(Session):
    """A session of the page.

    Answers entered during a refit are learnt after it, and are in the next one: that is made before
    the next purchase, whenever the run is killed in between (`Game.ahead`).

    Attributes:
        refitted: whether a refit was made for the next purchase.
    """

    refitted: bool = False

    def refit_if_due(self) -> None:
        """Refit the model before a purchase, and not after it."""
        if self.ahead:
            return
        self.refitted = self.trainer.due
        Session.refit_if_due(self)
        self.ahead = True

    def end_purchase(self, posted: bool) -> None:
        """Note that the purchases possible now were made; whether any was `posted`."""
        Session.end_purchase(self, posted or not self.refitted)


class PageLabeler:
    """The labeler of a run while the page is open: rows are assigned, and no sheet is written.

    The annotators, keys and orders are those of `sheets`, so that a row may be answered either way.
    """

    repeatable = False

    def __init__(self, sheets: SheetLabeler) -> None:
        self.sheets, self.name = sheets, sheets.name
        self.rows: list[Handed] = []
        self.assigned: Callable[[], None] = lambda: None
        self.beside: Beside = at_once
        self.asking = False  # the model, on another thread

    @property
    def warnings(self) -> list[str]:
        """What the answers of a model beside people gave reason to."""
        return self.sheets.warnings

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests."""
        if self.asking:  # what it is asked is its own until it has answered
            requests = [each for each in requests if each.purpose != SOFT]
        self.sheets.ask(requests)

    def answers(self) -> list[Answer]:
        """None of people: each is entered as it arrives; those of a model beside them.

        The model is asked on another thread, which writes no ledger.
        """
        if self.sheets.model is None or not self.sheets.asks_now:
            return self.sheets.answers()
        self.asking = True
        try:
            return self.beside(self.sheets.model.answers)
        finally:
            self.asking = False

    def pending(self) -> list[Pending]:
        """Assign open requests; they are on the page, in no file, but for those of a model."""
        self.rows = self.sheets.assign()
        self.assigned()
        return self.sheets.model_pending()
