"""The loop of a run: a learner buys labels from a labeler, within the budget of a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stacksl.core.gates.registry import LLF
from stacksl.core.learner import Learner
from stacksl.labelers.protocol import Labeler, Request
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.loop.batches import Batches
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.trainer import Trainer
from stacksl.types import Decision, Label


@dataclass(slots=True, eq=False, kw_only=True)
class Game:
    """The parts that the loop runs on: items with features, and all that acts on them.

    Attributes:
        ledger: records questions and answers, and enforces the budget.
        learner: decides which labels to buy, and learns from them.
        labeler: answers what is bought.
        examples: the features of the items, and the labels learnt so far.
        trainer: refits the model during the run and at its end.
        batches: how many purchases may be open at a time.
        enough: whether to stop buying before the budget is spent.
        ahead: whether the next purchase is made without a refit: the last one was made for it,
            and labels that are not in it were learnt meanwhile.
    """

    ledger: Ledger
    learner: Learner
    labeler: Labeler
    examples: Examples
    trainer: Trainer
    batches: Batches = field(default_factory=Batches)
    enough: Callable[[], bool] = bool  # false
    ahead: bool = False

    @property
    def corpus(self) -> Corpus:
        """The items and their roles."""
        return self.examples.corpus

    def requests(self) -> list[Request]:
        """The open purchases, as requests to a labeler."""
        items, row = self.corpus.items, self.corpus.row
        leases = [(each, items[row[each.item]]) for each in self.ledger.open_purchases()]
        return [Request.of(each, item, tuple(range(len(item.candidates)))) for each, item in leases]

    def adopt(self, posted: Sequence[Decision]) -> None:
        """Give the learner the decisions as the ledger recorded them, and note their rounds."""
        self.learner.adopt(posted, [self.examples.inputs(decision.item) for decision in posted])
        for decision in posted:
            self.examples.note(decision)

    def slots(self, batch: Sequence[Decision]) -> dict[str, int]:
        """The items of a batch of which several labels are bought, each with how many."""
        return self.batches.slots(batch, self.ledger, self.learner.budget)

    def take_answers(self) -> list[Receipt]:
        """Enter the labeler's new answers into the ledger; a receipt for each, in order."""
        return self.ledger.take(self.labeler.answers(), durable=not self.labeler.repeatable)

    def learn(self, receipt: Receipt) -> None:
        """Learn from an answer, if its receipt has a label to learn."""
        if receipt.lesson is not None:
            self.teach(*receipt.lesson)
        elif receipt.relabels:
            self.examples.relabel(receipt.answer.item, receipt.answer.index)

    def teach(self, decision: Decision, label: Label) -> None:
        """Learn one label, at the current θ and with the current features.

        An owned label had no round; its own candidate takes the place of the choice.
        """
        owned = decision.choice < 0
        played = replace(decision, choice=label.index) if owned else decision
        self.learner.learn(played, self.examples.inputs(decision.item), label)
        self.examples.record(decision, label)

    def refit_if_due(self) -> None:
        """Refit the model on the labels so far, if a refit is due."""
        if self.trainer.due and not self.ahead:
            self.trainer.refit()

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays of learner and trainer, and the c of the gate `llf`.

        That was calibrated on the first items, whose features may be erased since.
        """
        arrays = {name: np.asarray(array) for name, array in self.learner.state().items()}
        if isinstance(self.learner.gate, LLF):
            arrays["gate_scale"] = np.array(self.learner.gate.gate_scale)
        return arrays | self.trainer.state()

    def save(self) -> None:
        """Save the arrays as they are now, with the pending rows of the ledger before them."""
        self.ledger.save_arrays(self.learner.round, self.state())

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.learner.restore(arrays)
        self.trainer.restore(arrays)

    def reschedule(self, payload: Mapping[str, object]) -> None:
        """Apply a `budget` row of the ledger to the learner."""
        # A learner restored from later arrays is past this horizon; a later row then sets it.
        horizon = max(_whole(payload["rounds"]), self.learner.round)
        self.learner.reschedule(budget=_whole(payload["train"]), horizon=horizon)


class Chooser(Protocol):
    """Selects the items of the next rounds."""

    def next(self, game: Game) -> list[Decision]:
        """The decisions of the next rounds: labels wanted and, of a stream, items skipped.

        Empty when no round is left, or when none can be played before an answer arrives.
        """


def play(game: Game, chooser: Chooser) -> Iterator[list[Decision]]:
    """Algorithms 1 and 2 of the paper, with the budget enforced by the ledger.

    The learner's gate decides which of the two it is, the chooser whether items are a stream or a
    pool. Yields each batch of decisions as the ledger posted it: reserved, skipped or refused.
    """
    ledger, labeler = game.ledger, game.labeler
    game.refit_if_due()
    while batch := chooser.next(game):  # stream: the next item; pool: the best not yet bought
        posted = ledger.post(batch, game.slots(batch))  # the budget is checked here
        game.adopt(posted)
        labeler.ask(game.requests())  # may answer now, tomorrow, twice or never
        for receipt in game.take_answers():
            game.learn(receipt)
        yield posted
        game.refit_if_due()


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
