"""People and a model as one labeler: each request goes to whom its purpose is for."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.labelers.chat.labeler import ChatLabeler
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

    @property
    def asks_now(self) -> bool:
        """Whether the model is asked by the next call of `answers`."""
        return self._awaited() > 0 and not self.halted

    @property
    def halted(self) -> bool:
        """Whether labels of the model are awaited and it is not asked, until `again`."""
        return self._awaited() > 0 and getattr(self.model, "halted", False)

    def again(self) -> None:
        """Ask the model again by the next call of `answers`."""
        if isinstance(self.model, ChatLabeler):
            self.model.again()

    def left(self, requests: Sequence[Request]) -> list[Answer]:
        """What was answered or may have been billed of these requests; no call is made."""
        return self.model.left(requests) if isinstance(self.model, ChatLabeler) else []

    def _awaited(self) -> int:
        return sum(lease.purpose == SOFT for lease in self.ledger.open_purchases())

    def from_people(self) -> list[Answer]:
        """People's answers since the last call; the model is not asked."""
        return super().answers()

    def pending(self) -> list[Pending]:
        """People's sheets with open rows, and where the model's answers are awaited."""
        return [*super().pending(), *self.model_pending()]

    def model_pending(self) -> list[Pending]:
        """Where the model's answers are awaited, and since when it has given none."""
        since = getattr(self.model, "silent_since", None)
        said = "the model does not answer" + (f" since {since}" if since else "")
        return [
            each._replace(why=f"{said}: {each.why}") if each.why else each
            for each in self.model.pending()
        ]
