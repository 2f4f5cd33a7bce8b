"""What a run has learnt so far: its labels, and the features that they are learnt under."""

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
        block: the features of all of them; a language model's refit puts renewed ones in its place.
        bought: (row, label, choice before it was seen) of each label learnt, in that order; the
            choice is −1 where the label was owned and nothing was chosen.
        shown: C_t at the purchase, by row, for items that were not presented whole.
    """

    corpus: Corpus
    block: Block
    bought: list[tuple[int, int, int]] = field(default_factory=list)
    shown: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def inputs(self, item: str) -> Inputs:
        """The current features of an item, however late its answer arrives."""
        return self.block[self.corpus.row[item]]

    def record(self, decision: Decision, label: Label) -> None:
        """Count a label among those learnt."""
        row = self.corpus.row[decision.item]
        self.bought.append((row, label.index, decision.choice))
        if len(decision.presented) < self.block[row].size:
            self.shown[row] = decision.presented

    def correct(self, item: str, label: Label) -> None:
        """Put a corrected label in the place of the first, for the refits to come."""
        row = self.corpus.row[item]
        for place, (bought, _, choice) in enumerate(self.bought):
            if bought == row:
                self.bought[place] = (row, label.index, choice)
