"""A session whose refits are made beside the entry of answers, one before each purchase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stacksl.labelers.protocol import Pending, Request
from stacksl.ledger.purchases import Answer, Handed
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

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests."""
        self.sheets.ask(requests)

    def answers(self) -> list[Answer]:
        """None: each answer is entered as it arrives."""
        return []

    def pending(self) -> list[Pending]:
        """Assign open requests; they are on the page, in no file."""
        self.rows = self.sheets.assign()
        self.assigned()
        return []
