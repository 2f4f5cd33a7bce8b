"""The loop of a run: a learner buys labels from a labeler, within the budget of a ledger.

`Game` has the parts of the loop, among them the labels learned so far and how many may be bought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Block, Inputs
from stacksl.core.gates.registry import LLF
from stacksl.core.learner import Learner
from stacksl.errors import LabelerError, kind_of
from stacksl.labelers.protocol import Labeler, Request, requests_of
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Receipt
from stacksl.ledger.queries import LedgerReader
from stacksl.models.audit import WouldBuy
from stacksl.runs.items.corpus import Corpus
from stacksl.types import Decision, Label

if TYPE_CHECKING:
    from stacksl.runs.loop.choosers import Pool, Stream
    from stacksl.runs.loop.language_trainer import LanguageTrainer
    from stacksl.runs.loop.linear_trainer import LinearTrainer
    from stacksl.runs.session.playback import Playback

    Trainer: TypeAlias = LinearTrainer | LanguageTrainer
    """Refits a model on the labels learned so far, and writes a `refit` row into the ledger.

    It learns the labels before that row: where answers can be entered meanwhile (`attended`), the
    row comes first.
    """

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` in a phase, and what was `spent` of the `budget`.

    A stream plays `rounds`. A pool buys `labels`: `done` and `total` count all, `spent` and
    `budget` those to train on. `accuracy` is the share of right choices before each label was seen,
    on asked items, None where people answer; `money` what labels cost so far.
    `refitted` says that the model was refitted. At the end `accuracy` is the final model's, if it
    was measured.
    """

    phase: Literal["features", "rounds", "labels", "refit", "test", "report", "topics", "rows"]
    done: int
    total: int
    spent: int = 0
    budget: int = 0
    accuracy: float | None = None
    money: float | None = None
    refitted: bool = False


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


# Keys of `refit` rows
ATTENDED = "attended"  # answers could be entered while the refit was made
BEGINS = "begins"  # the number of a language model's refit, which learns the labels before this row
UNUSED = "unused"  # no refit: what the one before was made for bought nothing

DRAWN = "drawn"  # the reason of a purchase that was drawn at random


@dataclass(slots=True, eq=False)
class Examples:
    """The training examples of a run.

    Attributes:
        corpus: the items.
        block: the features of all items; a refit of a language model replaces them.
        bought: (row, label, choice before it was seen) of each label learned, in that order; the
            choice is −1 for an owned label, which had no round. One that is withdrawn and learned
            again comes last.
        shown: C_t at the purchase, by row, where it had not all candidates.
        drawn: the rows that were bought at random, not by rank.
        relabeled: how often a label was replaced or withdrawn.
        seen: the row of each round, and how many had been `taken` before it.
        taken: the rows that were bought or have owned labels, in order.
    """

    corpus: Corpus
    block: Block
    bought: list[tuple[int, int, int]] = field(default_factory=list)
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)
    drawn: set[int] = field(default_factory=set)
    relabeled: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    _choices: dict[int, int] = field(default_factory=dict)  # of withdrawn labels, by row

    def inputs(self, item: str) -> Inputs:
        """The current features of an item."""
        return self.block[self.corpus.row[item]]

    def note(self, decision: Decision) -> None:
        """Note a round, as the ledger recorded it."""
        row = self.corpus.row[decision.item]
        self.seen.append((row, len(self.taken)))
        if decision.asked:
            self.taken.append(row)

    def record(self, decision: Decision, label: Label, inputs: Inputs) -> None:
        """Add a learned label of an item with these features."""
        row = self.corpus.row[decision.item]
        if decision.choice < 0:  # an owned one had no round
            self.taken.append(row)
        self.bought.append((row, label.index, decision.choice))
        if decision.reason == DRAWN:
            self.drawn.add(row)
        if len(decision.presented) < inputs.size:
            self.shown[row] = decision.presented

    def relabel(self, item: str, index: int | None) -> None:
        """Replace the label of an item, which later refits learn; None withdraws it."""
        row = self.corpus.row[item]
        position = next((n for n, (bought, _, _) in enumerate(self.bought) if bought == row), None)
        if position is None:
            if index is not None:
                self.bought.append((row, index, self._choices.pop(row)))
        elif index is None:
            self._choices[row] = self.bought.pop(position)[2]
        else:
            self.bought[position] = (row, index, self.bought[position][2])
        self.relabeled += 1


