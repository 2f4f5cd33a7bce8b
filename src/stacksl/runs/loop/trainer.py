"""The interface of trainers, which refit the model of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from stacksl.core.scorers import Head
from stacksl.ledger.events import Row

if TYPE_CHECKING:
    from stacksl.runs.loop.covering import Covering
    from stacksl.runs.loop.head_fitting import Doubt

T = TypeVar("T")

# Keys of `refit` rows
ATTENDED = "attended"  # answers could be entered while the refit was made
BEGINS = "begins"  # the number of a language model's refit, which learns the labels before this row
UNUSED = "unused"  # no refit: what the one before was made for bought nothing


class Background(Protocol):
    """Gives the result of a computation, during which answers may be entered and learned."""

    def __call__(self, compute: Callable[[], T], /) -> T:
        """The result of `compute`, which reads neither the ledger nor what is learned after it."""


def at_once(compute: Callable[[], T], /) -> T:
    """The result of `compute`; nothing is entered meanwhile."""
    return compute()


class Trainer(Protocol):
    """Refits a model on the labels learned so far.

    A refit writes a `refit` row into the ledger, so that a resumed run makes it at the same place.
    It learns the labels before that row: where answers are entered meanwhile, the row comes
    first. `attended` says whether they can be.
    """

    background: Background
    attended: bool

    @property
    def head(self) -> Head | None:
        """The model by which a pool is ranked; None before the first refit."""

    @property
    def draws(self) -> int:
        """How many labels are drawn before others, to choose how the model's scores are made."""

    @property
    def covering(self) -> Covering | None:
        """The statistics of a stream that asks by doubt and coverage."""

    @property
    def doubt(self) -> Doubt | None:
        """The doubt about the labels of a column that people judge."""

    @property
    def model_labels(self) -> NDArray[np.int64] | None:
        """The class that a model gave each item, (n,), −1 for none."""

    @property
    def due(self) -> bool:
        """Whether the model should be refitted on labels learned since its last refit."""

    def refit(self) -> bool:
        """Make the due refit; True if it took long enough for its arrays to be saved.

        After an interruption it continues with the steps that are left.
        """

    def finish(self) -> None:
        """Make the last refit, which gives the final model, unless it was made already."""

    def make_missing(self) -> list[str]:
        """Make again what is missing of earlier refits; a sentence for each."""

    def again(self, row: Row) -> None:
        """Make again what a `refit` or `refreshed` row of the ledger records, which comes next."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as arrays to be saved, under names that no other part uses."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned, from all saved arrays."""
