"""Label spreading: from a few labels to all items over a graph of neighbors.

The nodes are items and class names; an edge joins each node with its nearest ones by
cosine and weighs exp(−(distance / median distance)²). With S = D^−½ W D^−½ and the seeds Y the
spread labels are F ← α·S·F + (1 − α)·Y, some 40 times over. scikit-learn's `LabelSpreading` is this
iteration for hard seeds of one weight. Class names are weaker seeds, which it does not support, so
the iteration is written with SciPy's sparse product here; a test checks that both agree.

Source: Zhou, Bousquet, Lal, Weston and Schölkopf, Learning with local and global consistency, 2004.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.nearest import nearest

NEIGHBORS = 15
ALPHA = 0.9
STEPS = 40
SMOOTH_ALPHA, SMOOTH_STEPS = 0.5, 10  # of predictions, which say something of every item
NAME_SEED = 0.3  # a bought label is a seed of weight 1

Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = NDArray[np.int64]

_SAME = 1e-6  # the distance below which float32 rows are equal but for their rounding
_COLUMNS = 64  # classes spread at once: memory, without the graph, is nodes x 64 numbers


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """S over n items and, behind them, the names of K classes (or of none).

    `similarity` and `weights`, W, are SciPy matrices in CSR form, (n + K, n + K) float32,
    symmetric, 0 on the diagonal; `items` is n.
    """

    similarity: Any
    weights: Any
    items: int

    @property
    def names(self) -> int:
        """The nodes that are class names."""
        return int(self.similarity.shape[0]) - self.items

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays for `restored_graph`."""
        w = self.weights
        return {
            "starts": w.indptr,
            "ends": w.indices,
            "weights": w.data,
            "items": np.array([self.items]),
        }


def neighbor_graph(
    h: NDArray[Any], names: NDArray[Any] | None = None, neighbors: int = NEIGHBORS
) -> Graph:
    """The graph of the rows of `h`, (n, d), and of `names`, (K, d), one per class.

    A row of zeros has no direction and is joined with nothing. Neighbors are exact: the search
    takes n² products of d numbers, in blocks, so a large pool gives it a sample of its items.
    """
    rows = np.asarray(h, dtype=np.float32)
    if names is not None:
        rows = np.concatenate([rows, np.asarray(names, dtype=np.float32)])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    nonzero = np.flatnonzero(lengths[:, 0] > 0)
    nodes, unit = len(rows), rows[nonzero]
    del rows  # a large pool's are as large as all else that the search needs
    unit /= lengths[nonzero]
    count = max(0, min(neighbors, len(nonzero) - 1))
    neighbor_rows, cosine = _nearest(unit, count)
    starts, ends = np.repeat(nonzero, count), nonzero[neighbor_rows.ravel()]
    distance = (1 - cosine.ravel()).astype(np.float32)
    distance[distance < _SAME] = 0.0  # of equal rows, whose rounding errors could be the median
    weights = _weights(starts, ends, distance, nodes)
    return Graph(_similarity(weights), weights, len(h))


def restored_graph(state: Mapping[str, NDArray[Any]]) -> Graph:
    """The graph with this `state`, bit for bit."""
    from scipy.sparse import csr_array

    nodes = len(state["starts"]) - 1
    arrays = (state["weights"], state["ends"], state["starts"])
    weights = csr_array(arrays, shape=(nodes, nodes))
    return Graph(_similarity(weights), weights, int(state["items"][0]))


def _nearest(unit: Floats, count: int) -> tuple[Rows, Array]:
    """The `count` nearest other rows of each row of length 1, and their cosines, (n, count)."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # which of many equal rows is taken may depend on the threads
        neighbors, cosine = nearest(unit, unit, count + 1)
    is_other = neighbors != np.arange(len(neighbors))[:, None]
    is_other[is_other.all(axis=1), -1:] = False  # among equal rows a row may not find itself
    return neighbors[is_other].reshape(len(unit), count), cosine[is_other].reshape(len(unit), count)


def _weights(starts: Rows, ends: Rows, distance: Floats, nodes: int) -> Any:
    """W, the mean of the edges and of their reverse."""
    from scipy.sparse import csr_array

    median = float(np.median(distance)) if len(distance) else 0.0
    weights = np.exp(-np.square(distance / max(median, 1e-12))).astype(np.float32)
    directed = csr_array((weights, (starts, ends)), shape=(nodes, nodes))
    return csr_array((directed + directed.T) / 2)


def _similarity(weights: Any) -> Any:
    """D^−½ W D^−½."""
    from scipy.sparse import csr_array

    degree = np.asarray(weights.sum(axis=1), dtype=np.float64)
    scale = 1.0 / np.sqrt(np.where(degree > 0, degree, 1.0))
    rows = np.repeat(scale, np.diff(weights.indptr))  # products of matrices take ten times as long
    similarity = csr_array(weights, copy=True)  # not its indices, which a sort of one would move
    similarity.data = (rows * weights.data * scale[weights.indices]).astype(np.float32)
    return similarity


def spread(
    graph: Graph,
    rows: Rows,
    labels: Rows,
    classes: int,
    items: Rows | None = None,
    weak: Floats | None = None,
) -> Floats:
    """The spread labels of the items: (m, K) float32, rows that add to 1 or are 0.

    Args:
        graph: the neighbors; its names are seeds of weight 0.3, each of its own class.
        rows: items with a label, (n,), seeds of weight 1; `labels` are their classes.
        classes: K.
        items: the m items to return; all if None.
        weak: seeds of all items, (items, K) ≥ 0; those of items with a label are not read.
    """
    chosen = np.arange(graph.items) if items is None else items
    shares = np.zeros((len(chosen), classes), dtype=np.float32)
    for start in range(0, classes, _COLUMNS):
        stop = min(start + _COLUMNS, classes)
        seeds = np.zeros((graph.items + graph.names, stop - start), dtype=np.float32)
        if weak is not None:
            seeds[: graph.items] = weak[:, start:stop]
            seeds[rows] = 0.0
        in_block = (labels >= start) & (labels < stop)
        seeds[rows[in_block], labels[in_block] - start] = 1.0
        name_rows = np.arange(start, min(stop, graph.names))
        seeds[graph.items + name_rows, name_rows - start] = NAME_SEED
        shares[:, start:stop] = _iterate(graph.similarity, seeds, ALPHA, STEPS)[chosen]
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.where(total > 0, total, np.float32(1))
    return shares


def smoothed(graph: Graph, policies: Floats, rows: Rows, labels: Rows) -> Floats:
    """The predictions of all items, (items, K), each moved toward those of its neighbors.

    The `labels` of the items `rows` stand in place of their predictions. The rows of the result add
    to 1. Source: Huang, He, Singh, Lim and Benson, Combining label propagation and simple models
    out-performs graph neural networks, 2021.
    """
    of_items = graph.similarity[: graph.items, : graph.items]
    shares = policies.copy()
    shares[rows] = 0.0
    shares[rows, labels] = 1.0
    for start in range(0, shares.shape[1], _COLUMNS):
        block = shares[:, start : start + _COLUMNS]
        block[:] = _iterate(of_items, np.ascontiguousarray(block), SMOOTH_ALPHA, SMOOTH_STEPS)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _iterate(similarity: Any, seeds: Floats, alpha: float, steps: int) -> Floats:
    source = np.float32(1 - alpha) * seeds
    shares = seeds
    for _ in range(steps):
        shares = np.float32(alpha) * (similarity @ shares) + source
    return shares
