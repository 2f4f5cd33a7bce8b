"""The rounds of a run as columns: a few numbers each, read in one pass over the ledger.

A certificate as an object is some kilobyte; as a row of these columns it is 45 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.followers import gold_outside
from stacksl.ledger.events import Row

__all__ = ["Change", "Chronicle"]

BLOCK = 4096  # rounds gathered as tuples before they become columns


Change = tuple[int, int, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Chronicle:
    """What the report needs of every round; all arrays are (rounds,), in order.

    Attributes:
        item: the item's row in the data; choice: the candidate that was played.
        statistic, threshold, gate_score: of the certificate (score units).
        asked: whether the label was reserved.
        released: purchases given back unanswered; outside: labels that were not presented.
        changes: of the budget, in order: (rounds before it, labels, micro-units of money or None).
        added: classes added on the way: (rounds before it, how many there were from then on).
    """

    item: NDArray[np.int64]
    choice: NDArray[np.int32]
    statistic: Array
    threshold: Array
    gate_score: Array
    asked: NDArray[np.bool_]
    released: int
    outside: int
    changes: tuple[Change, ...] = ()
    added: tuple[tuple[int, int], ...] = ()

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return len(self.item)

    @classmethod
    def read(cls, rows: Iterable[Row], place: Mapping[str, int]) -> Chronicle:
        """The columns of a ledger's `rows`; `place` maps an item's id to its row in the data."""
        blocks: list[NDArray[np.void]] = []
        records: list[tuple[float, ...]] = []
        narrow: dict[str, tuple[int, ...]] = {}  # what was presented, of items not shown whole
        changes: list[Change] = []
        added: list[tuple[int, int]] = []
        released = outside = rounds = 0
        for row in rows:
            if row.event == "round":
                rounds += 1
                d = row.decision()
                numbers = (d.statistic, d.threshold, d.gate_score)
                records.append((place[d.item], d.choice, *numbers, d.asked))
                if len(records) == BLOCK:
                    blocks.append(np.array(records, dtype=_RECORD))
                    records.clear()
                if d.asked and not isinstance(row.payload["presented"], int):
                    narrow[d.item] = d.presented
            elif row.event == "budget":
                changes.append((rounds, int(row.payload["budget"]), row.payload["money"]))
            elif row.event == "class_added":
                added.append((rounds, int(row.payload["size"])))
            elif row.event == "released" and row.purpose == "train":
                released += 1
            elif row.event == "learnt" and row.item in narrow:
                outside += gold_outside(narrow[row.item], row.label().index)
        table = np.concatenate([*blocks, np.array(records, dtype=_RECORD)])
        columns = {name: np.ascontiguousarray(table[name]) for name in _RECORD.names or ()}
        return cls(
            **columns,
            released=released,
            outside=outside,
            changes=tuple(changes),
            added=tuple(added),
        )


_RECORD = np.dtype(
    [
        ("item", np.int64),
        ("choice", np.int32),
        ("statistic", np.float64),
        ("threshold", np.float64),
        ("gate_score", np.float64),
        ("asked", np.bool_),
    ]
)
