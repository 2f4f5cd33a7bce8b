"""The items of an open run in one order that never changes, and the role of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stacksl.types import Item


class Role(IntEnum):
    """What an item is for."""

    POOL = 0
    """A training label may be bought."""
    AUDIT = 1
    """Measures the final model; its answer is never learnt."""
    OWNED = 2
    """Its label was held before, and costs nothing."""
    DUPLICATE = 3
    """Has the text of an owned item, so that a label would tell nothing."""
    ERASED = 4
    """Was forgotten: it keeps its place, but its text and features are gone."""


@dataclass(slots=True, eq=False)
class Corpus:
    """The items of an open run.

    Attributes:
        items: in the order of the files; items that came later stand behind.
        order: the rows that are seen, in the order in which they are; an item of a stream that has
            passed stays in it, whatever its role is by now.
        roles: (n,) the `Role` of each item.
        began: the order with which the run began: rounds were counted and the gate set by it.
        drawn: the rows of the first audit, in the order drawn.
        ids: of all items, and `row` the way from an id back to its row.
    """

    items: Sequence[Item]
    order: Sequence[int]
    roles: NDArray[np.int8]
    began: Sequence[int] = ()
    drawn: Sequence[int] = ()
    ids: Sequence[str] = field(init=False)
    row: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = [item.id for item in self.items]
        self.row = {name: row for row, name in enumerate(self.ids)}

    @classmethod
    def of(cls, items: Sequence[Item]) -> Corpus:
        """Items that are all to choose from, seen in their order."""
        rows = range(len(items))
        return cls(items, rows, np.zeros(len(items), dtype=np.int8), rows)

    def assign(self, role: Role, rows: Iterable[int]) -> None:
        """Give the items in `rows` a role."""
        self.roles[np.fromiter(rows, dtype=np.int64)] = role

    def aside(self) -> frozenset[int]:
        """The rows that no training label is bought of."""
        return frozenset(np.flatnonzero(self.roles != Role.POOL).tolist())

    def unbought(self, bought: Iterable[str]) -> list[int]:
        """The rows to choose from, in the order in which they are seen, without those `bought`."""
        free = self.roles == Role.POOL
        free[[self.row[item] for item in bought]] = False
        return [row for row in self.order if free[row]]
