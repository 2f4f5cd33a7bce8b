"""The labels that a run has learnt, and the features they are learnt with."""

from __future__ import annotations

from dataclasses import dataclass, field

from stacksl.core.blocks import Block, Inputs
from stacksl.runs.items.corpus import Corpus
from stacksl.types import Decision, Label


@dataclass(slots=True, eq=False)
class Examples:
    """The training examples of a run.

    Attributes:
        corpus: the items.
        block: the features of all items; a refit of a language model replaces them.
        bought: (row, label, choice before it was seen) of each label learnt, in that order; the
            choice is −1 for an owned label, which had no round.
        shown: C_t at the purchase, by row, where it had not all candidates.
    """

    corpus: Corpus
    block: Block
    bought: list[tuple[int, int, int]] = field(default_factory=list)
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def inputs(self, item: str) -> Inputs:
        """The current features of an item."""
        return self.block[self.corpus.row[item]]

    def record(self, decision: Decision, label: Label) -> None:
        """Add a learnt label."""
        row = self.corpus.row[decision.item]
        self.bought.append((row, label.index, decision.choice))
        if len(decision.presented) < self.block[row].size:
            self.shown[row] = decision.presented

    def correct(self, item: str, label: Label) -> None:
        """Replace the label of an item by a corrected one, which later refits learn."""
        row = self.corpus.row[item]
        for place, (bought, _, choice) in enumerate(self.bought):
            if bought == row:
                self.bought[place] = (row, label.index, choice)
