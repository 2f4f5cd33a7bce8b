"""Rounds that a replay cannot compute again after items were forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stacksl.ledger.events import Row


def _never(seq: int) -> bool:
    """No row has a checkpoint."""
    return False


@dataclass(slots=True)
class UnreplayableRounds:
    """The unreplayable rounds of a replay, and whether the learner's state is lost.

    The round of a forgotten item is unreplayable, since its features were erased. If the learner
    learnt from such an item, its state is lost until the next row with a checkpoint.

    Attributes:
        moves: whether rounds without a label change the learner.
        renews: whether renewed features rebuild the head from forgotten items.
        restore_at: called with a row's number while the state is lost; True if it restored the
            learner from the checkpoint of that row.
        rounds: the unreplayable rounds, in order.
        lost: whether the learner's state is lost.
    """

    moves: bool = False
    renews: bool = False
    restore_at: Callable[[int], bool] = _never
    rounds: list[int] = field(default_factory=list)
    lost: bool = False

    def replayable(self, row: Row) -> bool:
        """Whether the certificate in `row` can be computed again; if not, its round is noted."""
        whole = not (self.lost or row.forgotten)
        if not whole and row.round is not None:
            self.rounds.append(row.round)
        self.lost |= row.forgotten and self.moves
        return whole

    def renewed(self) -> None:
        """Note that the features were renewed and the head was rebuilt from all learnt items."""
        self.lost |= self.renews

    def passed(self, seq: int) -> None:
        """Note that row `seq` was replayed."""
        if self.lost and self.restore_at(seq):
            self.lost = False


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of each run of consecutive ones.

    >>> spans([3, 7, 8, 9])
    [(3, 3), (7, 9)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
