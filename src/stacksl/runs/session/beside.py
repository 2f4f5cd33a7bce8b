"""People and a model as one labeler: each request goes to whom its purpose is for."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.labelers.protocol import Labeler, Pending, Request
from stacksl.ledger.events import SOFT
from stacksl.ledger.purchases import Answer
from stacksl.runs.session.assignment import SheetLabeler


class PeopleAndModel(SheetLabeler):
    """The labeler of people, who get all requests but those of purpose `soft`, which a model gets.

    Args:
        sheets: of the people.
        model: answers at once, or waits for its server.
    """

    def __init__(self, sheets: SheetLabeler, model: Labeler) -> None:
        super().__init__(
            sheets.ledger,
            sheets.folder,
            sheets.settings,
            sheets.items,
            sheets.row,
            sheets.classes,
            sheets.began,
            sheets.away,
            sheets.alone,
        )
        self.model = model

    @property
    def warnings(self) -> list[str]:
        """What the model's answers gave reason to."""
        return list(getattr(self.model, "warnings", ()))

    def ask(self, requests: Sequence[Request]) -> None:
        """Note each request for whom it is for."""
        super().ask([each for each in requests if each.purpose != SOFT])
        self.model.ask([each for each in requests if each.purpose == SOFT])

    def answers(self) -> list[Answer]:
        """People's answers since the last call, then the model's."""
        return [*super().answers(), *self.model.answers()]

    def pending(self) -> list[Pending]:
        """People's sheets with open rows, and where the model's answers are awaited."""
        return [*super().pending(), *self.model.pending()]
