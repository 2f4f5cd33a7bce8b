"""The items of an open run in a fixed order, and the role of each."""

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
    """Measures the final model; its answer is never learned."""
    OWNED = 2
    """Its label was known before the run, and costs nothing."""
    DUPLICATE = 3
    """Has the text of an owned item, so that its label is known."""
    REFERENCE = 5
    """Nobody is asked; the model's probabilities of it make the audit's interval narrower."""
    ERASED = 4
    """It keeps its row, but its text and features were erased."""


@dataclass(slots=True, eq=False)
class Corpus:
    """The items of an open run.

    Attributes:
        items: in the order of the files; added items follow.
        order: the rows in the order of the rounds; a seen item of a stream keeps its place, also
            when its role changes.
        roles: (n,) the `Role` of each item.
        began: the order at the start of the run, which fixed the horizon and the gate's start.
        drawn: the rows of the first audit, in the order drawn.
        looked_at: rows of audits that are of the model's part of the table. The model treats them
            like its other rows, but nothing is learned from their answers.
        ids: of all items; `row` is the inverse, from an id to its row.
    """

    items: Sequence[Item]
    order: Sequence[int]
    roles: NDArray[np.int8]
    began: Sequence[int] = ()
    drawn: Sequence[int] = ()
    looked_at: frozenset[int] = frozenset()
    ids: Sequence[str] = field(init=False)
    row: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = [item.id for item in self.items]
        self.row = {name: row for row, name in enumerate(self.ids)}

    @classmethod
    def of(cls, items: Sequence[Item]) -> Corpus:
        """A corpus whose items all have the role `POOL`, in their order."""
        rows = range(len(items))
        return cls(items, rows, np.zeros(len(items), dtype=np.int8), rows)

    def assign(self, role: Role, rows: Iterable[int]) -> None:
        """Give the items in `rows` a role."""
        self.roles[np.fromiter(rows, dtype=np.int64)] = role

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(n,) whether each item has its text and features: it was not erased."""
        return np.not_equal(self.roles, Role.ERASED)

    @property
    def reference_rows(self) -> list[int]:
        """The rows that still make the audit's interval narrower, in ascending order."""
        rows: list[int] = np.flatnonzero(self.roles == Role.REFERENCE).tolist()
        return rows

    def outside_pool(self) -> frozenset[int]:
        """The rows of which no training label is bought."""
        return frozenset(np.flatnonzero(self.roles != Role.POOL).tolist())

    def unbought(self, bought: Iterable[str]) -> list[int]:
        """The rows left to choose from, in order, without those `bought`."""
        buyable = self.roles == Role.POOL
        buyable[[self.row[item] for item in bought]] = False
        return [row for row in self.order if buyable[row]]
