"""What refits the model of a run, and when: the interface of both kinds of model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from stacksl.core.scorers import Head
from stacksl.ledger.events import Row


class Trainer(Protocol):
    """Refits a model on the labels learnt so far.

    A refit leaves a `refit` row in the ledger, so that a replay makes it at the same place.
    """

    @property
    def head(self) -> Head | None:
        """The model by which a pool is ranked; None before the first refit."""

    @property
    def due(self) -> bool:
        """Whether there are labels that the model has not been refitted on and should be."""

    def refit(self) -> bool:
        """Make the refit that is due; True where it took long enough for a checkpoint of its own.

        A run that was cut off in the middle of one goes on with the rest of it.
        """

    def finish(self) -> None:
        """Make the last refit, which gives the final model, where it was not made."""

    def ready(self) -> None:
        """Make what a replay needs: the ledger's rows may learn from items that are new."""

    def widen(self, size: int) -> None:
        """Let there be `size` classes from here on."""

    def replay(self, row: Row, after: int) -> None:
        """Have the effect of a row of `refit`, `refreshed` or `class_added`.

        Args:
            row: every such row of the chain, in order.
            after: the row that the trainer's state belongs to: what lies before has had its effect
                on the arrays of a checkpoint, but not on anything that no checkpoint holds.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps, as arrays under names of its own."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Be as `state` described, given the arrays of the whole checkpoint."""
