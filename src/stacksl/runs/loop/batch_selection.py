"""Batch selection: the items with the smallest margins, spread over the pool.

All items of a batch are ranked by one head, and items with small margins are often near-duplicates,
whose labels add little to each other. So the predicted classes take turns, and no two items of a
batch may be nearly the same.

A class that the head never predicts causes no small margins. So while a class has fewer labels than
`min_per_class`, a part of each batch consists of its most probable items.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, PairBlock
from stacksl.core.scorers import Head

TWIN = 0.8  # cosine from which two items count as near-duplicates

MOST = 0.5  # share of a batch for rare classes at most: the rest is ranked over all classes

_AT_ONCE = 1024  # rows scored at a time
_CANDIDATES = 20  # ranked items considered for each item of the batch


def margins(
    head: Head, block: Block, rows: Sequence[int]
) -> tuple[Array, NDArray[np.int64] | None]:
    """Minus the difference of the two largest probabilities of each item, (n,), and its class.

    The class is the most probable one, (n,); None for pair features, whose candidates differ from
    item to item. An item with one candidate has −inf, since its label is known.
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


def surest(head: Head, block: Block, rows: Sequence[int]) -> Array:
    """The probability of the head's choice for each item, (n,)."""
    largest = [np.zeros(0)]
    for start in range(0, len(rows), _AT_ONCE):
        policies = head.probabilities(block.take(rows[start : start + _AT_ONCE]))
        if isinstance(policies, np.ndarray):
            largest.append(policies.max(axis=1))
        else:
            largest.append(np.array([policy.max() for policy in policies]))
    return np.concatenate(largest)


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
    """`count` of the rows in `ranked`: near the top, and different from one another.

    The predicted classes take turns, each with its best row left, and near-duplicates of selected
    rows are skipped. Where too few rows are left, the best of the skipped ones fill up.

    Args:
        ranked: rows of the block, the best first; the first 20·`count` are considered.
        count: how many to select; all of them if there are fewer.
        block: the features that are compared: h of an item, or the mean of its φ.
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
    others = (row for row in ranked if row not in chosen)
    return [*picked, *islice(others, count - len(picked))]


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
    """(n, d): the features of each item, of length 1, or 0 where they are zero."""
    part = block.take(rows)
    if isinstance(part, PairBlock):
        spans = pairwise(part.offsets)
        means = [part.phi[a:b].mean(axis=0) for a, b in spans]
        vectors = np.array(means, dtype=np.float64).reshape(-1, part.dim)
    else:
        vectors = np.asarray(part.h, dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def share_of(count: int, wanted: int, classes: int, budget: int) -> int:
    """How many of the next `count` items are reserved for rare classes.

    It is the share of the budget that `wanted` labels of each class take, at most half, rounded up.

    >>> share_of(25, wanted=2, classes=20, budget=200), share_of(25, 5, 77, 500)
    (5, 13)
    """
    return math.ceil(count * min(MOST, wanted * classes / max(budget, 1)))


def rare_picks(
    head: Head,
    block: Block,
    rows: Sequence[int],
    labels: Sequence[int],
    *,
    classes: int,
    wanted: int,
    count: int,
) -> list[int]:
    """At most `count` of `rows`, for the classes with fewer than `wanted` labels, rarest first.

    Args:
        head: gives the probability of each class.
        block: the features of all items.
        rows: those that can be bought.
        labels: the labels bought so far.
        classes: K.
        wanted: labels that each class should have.
        count: how many rows to select at most.

    Returns:
        Rows, each the most probable of its class; a class has a turn for each label it lacks.
    """
    have = Counter(labels)
    lacking = sorted((have[c] + n, c) for c in range(classes) for n in range(wanted - have[c]))
    turns = [c for _, c in lacking][:count]
    if not turns or not rows:
        return []
    short = sorted(set(turns))
    chances = _chances(head, block, rows, short)
    picked: list[int] = []
    for turn in turns:
        column = chances[:, short.index(turn)]
        place = int(np.argmax(column))
        if column[place] < 0.0:
            break  # every row is selected
        picked.append(rows[place])
        chances[place] = -1.0
    return picked


def _chances(
    head: Head, block: Block, rows: Sequence[int], short: Sequence[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(rows, short): the probability of each of the classes `short` for each row."""
    chances = np.empty((len(rows), len(short)))
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        policies = np.asarray(head.probabilities(block.take(rows[part])))
        chances[part] = policies[:, list(short)]
    return chances
