"""The follower: which candidates the learner sees, and over which of them a label is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stacksl.core.blocks import Inputs

if TYPE_CHECKING:
    from stacksl.core.scorers import Scorer


def presented(block: Sequence[Inputs], scorer: Scorer, top_k: int | None) -> list[tuple[int, ...]]:
    """C_t of each item, chosen before the label is known: ascending indices into its full list.

    They are all K candidates or, with k = `top_k`, the k + 1 that the current policy scores
    highest, ties going to the lowest index: the paper's hard-negative miner, of k negatives and the
    gold answer.

    Source: paper, experiments (k = 4). Deviation: k + 1 are presented, since the gold answer is
    not known when candidates are chosen, and may be outside; see `Learner.learn`, `loss_set`.
    """
    if top_k is None:
        return [tuple(range(inputs.size)) for inputs in block]
    order = (np.argsort(-scorer.scores(inputs), kind="stable") for inputs in block)
    return [tuple(sorted(best[: top_k + 1].tolist())) for best in order]


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
