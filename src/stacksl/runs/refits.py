"""The final model of a run: refits of the head on all labels bought so far (D15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game.inputs import Block
from stacksl.game.scorers import Head, Scorer, restore_head
from stacksl.runs.rounds import Table

__all__ = ["Refits"]

Bought = Sequence[tuple[int, int, int]]

PREFIX = "head."
COUNT = "refits"


@dataclass(slots=True, eq=False)
class Refits:
    """The head as it is now, after `count` refits, the last of them on `labels` labels.

    `final` says that the last was on the whole budget, with C chosen by folds.
    """

    table: Table
    head: Head | None = None
    count: int = 0
    labels: int = 0
    final: bool = False

    def again(self, *, tune: bool = False) -> None:
        """Refit the head on the labels bought so far and leave a `refit` row in the ledger."""
        self.apply(tune=tune)
        self.table.ledger.note_refit(len(self.table.bought), {"tune": tune})

    def apply(self, *, tune: bool) -> None:
        """Refit the head without a word in the ledger, as its replay does."""
        self.head = _fit(self.table.learner.scorer, self.table.bought, self.table.block, tune)
        self.count += 1
        self.labels = len(self.table.bought)
        self.final = tune

    def as_if(self, labels: int, untouched: Scorer) -> Head | None:
        """The final model there would have been after the first `labels` labels.

        `untouched` is a scorer that has learnt nothing: the online one knows classes that were
        bought later.
        """
        return _fit(untouched, self.table.bought[:labels], self.table.block, tune=True)

    def state(self) -> dict[str, NDArray[Any]]:
        """How many there were, on how many labels, whether the last was final, and the head's arrays, for a checkpoint."""
        head = {} if self.head is None else self.head.state()
        return {
            COUNT: np.array([self.count, self.labels, self.final]),
            **{PREFIX + k: v for k, v in head.items()},
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """What `state` described."""
        self.count, self.labels = int(arrays[COUNT][0]), int(arrays[COUNT][1])
        self.final = bool(arrays[COUNT][2])
        mine = {k.removeprefix(PREFIX): v for k, v in arrays.items() if k.startswith(PREFIX)}
        self.head = restore_head(mine) if mine else None


def _fit(scorer: Scorer, bought: Bought, block: Block, tune: bool) -> Head | None:
    if not bought:
        return None
    rows = block.take([row for row, _, _ in bought])
    gold = np.array([label for _, label, _ in bought], dtype=np.int64)
    return scorer.refit(rows, gold, tune=tune)