@dataclass(frozen=True, slots=True)
class PurchaseLimits:
    """Limits of the open purchases.

    Attributes:
        size: how many, in all; one more where an item for two annotators takes the last place.
        measuring: the share of all rows that belongs to the audit.
        overlap: how many of the first items bought are answered by two annotators.
        start: in [0, 1), for the rounding of places; it is uniform, so that each batch has that
            share of the audit on average, and no number of a batch tells what its rows are for.
    """

    size: int = 25
    measuring: float = 0.0
    overlap: int = 0
    start: float = 0.0

    def room(self, ledger: LedgerReader) -> int:
        """How many training labels can be bought now, up to `size` open purchases.

        The places of the audit follow the number of all answers of any purpose: what
        an answer was for would show in whether it makes room for a purchase.
        """
        leases = ledger.open_purchases()
        open_audits = sum(lease.purpose == "audit" and not lease.slot for lease in leases)
        if not self.measuring or not open_audits:
            return self.size - (len(leases) - open_audits)
        issued_rows = ledger.accounts.spent - len(leases) + self.size  # that were or will be out
        audit_places = int(issued_rows * self.measuring + self.start)
        audits = min(audit_places, ledger.accounts.spent - ledger.accounts.asked)
        return issued_rows - audits - ledger.accounts.asked

    def picks(self, ledger: LedgerReader) -> int:
        """How many items can be bought now: one for two annotators is two purchases."""
        room, doubles = self.room(ledger), self._doubles(ledger)
        return room - doubles if room >= 2 * doubles else -(-room // 2)

    def slots(
        self, decisions: Sequence[Decision], ledger: LedgerReader, train: int
    ) -> dict[str, int]:
        """The items among `decisions` that two annotators answer, each with 2.

        A second label is one of the `train` labels that train: what an audit gave back, and what is
        kept for its second look, buys none.
        """
        if not self.overlap:
            return {}
        wanted_items = [decision.item for decision in decisions if decision.status == "wanted"]
        labels_left = max(0, train - ledger.accounts.asked - len(wanted_items))
        return dict.fromkeys(wanted_items[: min(labels_left, self._doubles(ledger))], 2)

    def _doubles(self, ledger: LedgerReader) -> int:
        return max(0, self.overlap - ledger.accounts.doubled)


class Background(Protocol):
    """Gives the result of a computation, during which answers may be entered and learned."""

    def __call__(self, compute: Callable[[], T], /) -> T:
        """The result of `compute`, which reads neither the ledger nor what is learned after it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Game:
    """The parts that the loop runs on: items with features, and all that acts on them.

    Attributes:
        ledger: records questions and answers, and enforces the budget.
        learner: decides which labels to buy, and learns from them.
        labeler: answers what is bought.
        examples: the features of the items, and the labels learned so far.
        trainer: refits the model during the run and at its end.
        batches: how many purchases may be open at a time.
        enough: whether to stop buying before the budget is spent.
        would_buy: the audited rows that are not like the rows which the run leaves.
        skips_refit: whether the next purchase is made without a refit: the last refit was made for
            it, and labels that are not in that were learned meanwhile.
    """

    ledger: Ledger
    learner: Learner
    labeler: Labeler
    examples: Examples
    trainer: Trainer
    batches: PurchaseLimits = field(default_factory=PurchaseLimits)
    enough: Callable[[], bool] = bool  # false
    would_buy: WouldBuy = field(default_factory=WouldBuy)
    skips_refit: bool = False

    @property
    def corpus(self) -> Corpus:
        """The items and their roles."""
        return self.examples.corpus

    def requests(self) -> list[Request]:
        """The open purchases, as requests to a labeler."""
        items, row = self.corpus.items, self.corpus.row
        return requests_of([(p, items[row[p.item]]) for p in self.ledger.open_purchases()])

    def adopt(self, posted: Sequence[Decision]) -> None:
        """Give the learner the decisions as the ledger recorded them, and note their rounds."""
        self.learner.adopt(posted, [self.examples.inputs(decision.item) for decision in posted])
        for decision in posted:
            self.examples.note(decision)

    def slots(self, batch: Sequence[Decision]) -> dict[str, int]:
        """The items of a batch of which several labels are bought, each with how many."""
        return self.batches.slots(batch, self.ledger, self.learner.budget)

    def take_answers(self) -> list[Receipt]:
        """Enter the labeler's new answers into the ledger; a receipt for each, in order.

        Raises:
            LabelerError: an answer cannot be taken; all others were entered.
        """
        answers, durable = self.labeler.answers(), not self.labeler.repeatable
        if not isinstance(answers, Iterable):
            raise LabelerError(
                f"the labeler '{self.labeler.name}' should give its answers as a list or an"
                f" iterator, got {kind_of(answers)}: correct its `answers`, then resume"
            )
        if isinstance(answers, Sequence):
            with suppress(LabelerError):
                return self.ledger.take(answers, durable=durable)
        receipts, first_error = list[Receipt](), None
        for answer in answers:
            try:
                receipts += self.ledger.take([answer], durable=durable)
            except LabelerError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return receipts

    def learn(self, receipts: Iterable[Receipt]) -> None:
        """Learn from answers, in order, those whose receipts have a label to learn."""
        for receipt in receipts:
            if receipt.example is not None:
                self.apply_label(*receipt.example)
            elif receipt.relabels:
                self.examples.relabel(receipt.answer.item, receipt.answer.index)

    def apply_label(self, decision: Decision, label: Label) -> None:
        """Learn one label, at the current θ and with the current features.

        An owned label had no round; its own candidate takes the place of the choice.
        """
        owned = decision.choice < 0
        played_decision = replace(decision, choice=label.index) if owned else decision
        inputs = self.examples.inputs(decision.item)
        self.learner.learn(played_decision, inputs, label)
        self.examples.record(decision, label, inputs)

    def refit_if_due(self) -> None:
        """Refit the model on the labels so far, if a refit is due."""
        if self.trainer.due and not self.skips_refit:
            self.trainer.refit()

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays of learner and trainer, the audited rows noted, and the c of the gate `llf`.

        This was calibrated on the first items, whose features may be erased since.
        """
        arrays = {name: np.asarray(array) for name, array in self.learner.state().items()}
        if isinstance(self.learner.gate, LLF):
            arrays["gate_scale"] = np.array(self.learner.gate.gate_scale)
        return arrays | self.would_buy.state() | self.trainer.state()

    def save(self) -> None:
        """Save the arrays as they are now, with the pending rows of the ledger before them."""
        self.ledger.save_arrays(self.learner.round, self.state())

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.learner.restore(arrays)
        self.would_buy = WouldBuy.of(arrays)
        self.trainer.restore(arrays)

    def reschedule(self, payload: Mapping[str, Any]) -> None:
        """Apply a `budget` row of the ledger to the learner."""
        # A learner restored from later arrays is past this horizon; a later row then sets it.
        horizon = max(int(payload["rounds"]), self.learner.round)
        self.learner.reschedule(budget=int(payload["train"]), horizon=horizon)


def play(game: Game, chooser: Stream | Pool | Playback) -> Iterator[list[Decision]]:
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
        game.learn(game.take_answers())
        yield posted
        game.refit_if_due()
