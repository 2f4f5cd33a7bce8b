"""The per-class minimum: a part of each batch is reserved for classes with few labels.

A gate buys items with small margins, and a class that the head never predicts causes none. So while
a class has fewer labels than wanted, a part of each batch consists of its most probable items.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from stacksl.core.blocks import Block
from stacksl.core.scorers import Head

MOST = 0.5  # share of a batch for rare classes at most: the rest is ranked over all classes

_AT_ONCE = 1024  # rows scored at a time


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
    turns = _turns(Counter(labels), classes, wanted)[:count]
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


def _turns(have: Counter[int], classes: int, wanted: int) -> list[int]:
    """The classes that lack labels, those with the fewest first, once for each that they lack."""
    lacking = sorted((have[c] + n, c) for c in range(classes) for n in range(wanted - have[c]))
    return [c for _, c in lacking]


def _chances(
    head: Head, block: Block, rows: Sequence[int], short: Sequence[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(rows, short): the probability of each of the classes `short` for each row."""
    found = np.empty((len(rows), len(short)))
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        policies = np.asarray(head.probabilities(block.take(rows[part])))
        found[part] = policies[:, list(short)]
    return found
