"""One game: a learner, a ledger, a labeler and a trainer over the same items, and their rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stacksl.core.learner import Learner
from stacksl.core.parts import Part
from stacksl.labelers.protocol import Labeler, Request
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Purchase, Receipt
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.loop.batches import Batches
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.trainer import Trainer
from stacksl.types import Decision, Label


@dataclass(slots=True, eq=False, kw_only=True)
class Game:
    """Who plays, over items with known features.

    Attributes:
        ledger: what was asked and answered; the budget is in its hands.
        learner: decides what to ask, and learns.
        labeler: answers.
        examples: the features of the items, and what was learnt of them.
        trainer: refits the model on the way and at the end.
        batches: how many labels are asked for at a time.
        parts: of the user's own, by name: they learn what the learner learns.
    """

    ledger: Ledger
    learner: Learner
    labeler: Labeler
    examples: Examples
    trainer: Trainer
    batches: Batches = field(default_factory=Batches)
    parts: Mapping[str, Part] = field(default_factory=dict)

    @property
    def corpus(self) -> Corpus:
        """The items, and what each is for."""
        return self.examples.corpus

    def requests(self) -> list[Request]:
        """What was bought and is not answered, as a labeler is asked it."""
        return [self._request(purchase) for purchase in self.ledger.open_purchases()]

    def _request(self, purchase: Purchase) -> Request:
        item = self.corpus.items[self.corpus.row[purchase.item]]
        return Request.of(purchase, item, tuple(range(len(item.candidates))))

    def take_answers(self) -> list[Receipt]:
        """Take what the labeler has answered into the ledger; a receipt for each, in order."""
        return self.ledger.take(self.labeler.answers(), durable=not self.labeler.repeatable)

    def learn(self, receipt: Receipt) -> None:
        """Learn what an answer teaches, if it is anything."""
        if receipt.lesson is not None:
            self.teach(*receipt.lesson)

    def teach(self, decision: Decision, label: Label) -> None:
        """Let the learner learn one label, at its current θ with the current features.

        A label that was owned was never played: its own candidate stands for the choice.
        """
        owned = decision.choice < 0
        played = replace(decision, choice=label.index) if owned else decision
        self.learner.learn(played, self.examples.inputs(decision.item), label)
        self.examples.record(decision, label)
        for part in self.parts.values():
            part.learn(decision, label)

    def refit_if_due(self) -> None:
        """Refit the model on the labels so far, where it is time."""
        if self.trainer.due:
            self.trainer.refit()

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps: the arrays of learner and trainer, and PART/NAME of a part's."""
        found = {name: np.asarray(array) for name, array in self.learner.state().items()}
        found |= self.trainer.state()
        for name, part in self.parts.items():
            found |= {f"{name}/{key}": np.asarray(each) for key, each in part.state().items()}
        return found

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Be as `state` described."""
        self.learner.restore(arrays)
        self.trainer.restore(arrays)
        for name, part in self.parts.items():
            own = {key: each for key, each in arrays.items() if key.startswith(f"{name}/")}
            part.restore({key.removeprefix(f"{name}/"): each for key, each in own.items()})

    def reschedule(self, payload: Mapping[str, object]) -> None:
        """What a `budget` row does to the learner."""
        # A checkpoint may lie behind this row and the next one, whose horizon then takes over.
        horizon = max(_whole(payload["rounds"]), self.learner.round)
        self.learner.reschedule(budget=_whole(payload["train"]), horizon=horizon)


class Chooser(Protocol):
    """Says what a round is about."""

    def next(self, game: Game) -> list[Decision]:
        """The decisions of the next rounds: the labels that are wanted, and what is passed over.

        Empty where no round is left, or where none can be played before an answer arrives.
        """


def play(game: Game, chooser: Chooser) -> Iterator[list[Decision]]:
    """Algorithms 1 and 2 of the paper, with the budget in the ledger's hands.

    Which of the two it is depends on the learner's gate alone; whether the items pass by or lie in
    a pool, on the chooser. Gives what the ledger made of each batch: reserved, skipped or refused.
    """
    ledger, learner, labeler = game.ledger, game.learner, game.labeler
    game.refit_if_due()
    while batch := chooser.next(game):  # stream: the next item; pool: the best not yet bought
        posted = ledger.post(batch, game.batches.slots(batch, ledger))  # the budget is checked here
        learner.adopt(posted, [game.examples.inputs(decision.item) for decision in posted])
        labeler.ask(game.requests())  # may answer now, tomorrow, twice or never
        for receipt in game.take_answers():
            game.learn(receipt)
        yield posted
        game.refit_if_due()


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
