"""Fits of class heads: what they are fitted on beside labels, and which kind the final model is.

A head is fitted on labels alone, with names, or with neighbours as well; one that only ranks a pool
has names. Which of the three is best depends on the data: labels spread over neighbours help where
classes are topics, and harm elsewhere. The kind is chosen by three-fold cross-validation on the
bought labels, which are the doubtful items: so each counts as often as it is the nearest label of
an item. The most right answers win, the simpler kind wins a tie, and neighbours are to win over
names by more than a standard error. Below 60 labels names always take part, since too few labels
are held out to show that labels alone do better.

Classes with a label are not to take the items of those without. So a name counts as the labels that
its class lacks, names are moved to where the items are, and what neighbours say of a class counts
less the more labels it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.heads.coverage import Kernel, kernel_of, stands_for
from stacksl.core.heads.logistic import (
    ENOUGH,
    Fit,
    Soft,
    choose_strength,
    fit_classes,
    folds_of,
    together,
)
from stacksl.core.heads.spreading import NAME_SEED, Graph, neighbour_graph, restored_graph, spread
from stacksl.core.rng import generator
from stacksl.core.scorers import Head, Scorer
from stacksl.files import arrays
from stacksl.models.confusion import Confusion

Kind = Literal["plain", "names", "names and graph"]
KINDS: tuple[Kind, ...] = ("plain", "names", "names and graph")

FEWEST = 6  # labels below which nothing is tried
NAME_WEIGHT = 1.0  # a class name counts as a bought label
FILLED = 8.0  # labels of a class with its name: a name weighs more while it has fewer
SPREAD_WEIGHT = 0.1  # of an item never asked
LEVELLED = 0.75  # the power of a class's labels that what they say of other items is divided by
SHARPER = 2  # the power that spread labels are raised to: the graph's are too even
MODEL_WEIGHT, MODEL_SHARPER = 0.3, 3  # the same in a final fit with labels of a model
ITEMS = 50_000  # nodes of the graph at most: a minute of one core
CELLS = 20_000_000  # nodes x classes of the graph at most
SAMPLE = 20_000  # items that bought ones represent, at most
FITTED = 2_000_000  # spread rows x classes of a fit at most

_TRIAL = 3e-4  # tolerance of a fit that is only compared with others
_NARROW = 1e-5  # of a final fit on float32 rows: below it their rounding shows
_NEVER = -1e9  # the logit of a class without an example in a fit

GRAPH = "graph.safetensors"  # in the folder of the features

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FittedHead:
    """The final model, what it was `made_by`, and the accuracy (0 to 1) of all that were tried.

    `tried` is on held-out bought labels, which are the hard ones, each counted by how many items it
    represents: only its order means something.
    It is empty where there was nothing to choose from.
    """

    head: Head | None
    made_by: Kind
    tried: Mapping[Kind, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Source:
    """What a final model can be made of beside labels.

    Attributes:
        block: the features of the run's items.
        names: the rows of the class names, (K, d); None where they take no part.
        apart: rows of the block that must not be in the graph: the audit's.
        seed: draws folds, and the items of a graph that cannot hold all.
        graph_file: of the graph; it is read if it is of the same items, and else written.
        model: labels of a model, where they say something: the class of each item of the block,
            −1 for none, and their confusion.
    """

    block: SharedBlock
    names: NDArray[Any] | None
    apart: frozenset[int]
    seed: int
    graph_file: Path | None = None
    model: tuple[Rows, Confusion] | None = None
    _graph: tuple[Graph, Rows] | None = None
    _holding: tuple[Graph, Rows] | None = None
    _kernel: Kernel | None = None
    _away: NDArray[np.float32] | None = None

    def named(self, gold: Rows) -> Soft:
        """The class names, a soft example each, beside the labels `gold`.

        A name counts as the labels that its class lacks to `FILLED`. Names are moved to the mean of
        the items: what sets names apart from prompts would speak for the classes with a label.
        """
        assert self.names is not None
        counts = np.bincount(gold, minlength=len(self.names))
        moved = self.names + self.away()
        return beside_names(moved, np.maximum(NAME_WEIGHT, FILLED - counts))

    def away(self) -> NDArray[np.float32]:
        """From the mean of the class names to that of the items, (d,), of a sample of them."""
        if self._away is None:
            assert self.names is not None
            order = generator(self.seed, "mean").permutation(len(self.block))
            some = order[~np.isin(order, list(self.apart))][:SAMPLE]
            items = np.asarray(self.block.h[np.sort(some)], dtype=np.float64).mean(axis=0)
            self._away = (items - self.names.mean(axis=0)).astype(np.float32)
        return self._away

    def spread_labels(
        self, rows: Rows, gold: Rows, without: Rows | None = None, *, final: bool = True
    ) -> Soft:
        """What the labels `gold` of `rows` say of the items never asked, those in `without` aside.

        With labels of a model it is taken for surer in a `final` fit than in one that ranks a pool.

        The graph is made at the first call, and again for rows that it does not have.
        """
        graph, members = self.holding(rows)
        known = rows if without is None else np.concatenate([rows, without])
        targets_at = np.flatnonzero(~np.isin(members, known))
        most = max(1, FITTED // self.block.classes)
        if len(targets_at) > most:
            order = generator(self.seed, "graph/fit").permutation(len(members))
            targets_at = np.sort(order[np.isin(order, targets_at)][:most])
        seeds = np.searchsorted(members, rows)
        weak = self._weak(members, without)
        power, weight = SHARPER, SPREAD_WEIGHT
        if weak is not None and final:
            power, weight = MODEL_SHARPER, MODEL_WEIGHT
        shares = spread(graph, seeds, gold, self.block.classes, targets_at, weak)
        if weak is None:  # else every class has seeds
            counts = np.bincount(gold, minlength=self.block.classes)
            shares /= ((counts + NAME_SEED) ** LEVELLED).astype(np.float32)
        shares **= power
        reached = shares.sum(axis=1) > 0
        targets = shares[reached] / shares[reached].sum(axis=1, keepdims=True)
        h = self.block.h[members[targets_at[reached]]]
        return Soft(h, targets, np.full(len(targets), weight, dtype=np.float32))

    def _weak(self, members: Rows, without: Rows | None) -> NDArray[np.float32] | None:
        """The model's labels of the graph's items as seeds; none of the items `without`."""
        if self.model is None:
            return None
        labels = self.model[0][members]
        labelled = (labels >= 0) & ~np.isin(members, () if without is None else without)
        seeds = np.zeros((len(members), self.block.classes), dtype=np.float32)
        seeds[labelled] = self.model[1].seeds(labels[labelled])
        return seeds

    def represented(self, rows: Rows) -> Array:
        """How many items each of the bought `rows` represents, of a sample of the items."""
        _, members = self.graph()
        order = generator(self.seed, "represented").permutation(len(members))[:SAMPLE]
        every = np.union1d(members[order], rows)
        return stands_for(self.block.h[every], np.searchsorted(every, rows))

    def graph(self) -> tuple[Graph, Rows]:
        """The graph of the items, bought or not, and its rows in ascending order."""
        if self._graph is None:
            self._graph = self._read()
        if self._graph is None:
            graph, members = self._graph = self._made(np.zeros(0, dtype=np.int64))
            if self.graph_file is not None:
                arrays.save(self.graph_file, {**graph.state(), "rows": members, "of": self._of()})
        return self._graph

    def holding(self, rows: Rows) -> tuple[Graph, Rows]:
        """A graph that has the items `rows`, and its rows in ascending order."""
        graph, members = self.graph() if self._holding is None else self._holding
        if not np.isin(rows, members).all():
            graph, members = self._holding = self._made(rows)
        return graph, members

    def kernel(self) -> tuple[Kernel, Rows]:
        """The kernel over the graph's items, and their rows in ascending order."""
        graph, members = self.graph()
        if self._kernel is None:
            self._kernel = kernel_of(graph)
        return self._kernel, members

    def _read(self) -> tuple[Graph, Rows] | None:
        """The graph in the file, if there is one of these items."""
        if self.graph_file is None or not self.graph_file.exists():
            return None
        stored = arrays.load(self.graph_file, f"delete {self.graph_file.name} and it is made again")
        if not np.array_equal(stored["of"], self._of()):
            return None
        return restored_graph(stored), stored["rows"]

    def _of(self) -> NDArray[np.uint8]:
        """A digest of which items and names the graph is of."""
        names = b"" if self.names is None else np.ascontiguousarray(self.names).tobytes()
        about = repr((len(self.block), self.seed, self.block.classes, sorted(self.apart))).encode()
        return np.frombuffer(sha256(about + names).digest(), dtype=np.uint8)

    def _made(self, rows: Rows) -> tuple[Graph, Rows]:
        """The graph, and the rows of the block that are its items, in ascending order."""
        every = np.setdiff1d(np.arange(len(self.block)), np.array(sorted(self.apart), np.int64))
        most = max(len(rows), min(ITEMS, CELLS // self.block.classes))
        if len(every) > most:
            others = np.setdiff1d(every, rows)
            drawn = generator(self.seed, "graph").permutation(len(others))[: most - len(rows)]
            every = np.sort(np.concatenate([rows, others[drawn]]))
        return neighbour_graph(np.asarray(self.block.h[every]), self.names), every


def beside_names(names: NDArray[Any], weight: float | Array = NAME_WEIGHT) -> Soft:
    """Rows of class names, (K, d), as soft examples of their classes."""
    targets = np.eye(len(names), dtype=np.float32)
    return Soft(names, targets, np.full(len(names), weight, dtype=np.float32))


def make_final(
    scorer: Scorer,
    source: Source,
    rows: Rows,
    gold: Rows,
    made_by: Kind | None = None,
    without: Rows | None = None,
) -> FittedHead:
    """The final model of the items `rows`, (n,), with bought labels `gold`.

    `made_by` says what of, where that was chosen before; such a model is fitted less closely.
    Nothing is fitted on the rows `without`.
    """
    tried: Mapping[Kind, float] = {}
    kind = made_by
    if kind is None:
        tried, doubt = _compare(source, rows, gold)
        kind = _best(tried, doubt)
    if kind == "plain":
        fit = Fit(choose_strength(source.block.h[rows], gold, source.seed))
    elif kind == "names":
        fit = Fit(soft=source.named(gold))
    else:
        soft = together(source.named(gold), source.spread_labels(rows, gold, without))
        fit = Fit(soft=soft, tolerance=_NARROW if made_by is None else _TRIAL)
    head = scorer.refit(source.block.take(rows.tolist()), gold, fit=fit)
    return FittedHead(head, kind, tried)


def _best(tried: Mapping[Kind, float], doubt: float = 0.0) -> Kind:
    """The kind with the most right answers, the simplest of several; names where none was tried.

    Neighbours are to be better than names by more than `doubt`.
    """
    if not tried:
        return "names"
    graph = KINDS[-1]
    others = {kind: share for kind, share in tried.items() if kind != graph}
    best = max(others, key=lambda kind: others[kind])
    ahead = tried[graph] > others[best] and tried[graph] > tried["names"] + doubt
    return graph if ahead else best


def _compare(source: Source, rows: Rows, gold: Rows) -> tuple[dict[Kind, float], float]:
    """The share of held-out bought labels that each kind gets right, by what they represent.

    With it the standard error of what neighbours add to names; 0 with labels of a model.
    """
    if len(rows) < FEWEST:
        return {}, 0.0
    source.holding(rows)  # one graph for every fold
    right = {kind: np.zeros(len(rows)) for kind in (KINDS if len(rows) >= ENOUGH else KINDS[1:])}
    weight = source.represented(rows)
    weight /= weight.sum()
    strength = choose_strength(source.block.h[rows], gold, source.seed)
    for train, held in folds_of(len(rows), source.seed):
        labels = rows[train], gold[train]
        names = source.named(gold)
        neighbours = together(names, source.spread_labels(*labels, rows[held]))
        fits = {
            "plain": Fit(strength, tolerance=_TRIAL),
            "names": Fit(soft=names, tolerance=_TRIAL),
            "names and graph": Fit(soft=neighbours, tolerance=_TRIAL),
        }
        for kind, hits in right.items():
            weights, intercepts = _logits(source, *labels, fits[kind])
            scores = np.asarray(source.block.h[rows[held]], dtype=np.float64) @ weights.T
            hits[held] = np.argmax(scores + intercepts, axis=1) == gold[held]
    tried = {kind: float(weight @ hits) for kind, hits in right.items()}
    more = right[KINDS[-1]] - right["names"]
    error = float(np.linalg.norm(weight * (more - weight @ more)))
    return tried, error if source.model is None else 0.0  # a model's labels are no chance


def _logits(source: Source, rows: Rows, gold: Rows, fit: Fit) -> tuple[Array, Array]:
    """Coefficients, (K, d), and intercepts, (K,); a class unknown to the fit is never chosen."""
    coefficients = np.zeros((source.block.classes, source.block.dim))
    intercepts = np.full(source.block.classes, _NEVER)
    fitted = fit_classes(source.block.h[rows], gold, source.seed, fit)
    if fitted is None:  # one class alone: it is what there is to say
        intercepts[gold] = 0.0
        return coefficients, intercepts
    seen = fitted[0]
    coefficients[seen], intercepts[seen] = fitted[1], fitted[2]
    return coefficients, intercepts
