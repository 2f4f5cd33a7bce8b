"""Followers, which choose the candidates that the learner sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, final

import numpy as np

from stacksl.core.blocks import Inputs

if TYPE_CHECKING:
    from stacksl.core.scorers import Scorer


class Follower(Protocol):
    """The responder to a policy: it presents candidates C_t before the label is known.

    Attributes:
        name: its key in `FOLLOWERS`.
    """

    name: ClassVar[str]

    def respond(self, block: Sequence[Inputs], scorer: Scorer) -> list[tuple[int, ...]]:
        """The presented candidates of each item, ascending indices into its full list."""


@final
@dataclass(frozen=True, slots=True)
class Given:
    """The follower that presents every candidate."""

    name: ClassVar[str] = "given"

    def respond(self, block: Sequence[Inputs], scorer: Scorer) -> list[tuple[int, ...]]:
        """All K indices of each item."""
        sizes = [inputs.size for inputs in block]
        every = {size: tuple(range(size)) for size in set(sizes)}
        return [every[size] for size in sizes]


@final
@dataclass(frozen=True, slots=True)
class Hard:
    """The follower that presents the k + 1 candidates that the current policy scores highest.

    It is the paper's hard-negative miner: k negatives and the gold answer. Ties go to the lowest
    index. Items with at most k + 1 candidates are presented whole.

    Args:
        k: the number of negatives, at least 1.

    Source: paper, experiments (k = 4). Deviation: k + 1 are presented, since the gold answer is
    not known when candidates are chosen, and may be outside; see `Learner.learn`, `loss_set`.
    """

    k: int = 4
    name: ClassVar[str] = "hard"

    def respond(self, block: Sequence[Inputs], scorer: Scorer) -> list[tuple[int, ...]]:
        """The top k + 1 indices of each item, in ascending order."""
        order = (np.argsort(-scorer.scores(inputs), kind="stable") for inputs in block)
        return [tuple(sorted(best[: self.k + 1].tolist())) for best in order]


def loss_set(presented: tuple[int, ...], gold: int, size: int) -> tuple[int, ...]:
    """The part of all candidates that holds the gold: C_t, or the candidates outside of it.

    Under a multinomial logit the gold has, given the part it is in, the softmax of that part
    (independence of irrelevant alternatives), so that both parts are learned without bias. An
    outside gold that joined C_t, or took a place in it, would be learned to win each time that it
    is compared, and θ would no longer be that of the labels.

    Args:
        presented: C_t, ascending.
        gold: the label's index.
        size: K, all candidates.

    >>> loss_set((0, 2), 2, 5), loss_set((0, 2), 1, 5)
    ((0, 2), (1, 3, 4))
    """
    if gold in presented:
        return presented
    return tuple(x for x in range(size) if x not in presented)


FOLLOWERS: dict[str, type[Given] | type[Hard]] = {
    "given": Given,
    "hard": Hard,
}
