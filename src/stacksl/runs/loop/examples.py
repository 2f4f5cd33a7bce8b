"""The labels that a run has learnt, and the features they are learnt with."""

from __future__ import annotations

from dataclasses import dataclass, field

from stacksl.core.blocks import Block, Inputs
from stacksl.runs.items.corpus import Corpus
from stacksl.types import Decision, Label

DRAWN = "drawn"  # the reason of a purchase that was drawn at random


@dataclass(slots=True, eq=False)
class Examples:
    """The training examples of a run.

    Attributes:
        corpus: the items.
        block: the features of all items; a refit of a language model replaces them.
        bought: (row, label, choice before it was seen) of each label learnt, in that order; the
            choice is −1 for an owned label, which had no round. One that is withdrawn and learnt
            again comes last.
        shown: C_t at the purchase, by row, where it had not all candidates.
        drawn: the rows that were bought at random, not by rank.
        relabelled: how often a label was replaced or withdrawn.
        seen: the row of each round, and how many had been `taken` before it.
        taken: the rows that were bought or have owned labels, in order.
    """

    corpus: Corpus
    block: Block
    bought: list[tuple[int, int, int]] = field(default_factory=list)
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)
    drawn: set[int] = field(default_factory=set)
    relabelled: int = 0
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

    def record(self, decision: Decision, label: Label) -> None:
        """Add a learnt label."""
        row = self.corpus.row[decision.item]
        if decision.choice < 0:  # an owned one had no round
            self.taken.append(row)
        self.bought.append((row, label.index, decision.choice))
        if decision.reason == DRAWN:
            self.drawn.add(row)
        if len(decision.presented) < self.block[row].size:
            self.shown[row] = decision.presented

    def relabel(self, item: str, index: int | None) -> None:
        """Replace the label of an item, which later refits learn; None withdraws it."""
        row = self.corpus.row[item]
        place = next((n for n, (bought, _, _) in enumerate(self.bought) if bought == row), None)
        if place is None:
            if index is not None:
                self.bought.append((row, index, self._choices.pop(row)))
        elif index is None:
            self._choices[row] = self.bought.pop(place)[2]
        else:
            self.bought[place] = (row, index, self.bought[place][2])
        self.relabelled += 1
