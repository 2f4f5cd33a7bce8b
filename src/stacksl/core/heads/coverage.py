"""Coverage: the items whose labels say most about the items that a model is in doubt about.

An item s covers an item x by k(s, x), the weight of their edge in the graph of neighbors, and
itself by 1. With doubt u, 0 to 1, and bought items B the gain of s is

    u(s) · Σ_x u(x)³ · max(0, k(s, x) − max_{b ∈ B ∪ batch} k(b, x)),

and a batch is chosen greedily. While a model has few labels, u is large everywhere, and the batch
covers the dense regions. Later only items near a class boundary are in doubt, and it is close to
one of the smallest margins. So one rule serves every budget, and a region that the model has
learned well takes no label, however dense it is.

A stream has no graph. There k(s, x) = exp(−((1 − cosine)/σ)²) and x is one of the last items seen.

Source: Bae, Oliveira and Sutherland, Uncertainty herding, one active learning method for all label
budgets, 2025; there the kernel's radius shrinks with the labels, and u enters once, as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.core.heads.spreading import NEIGHBORS, Floats, Graph, Rows
from stacksl.core.nearest import nearest

POWER = 3  # of the doubt of the items covered
SEEN = 1000  # last items of a stream that a label is to cover
MOST = 4000  # labels before it that an item of a stream is compared with
REACH = 0.6  # σ of a stream, in median distances of a class name to the nearest other
ALIKE = 0.05  # distance below which names say nothing of distances

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
        entries = np.arange(counts.sum()) + np.repeat(self.starts[rows] - firsts, counts)
        columns = self.columns[entries]
        increase = np.maximum(self.values[entries] - covered[columns], 0)
        sums: Floats = np.add.reduceat(need[columns] * increase, firsts)
        return sums

    def cover(self, row: int, covered: Floats) -> Rows:
        """Raise `covered` by what `row` covers; the items where it rose."""
        entries = slice(self.starts[row], self.starts[row + 1])
        columns, values = self.columns[entries], self.values[entries]
        rose = values > covered[columns]
        covered[columns[rose]] = values[rose]
        return columns[rose]

    def around(self, rows: Rows) -> Rows:
        """The items that cover any of `rows`, each once."""
        neighbors = [self.columns[self.starts[row] : self.starts[row + 1]] for row in rows]
        return np.unique(np.concatenate([rows, *neighbors]))


def kernel_of(graph: Graph) -> Kernel:
    """The kernel over the items of a graph, its class names left out."""
    from scipy.sparse import csr_array, eye_array

    items = graph.weights[: graph.items, : graph.items]
    matrix: Any = csr_array(items + eye_array(graph.items, dtype=np.float32))
    matrix.sort_indices()
    return Kernel(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)


class Covering(NamedTuple):
    """The items of a batch, the gain of each when it was chosen, and the best gain left out.

    After the batch, `need` has the doubt of each item to the power of `POWER`, 0 if it is bought,
    and `covered` how far the bought items cover it, (n,) each.
    """

    items: list[int]
    gains: list[float]
    left_out: float
    need: Floats
    covered: Floats


def most_covering(kernel: Kernel, doubt: Array, free: NDArray[np.bool_], count: int) -> Covering:
    """The `count` items with the largest gains, one after another; all free ones if fewer.

    The best gain left out is −∞ where nothing is.

    Args:
        doubt: u, (n,), 0 to 1; that of a bought item is not read.
        free: (n,) whether the item can be bought; the others are bought and cover what they do.
    """
    covered = np.zeros(len(free), dtype=np.float32)
    for row in np.flatnonzero(~free):
        kernel.cover(int(row), covered)
    need = (np.where(free, doubt, 0.0) ** POWER).astype(np.float32)
    gains = np.where(free, kernel.gains(np.arange(len(free)), need, covered) * doubt, -1.0)
    chosen = Covering([], [], -np.inf, need, covered)
    for _ in range(min(count, int(free.sum()))):
        best = int(np.argmax(gains))
        chosen.items.append(best)
        chosen.gains.append(float(gains[best]))
        rose = kernel.cover(best, covered)
        gains[best] = -1.0
        affected = kernel.around(rose)
        affected = affected[gains[affected] >= 0.0]
        if len(affected):
            gains[affected] = kernel.gains(affected, need, covered) * doubt[affected]
    left_out = gains[gains >= 0.0].max(initial=-np.inf)
    return chosen._replace(left_out=float(left_out))


def edges_outside(h: NDArray[Any], outside: NDArray[Any]) -> tuple[NDArray[np.int32], Array]:
    """The nearest items of a kernel to others, and k of them, (m, 15) each.

    Args:
        h: the features of the kernel's items, (n, d).
        outside: those of the m others.
    """
    columns, cosine = nearest(_units(outside), _units(h), NEIGHBORS)
    distance = np.maximum(0.0, 1 - cosine)
    values: Array = np.exp(-np.square(distance / max(float(np.median(distance)), 1e-12)))
    return columns, values


def gains_outside(
    cover: Covering,
    edges: tuple[NDArray[np.int32], Array],
    doubt: Array,
    bought: NDArray[np.bool_],
) -> Array:
    """The gain that items which are not in the kernel would have after a batch, (m,).

    Args:
        edges: of `edges_outside`.
        doubt: u of the m items.
        bought: (n,) whether the kernel's item is bought, in this batch or before.
    """
    columns, values = edges
    increase = np.maximum(values - cover.covered[columns], 0)
    own = 1 - np.where(bought[columns], values, 0.0).max(axis=1)
    gains: Array = doubt * ((cover.need[columns] * increase).sum(axis=1) + doubt**POWER * own)
    return gains


def stands_for(h: NDArray[Any], rows: Rows) -> Array:
    """How many items each bought one represents, (len(rows),): those that it is nearest to.

    Args:
        h: the features of all items, (n, d).
        rows: the bought ones; each represents itself.
    """
    bought = _units(h[rows])
    unbought = np.setdiff1d(np.arange(len(h)), rows)
    counts = np.ones(len(rows))
    for start in range(0, len(unbought), _AT_ONCE):
        cosines = np.asarray(h[unbought[start : start + _AT_ONCE]], dtype=np.float32) @ bought.T
        counts += np.bincount(np.argmax(cosines, axis=1), minlength=len(rows))
    return counts


class SeenItems:
    """The last items that a stream has seen, their doubt, and how far bought items cover them.

    Every number is computed of two rows alone: it has the same bits in whichever order items were
    added, so that the items seen and bought are enough to make this again.

    Args:
        names: rows of the class names, (K, d), whose distances give σ.
    """

    def __init__(self, names: NDArray[Any]) -> None:
        unit = np.stack([_unit(row) for row in names])
        distances = 1 - (unit @ unit.T - 2 * np.eye(len(unit))).max(axis=1)
        distances[distances < ALIKE] = 1  # names of unknown words
        self._width = np.float32(REACH * np.median(distances))
        self._rows = np.zeros((SEEN, unit.shape[1]), np.float32)
        self._covered, self._doubt = np.zeros(SEEN, np.float32), np.ones(SEEN)
        self._bought = np.zeros((0, unit.shape[1]), np.float32)
        self.labels = 0
        self.count = 0

    def add(self, h: NDArray[Any], doubt: float, labels: int) -> None:
        """Add an item that was seen after so many `labels`; the oldest one is dropped."""
        slot, unit = self.count % SEEN, _unit(h)
        self._rows[slot], self._doubt[slot] = unit, doubt
        self._covered[slot] = self._nearest(unit, labels)
        self.count += 1

    def skip(self, count: int) -> None:
        """Take `count` items for seen that are no longer held."""
        self.count += count

    def buy(self, h: NDArray[Any]) -> None:
        """Note that the item with features `h` was bought."""
        if self.labels == len(self._bought):
            room = np.zeros((max(256, self.labels), self._bought.shape[1]), np.float32)
            self._bought = np.concatenate([self._bought, room])
        self._bought[self.labels] = unit = _unit(h)
        self.labels += 1
        np.maximum(self._covered, self._kernel(self._rows, unit), out=self._covered)

    def renew(self, doubts: Array) -> None:
        """Give the items held new `doubts`, in the order in which they were seen."""
        self._doubt[np.arange(self.count - len(doubts), self.count) % SEEN] = doubts

    def gain(self, h: NDArray[Any], doubt: float) -> float:
        """What an item not held covers: the mean over those held, and of itself a thousandth.

        Itself counts as one of 1,000 from the start: among a few it would be the most.
        """
        n, unit = min(self.count, SEEN), _unit(h)
        own_gain = 1 - self._nearest(unit, self.labels)
        increase = np.maximum(self._kernel(self._rows[:n], unit) - self._covered[:n], 0)
        return float((self._doubt[:n] ** POWER * increase).mean() + doubt**POWER * own_gain / SEEN)

    def statistics(self) -> Array:
        """Doubt times gain of the items held, (n,), each as if it were not held."""
        n = min(self.count, SEEN)
        kernel = np.stack([self._kernel(self._rows[:n], row) for row in self._rows[:n]])
        need, covered = self._doubt[:n] ** POWER, self._covered[:n]
        own_gain = need * (1 - covered)
        gain_of_others = (need * np.maximum(kernel - covered, 0)).sum(axis=1) - own_gain
        values: Array = self._doubt[:n] * (gain_of_others / max(1, n - 1) + own_gain / SEEN)
        return values

    def _nearest(self, unit: Floats, labels: int) -> float:
        """How far bought items cover one that was seen after so many labels."""
        rows = self._bought[max(0, labels - MOST) : self.labels]
        return float(self._kernel(rows, unit).max(initial=0.0))

    def _kernel(self, rows: Floats, unit: Floats) -> Floats:
        closeness: Floats = np.exp(-np.square((1 - np.vecdot(rows, unit)) / self._width))
        return closeness


def doubts(head: ClassHead | MixedHead, h: NDArray[Any]) -> Array:
    """1 − the margin of the rows of `h`, (n,), each computed alone."""
    best = np.partition(head.alone(h), -2, axis=1)
    values: Array = 1 - (best[:, -1] - best[:, -2])
    return values


def _units(h: NDArray[Any]) -> Floats:
    """Rows with length 1, or of zeros."""
    rows = np.array(h, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, np.float32(1))
    return rows


def _unit(h: NDArray[Any]) -> Floats:
    """A row with length 1, or of zeros."""
    row = h.astype(np.float32)
    length = np.sqrt(np.vecdot(row, row))
    return row / length if length > 0 else row
