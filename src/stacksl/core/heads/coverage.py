"""Coverage: the items whose labels say most about the items that a model is in doubt about.

An item s covers an item x by k(s, x), the weight of their edge in the graph of neighbours, and
itself by 1. With doubt u, 0 to 1, and bought items B the gain of s is

    u(s) · Σ_x u(x)³ · max(0, k(s, x) − max_{b ∈ B ∪ batch} k(b, x)),

and a batch is chosen greedily. While a model has few labels, u is large everywhere, and the batch
covers the dense regions. Later only items near a class boundary are in doubt, and it is close to
one of the smallest margins. So one rule serves every budget, and a region that the model has learnt
well takes no label, however dense it is.

Source: Bae, Oliveira and Sutherland, Uncertainty herding, one active learning method for all label
budgets, 2025; there the kernel's radius shrinks with the labels, and u enters once, as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.heads.spreading import Floats, Graph, Rows

POWER = 3  # of the doubt of the items covered

_AT_ONCE = 4096  # rows of a matrix product


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """k over n items: row i has the `columns` and `values` from `starts`[i] to `starts`[i + 1]."""

    starts: Rows
    columns: Rows
    values: Floats

    def gains(self, rows: Rows, need: Floats, covered: Floats) -> Floats:
        """Σ_x need_x · max(0, k(s, x) − covered_x) of each s in `rows`, (len(rows),)."""
        counts = self.starts[rows + 1] - self.starts[rows]
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = np.arange(counts.sum()) + np.repeat(self.starts[rows] - firsts, counts)
        columns = self.columns[places]
        more = np.maximum(self.values[places] - covered[columns], 0)
        found: Floats = np.add.reduceat(need[columns] * more, firsts)
        return found

    def cover(self, row: int, covered: Floats) -> Rows:
        """Raise `covered` by what `row` covers; the items where it rose."""
        part = slice(self.starts[row], self.starts[row + 1])
        columns, values = self.columns[part], self.values[part]
        rose = values > covered[columns]
        covered[columns[rose]] = values[rose]
        return columns[rose]

    def around(self, rows: Rows) -> Rows:
        """The items that cover any of `rows`, each once."""
        parts = [self.columns[self.starts[row] : self.starts[row + 1]] for row in rows]
        return np.unique(np.concatenate([rows, *parts]))


def kernel_of(graph: Graph) -> Kernel:
    """The kernel over the items of a graph, its class names left out."""
    from scipy.sparse import csr_array, eye_array

    items = graph.weights[: graph.items, : graph.items]
    whole: Any = csr_array(items + eye_array(graph.items, dtype=np.float32))
    whole.sort_indices()
    return Kernel(whole.indptr.astype(np.int64), whole.indices.astype(np.int64), whole.data)


def most_covering(kernel: Kernel, doubt: Array, free: NDArray[np.bool_], count: int) -> list[int]:
    """The `count` items with the largest gains, one after another; all free ones if fewer.

    Args:
        kernel: of n items.
        doubt: u, (n,), 0 to 1; that of a bought item is not read.
        free: (n,) whether the item can be bought; the others are bought and cover what they do.
        count: how many to choose.
    """
    covered = np.zeros(len(free), dtype=np.float32)
    for row in np.flatnonzero(~free):
        kernel.cover(int(row), covered)
    need = (np.where(free, doubt, 0.0) ** POWER).astype(np.float32)
    gains = np.where(free, kernel.gains(np.arange(len(free)), need, covered) * doubt, -1.0)
    picked: list[int] = []
    for _ in range(min(count, int(free.sum()))):
        best = int(np.argmax(gains))
        picked.append(best)
        rose = kernel.cover(best, covered)
        gains[best] = -1.0
        near = kernel.around(rose)
        near = near[gains[near] >= 0.0]
        if len(near):
            gains[near] = kernel.gains(near, need, covered) * doubt[near]
    return picked


def stands_for(h: NDArray[Any], rows: Rows) -> Array:
    """How many items each bought one represents, (len(rows),): those that it is nearest to.

    Args:
        h: the features of all items, (n, d).
        rows: the bought ones; each represents itself.
    """
    bought = np.asarray(h[rows], dtype=np.float32)
    lengths = np.linalg.norm(bought, axis=1, keepdims=True)
    bought /= np.where(lengths > 0, lengths, np.float32(1))
    others = np.setdiff1d(np.arange(len(h)), rows)
    counts = np.ones(len(rows))
    for start in range(0, len(others), _AT_ONCE):
        near = np.asarray(h[others[start : start + _AT_ONCE]], dtype=np.float32) @ bought.T
        counts += np.bincount(np.argmax(near, axis=1), minlength=len(rows))
    return counts
