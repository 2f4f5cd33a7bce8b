"""What all strategies share: features and answers of the rows to choose from, and of a test part.

The feature map is fitted once, on all rows but the test part's. Each seed draws the rows of its
pool, so that seeds differ in more than their ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Block, SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset
from stacksl.errors import DataError, SettingsError
from stacksl.features import make_features
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.settings.fields import Settings
from stacksl.types import Item

HELD_OUT, MOST_HELD_OUT = 0.2, 5_000
"""The share of the rows that become the test part where no file is given, and how many at most."""

POOL = 0.8
"""The share of the other rows that a seed draws as its pool."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The rows that a strategy chooses from under one seed.

    Attributes:
        block: their features.
        gold: their answers, (n,); a strategy may read those of rows that it bought.
        names: rows of the class names, (K, d); None where items have their own options.
        order: all rows in an order drawn by the seed: what `random` buys.
        settings: of the run that ours are played as; the seed is one of them.
    """

    block: Block
    gold: Rows
    names: NDArray[Any] | None
    order: Sequence[int]
    settings: Settings


@dataclass(frozen=True, eq=False)
class Split:
    """Features and answers, the same for every strategy.

    Attributes:
        block, gold: of the rows that pools are drawn from.
        test, test_gold: of the test part.
        names: see `Pool`.
        size: how many rows a pool has.
        settings: the user's, under seed 0.
        about: facts for the record.
    """

    block: Block
    gold: Rows
    test: Block
    test_gold: Rows
    names: NDArray[Any] | None
    size: int
    settings: Settings
    about: Mapping[str, Any]

    def pool(self, seed: int) -> Pool:
        """The pool of a seed."""
        drawn = generator(seed, "compare/pool").permutation(len(self.gold))[: self.size]
        rows = np.sort(drawn)
        order = generator(seed, "compare/random").permutation(self.size).tolist()
        settings = self.settings.model_copy(update={"seed": seed})
        block = self.block.take(rows.tolist())
        return Pool(block, self.gold[rows], self.names, order, settings)

    @cached_property
    def digest(self) -> str:
        """A hash of all features and answers."""
        digest = blake2b(f"{self.size} {self.settings.open_questions}".encode(), digest_size=12)
        tables = [self.gold, self.test_gold, *map(_table, (self.block, self.test))]
        for table in [*tables, *([] if self.names is None else [self.names])]:
            digest.update(f"{table.shape} {table.dtype}".encode())
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()


def _table(block: Block) -> NDArray[Any]:
    return block.h if isinstance(block, SharedBlock) else block.phi[:]


def make_split(
    data: Dataset,
    test: Dataset | None,
    settings: Settings,
    size: int | None,
    most: int,
    report: Callable[[int, int], None] | None = None,
) -> tuple[Split, list[str]]:
    """The split of a labeled data set, and warnings.

    Args:
        data: the rows to choose from; a share of them is held out by seed 0 without `test`.
        test: another file's rows, with the same classes.
        settings: the features, and what a run of ours is played with.
        size: rows of each pool; `POOL` of them if None.
        most: labels that a strategy buys.
        report: called with the progress of the features.

    Raises:
        DataError: a row has no answer, or there are too few rows.
        SettingsError: a pool or a budget has more rows than there are.
    """
    for part in (data, test):
        if part is not None and len(part.answers) < len(part.items):
            lacking = f"{len(part.items) - len(part.answers)} of the {len(part.items)} rows"
            raise DataError(
                f"a comparison needs the label of every row, and {lacking} of '{part.name}' have"
                " none: label them, or leave them out of the file"
            )
    rows = generator(0, "compare/test").permutation(len(data.items))
    held = 0 if test is not None else min(MOST_HELD_OUT, round(HELD_OUT * len(rows)))
    tested, chosen = np.sort(rows[:held]), np.sort(rows[held:])
    pool = max(1, round(POOL * len(chosen))) if size is None else size
    _check_sizes(pool, len(chosen), most)
    items = [data.items[row] for row in chosen]
    others = test.items if test is not None else [data.items[row] for row in tested]
    if not others:
        raise DataError(f"'{data.name}' has too few rows to hold some out: give --test FILE")
    features = make_features(settings.features, classes=data.classes)
    features.fit(items)
    blocks = [features.transform(part, report) for part in (items, others)]
    answers = {**data.answers} if test is None else {**test.answers}
    named = data.classes is not None and settings.class_names and features.reads_text
    names = name_rows(features, name_texts(data.classes or ())) if named else None
    gold = _gold(items, data.answers)
    about = {
        "data": data.name,
        "test": f"{held} rows held out by seed 0" if test is None else test.name,
        "n_test": len(others),
        "items": len(items),
        "pool": pool,
        "features": settings.features,
        "batch": settings.open_questions,
        "classes": None if data.classes is None else len(data.classes),
    }
    split = Split(blocks[0], gold, blocks[1], _gold(others, answers), names, pool, settings, about)
    return split, _warnings(data)


def _gold(items: Sequence[Item], answers: Mapping[str, int]) -> Rows:
    return np.array([answers[item.id] for item in items], dtype=np.int64)


def _check_sizes(pool: int, rows: int, most: int) -> None:
    if pool > rows:
        raise SettingsError(
            f"--pool should be at most {rows}, the rows that are not tested on, got {pool}: give a"
            " smaller pool"
        )
    if most > pool:
        raise SettingsError(
            f"--budgets should be at most {pool}, the rows of a pool, got {most}: give smaller"
            f" budgets, or --pool up to {rows}"
        )


def _warnings(data: Dataset) -> list[str]:
    """What is odd but can be compared."""
    if data.classes is None:
        return []
    counts = np.bincount(_gold(data.items, data.answers), minlength=len(data.classes))
    once = [name for name, n in zip(data.classes, counts, strict=True) if n == 1]
    if not once:
        return []
    shown = ", ".join(once[:3]) + (", ..." if len(once) > 3 else "")
    return [
        f"{len(once)} of {len(data.classes)} classes have a single row ({shown}): it can be bought"
        " or tested on, never both"
    ]
