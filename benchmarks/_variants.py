"""Variants of labeled sets: rare or dominant classes, names that say nothing, wrong answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stacksl.core.rng import generator

DOMINANT = 0.74  # the share of the largest class where one dominates
FEWEST = 800  # rows: below it classes are joined to make one dominate, not rows left out
RARE = 0.1  # the share of the rows that half of the classes keep
WRONG = {"5% wrong": 0.05, "10% wrong": 0.1}  # of the answers that can be bought; of no test row

Rows = list[tuple[str, tuple[str, ...], int]]
"""(prompt, classes, answer) of each row."""


def wrong_answers(gold: NDArray[np.int64], classes: int, variant: str) -> NDArray[np.int64]:
    """The answers, a share of them wrong where the `variant` is one of `WRONG`."""
    rng = generator(0, "floors/wrong")
    wrong = rng.random(len(gold)) < WRONG.get(variant, 0.0)
    return (gold + wrong * rng.integers(1, classes, len(gold))) % classes


def rare(rows: Rows) -> Rows:
    """Half of the classes keep a tenth of their rows."""
    rng, classes = generator(0, "floors/rare"), len(rows[0][1])
    half = rng.permutation(classes)[: classes // 2]
    gold = np.array([row[2] for row in rows])
    stays = np.isin(gold, half, invert=True) | (rng.random(len(rows)) < RARE)
    return [rows[n] for n in np.flatnonzero(stays)]


def dominated(rows: Rows) -> Rows:
    """One class has 74% of the rows: the others lose rows, or several are joined as "other"."""
    rng, gold = generator(0, "floors/dominated"), np.array([row[2] for row in rows])
    counts = np.bincount(gold)
    others = np.flatnonzero(gold != counts.argmax())
    left = round(counts.max() * (1 - DOMINANT) / DOMINANT)
    if counts.max() + left >= FEWEST:
        stays = np.union1d(np.flatnonzero(gold == counts.argmax()), rng.permutation(others)[:left])
        return [rows[n] for n in stays]
    order = rng.permutation(len(counts))
    alone = order[np.cumsum(counts[order]) <= (1 - DOMINANT) * len(rows)]
    names = (*(rows[0][1][n] for n in sorted(alone)), "other")
    new = {rows[0][1].index(name): n for n, name in enumerate(names[:-1])}
    return [(text, names, new.get(label, len(new))) for text, _, label in rows]


def coded(rows: Rows) -> Rows:
    """Names that say nothing."""
    names = tuple(f"c{n:02}" for n in range(len(rows[0][1])))
    return [(text, names, label) for text, _, label in rows]


ROWS: dict[str, Callable[[Rows], Rows]] = {"rare": rare, "dominated": dominated, "codes": coded}
