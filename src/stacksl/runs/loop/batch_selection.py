"""Which items of a pool make a batch: the ones the head is least sure of, spread over the pool.

A batch is picked under one head, and what it is least sure of often lies together: ten ways to ask
one question teach little more than one. So the predicted classes take turns, and no pick may be the
near-twin of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, PairBlock
from stacksl.core.scorers import Head

TWIN = 0.8  # cosine from which on two items are near-twins

_AT_ONCE = 1024  # rows of a block of probabilities
_CANDIDATES = 20  # as many items are looked at for a pick as this


def margins(
    head: Head, block: Block, rows: Sequence[int]
) -> tuple[Array, NDArray[np.int64] | None]:
    """Minus the difference of the two largest probabilities of each item, (n,), and its class.

    The class is the most probable one, (n,), None for pair features, whose candidates have nothing
    in common from item to item. An item of one candidate has −inf, since there is nothing to ask.
    """
    statistics = np.empty(len(rows))
    predicted = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        policies = head.probabilities(block.take(rows[part]))
        if isinstance(policies, np.ndarray):
            predicted[part] = np.argmax(policies, axis=1)
            best = np.partition(policies, -2, axis=1)
            statistics[part] = best[:, -2] - best[:, -1]
        else:
            statistics[part] = [_margin(policy) for policy in policies]
    return statistics, None if isinstance(block, PairBlock) else predicted


def _margin(policy: Array) -> float:
    if len(policy) < 2:
        return float("-inf")
    second, first = np.partition(policy, -2)[-2:]
    return float(second - first)


def spread_out(
    ranked: Sequence[int],
    count: int,
    block: Block,
    predicted: Sequence[int] | None = None,
) -> list[int]:
    """`count` of the rows in `ranked`, best first: near the top, and apart from one another.

    The predicted classes take turns, each with its best row that is left, and a near-twin of a pick
    is passed over. Where too few rows are apart, the best of the others fill up.

    Args:
        ranked: rows of the block, the best first; the first 20·`count` are looked at.
        count: how many are picked; all of them if there are no more.
        block: the features, by which near-twins are known: h of an item, or the mean of its φ.
        predicted: the class of each of `ranked`; None where there are none.
    """
    near = list(ranked[: _CANDIDATES * count])
    unit = _directions(block, near)
    taken: list[int] = []
    for place in _in_turns(predicted, len(near)):
        if len(taken) == count:
            break
        if not taken or float((unit[taken] @ unit[place]).max()) < TWIN:
            taken.append(place)
    picked = [near[place] for place in taken]
    chosen = set(picked)
    rest = (row for row in ranked if row not in chosen)
    return [*picked, *islice(rest, count - len(picked))]


def _in_turns(predicted: Sequence[int] | None, count: int) -> list[int]:
    """The first `count` places, the best of each class first, then the second best of each."""
    if predicted is None:
        return list(range(count))
    met: Counter[int] = Counter()
    turns = []
    for place in range(count):
        turns.append((met[predicted[place]], place))
        met[predicted[place]] += 1
    return [place for _, place in sorted(turns)]


def _directions(block: Block, rows: Sequence[int]) -> NDArray[Any]:
    """(n, d): what each item is about, of length 1, or 0 where nothing is known of it."""
    part = block.take(rows)
    if isinstance(part, PairBlock):
        spans = pairwise(part.offsets)
        means = [part.phi[a:b].mean(axis=0) for a, b in spans]
        found = np.array(means, dtype=np.float64).reshape(-1, part.dim)
    else:
        found = np.asarray(part.h, dtype=np.float64)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.where(lengths > 0, lengths, 1.0)
