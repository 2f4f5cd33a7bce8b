"""The round of the game, and the two drivers that play it: a stream and a pool.

`play` is Algorithms 1 and 2 of the paper with the budget in the ledger's hands; which of the two it
is depends on the learner's gate alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from stacksl.game.followers import Follower
from stacksl.game.inputs import Block, Inputs
from stacksl.game.learner import Learner
from stacksl.items import Decision, Label
from stacksl.labels.labelers import Labeler
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Receipt

__all__ = ["Table", "play", "settle", "stream"]


@dataclass(slots=True, eq=False)
class Table:
    """Who plays a run: follower, learner, ledger and labeler, over items with known features.

    `block` holds the features of all items, `ids` their ids in the same order, `row` the way back;
    a language model's refit puts renewed features in the block's place.
    `bought` grows by (row of the item, label, choice before it was seen) with each label learnt;
    `batch` is how many purchases may be open in all, `audit_share` how many of them are the audit's
    while it is open; the first `overlap` purchases are made of two annotators each.
    `min_per_class` labels of each class are bought of a pool, as far as they can be.
    `agreed` is what the last change of the budget said, None before the first.
    `shown` has C_t at the purchase, by the item's row, for those of them that were not presented
    whole. `aside` are rows that no training label is bought of: those of the audit, and those whose
    label was owned before.
    """

    follower: Follower
    learner: Learner
    ledger: Ledger
    labeler: Labeler
    ids: Sequence[str]
    block: Block
    row: Mapping[str, int]
    aside: Set[int] = frozenset()
    batch: int = 25
    audit_share: int = 0
    overlap: int = 0
    min_per_class: int = 0
    agreed: Mapping[str, int] | None = None
    bought: list[tuple[int, int, int]] = field(default_factory=list)
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def room(self) -> int:
        """How many training labels can be asked for now, so that `batch` purchases are open."""
        leases = self.ledger.open_purchases()
        audit = sum(lease.purpose == "audit" for lease in leases)
        return self.batch - (len(leases) - audit) - min(audit, self.audit_share)

    @property
    def picks(self) -> int:
        """How many items fill the room: one that goes to two annotators is two purchases."""
        room, doubles = self.room, self._doubles
        return room - doubles if room >= 2 * doubles else -(-room // 2)

    @property
    def _doubles(self) -> int:
        return max(0, self.overlap - self.ledger.doubled)

    def slots(self, decisions: Sequence[Decision]) -> dict[str, int]:
        """Items that two annotators are to answer: the first `overlap` that are bought."""
        if not self.overlap:
            return {}
        wanted = [decision.item for decision in decisions if decision.status == "wanted"]
        return dict.fromkeys(wanted[: self._doubles], 2)

    def inputs_of(self, decision: Decision) -> Inputs:
        """The current features of the decision's item, however late its answer comes."""
        return self.block[self.row[decision.item]]

    def learn(self, decision: Decision, label: Label) -> None:
        """Let the learner learn one label, at its current θ with the current features.

        A label that was held before was never played: its own candidate is taken for the choice.
        """
        owned = decision.choice < 0
        played = replace(decision, choice=label.index) if owned else decision
        self.learner.learn(played, self.inputs_of(decision), label)
        self.record(decision, label)

    def record(self, decision: Decision, label: Label) -> None:
        """Count a label among the bought ones without learning it."""
        row = self.row[decision.item]
        self.bought.append((row, label.index, decision.choice))
        if len(decision.presented) < self.block[row].size:
            self.shown[row] = decision.presented

    def correct(self, item: str, label: Label) -> None:
        """Put a corrected label in the place of the first, for the refits to come."""
        row = self.row[item]
        for place, (bought, _, choice) in enumerate(self.bought):
            if bought == row:
                self.bought[place] = (row, label.index, choice)


def play(rows: Sequence[int], table: Table) -> list[Decision]:
    """One block of rounds over the items in `rows`: decide, reserve, adopt, ask, learn.

    Returns the decisions as the ledger posted them: reserved, skipped or refused.
    """
    follower, learner, ledger, labeler = table.follower, table.learner, table.ledger, table.labeler
    ids, inputs = [table.ids[r] for r in rows], [table.block[r] for r in rows]

    presented = follower.respond(inputs, learner.scorer)  # C_t
    decisions = learner.decide(ids, inputs, presented, asked=ledger.asked)
    posted = ledger.post(decisions, table.slots(decisions))  # a certificate each; the budget holds
    learner.adopt(posted, inputs)
    labeler.ask(ledger.open_purchases())  # may answer now, tomorrow, twice or never
    settle(table)
    return posted


def settle(table: Table) -> list[Receipt]:
    """Take what the labeler has answered into the ledger, and learn from it; the receipts."""
    answers = table.labeler.answers()
    receipts = table.ledger.take(answers, durable=not table.labeler.repeatable)
    for receipt in receipts:
        if receipt.lesson is not None:
            table.learn(*receipt.lesson)
    return receipts


def stream(order: Sequence[int], table: Table, size: int = 1) -> Iterator[list[Decision]]:
    """Each item once, in `order`, from the learner's round on, until a batch is open.

    Blocks are cut at fixed absolute positions, so an interrupted run cuts them alike.
    """
    while (start := table.learner.round) < len(order) and table.room > 0:
        stop = min(len(order), (start // size + 1) * size)
        yield play(order[start:stop], table)
