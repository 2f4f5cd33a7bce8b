"""A session whose refits are made beside the entry of answers, one before each purchase."""

from __future__ import annotations

from dataclasses import dataclass

from stacksl.runs.session.session import Session


@dataclass(slots=True, eq=False, kw_only=True)
class PageSession(Session):
    """A session of the page.

    Answers entered during a refit are learnt after it, and are in the next one: that is made before
    the next purchase, whenever the run is killed in between (`Game.ahead`).

    Attributes:
        again: whether to make a refit and discard it where none is due, so that new questions come
            as late after answers that are not learnt, as those of an audit, as after others.
        alone: whether the next purchase has no row of a refit, made or discarded.
    """

    again: bool = False
    alone: bool = False

    def refit_if_due(self) -> None:
        """Refit the model before a purchase, and not after it."""
        if self.ahead:
            return
        self.alone = not (self.trainer.due or self.again)
        if self.trainer.due:
            Session.refit_if_due(self)
        elif self.again:
            self.trainer.repeat()
        self.ahead = True

    def end_purchase(self, posted: bool) -> None:
        """Note that the purchases possible now were made; whether any was `posted`."""
        Session.end_purchase(self, posted or self.alone)
