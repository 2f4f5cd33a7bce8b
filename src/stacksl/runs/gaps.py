"""What a replay cannot rebuild, since items were forgotten after the run had begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stacksl.labels.rows import Row

__all__ = ["Gaps", "spans"]


def _never(seq: int) -> bool:
    """No row has a checkpoint."""
    return False


@dataclass(slots=True)
class Gaps:
    """The rounds of a replay that cannot be computed again, and whether the learner is lost.

    The round of a forgotten item cannot, for its features are gone. The learner is lost where it
    would have learnt from such an item, and with it every round up to the next row whose
    checkpoint is kept.

    Attributes:
        moves: whether a round moves the learner without a label, too.
        renews: whether renewed features make a learner that knew the forgotten item.
        reach: told a row's number while the learner is lost; True where it brought the learner back
            from the checkpoint of that row.
        rounds: those that cannot be computed again, in order.
        lost: whether the learner is lost now.
    """

    moves: bool = False
    renews: bool = False
    reach: Callable[[int], bool] = _never
    rounds: list[int] = field(default_factory=list)
    lost: bool = False

    def rebuilds(self, row: Row) -> bool:
        """Whether the certificate in `row` can be computed again; noted where it cannot."""
        whole = not (self.lost or row.forgotten)
        if not whole and row.round is not None:
            self.rounds.append(row.round)
        self.lost |= row.forgotten and self.moves
        return whole

    def renewed(self) -> None:
        """The features were renewed and the head built anew from all items learnt."""
        self.lost |= self.renews

    def passed(self, seq: int) -> None:
        """Row `seq` has had its effect."""
        if self.lost and self.reach(seq):
            self.lost = False


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as (first, last) of each stretch without a gap.

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
