"""The rounds that a replay cannot compute again, since items were forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stacksl.ledger.events import Row


def _never(seq: int) -> bool:
    """No row has a checkpoint."""
    return False


@dataclass(slots=True)
class Gaps:
    """The rounds of a replay that cannot be computed again, and whether the state is lost.

    The round of a forgotten item cannot, since its features are gone. Where the learner learnt from
    such an item its state is lost, and with it every round up to the next row with a checkpoint.

    Attributes:
        moves: whether rounds without a label change the learner too.
        renews: whether renewed features build the head again from forgotten items.
        reach: called with a row's number while the state is lost; True where it restored the
            learner from the checkpoint of that row.
        rounds: those that cannot be computed again, in order.
        lost: whether the learner's state is lost now.
    """

    moves: bool = False
    renews: bool = False
    reach: Callable[[int], bool] = _never
    rounds: list[int] = field(default_factory=list)
    lost: bool = False

    def rebuilds(self, row: Row) -> bool:
        """Whether the certificate in `row` can be computed again; its round is noted if not."""
        whole = not (self.lost or row.forgotten)
        if not whole and row.round is not None:
            self.rounds.append(row.round)
        self.lost |= row.forgotten and self.moves
        return whole

    def renewed(self) -> None:
        """The features were renewed and the head was built again from all items learnt."""
        self.lost |= self.renews

    def passed(self, seq: int) -> None:
        """Row `seq` was replayed."""
        if self.lost and self.reach(seq):
            self.lost = False


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of each stretch without a gap.

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
