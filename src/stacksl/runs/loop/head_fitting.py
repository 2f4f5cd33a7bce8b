"""Fits of class heads: what they are fitted on besides labels, and the final model's mixture.

A head is fitted on labels alone, with class names, with neighbors as well, or on names without a
label. Which is best depends on the data: names help where they say what a class is, and labels
spread over neighbors where classes are topics; elsewhere both do harm. What a mixture of the four
predicts of the items never asked is smoothed over the neighbors, and a fifth head is fitted on
that, too. The final model is a mixture of the five. Temperatures and weights are fitted on held-out
labels of three folds (`core.heads.linear`). Those are the doubtful items, so each counts as often
as it is the nearest label of an item. Where one kind is as good as another the mixture is better
than both, and a kind that does harm loses its weight. A head that only ranks items is fitted on
labels and names.

Classes with a label are not to take the items of those without. So a name counts as the labels that
its class lacks, names are moved to where the items are, and what neighbors say of a class counts
less the more labels it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, SharedBlock
from stacksl.core.heads.coverage import Kernel, edges_outside, kernel_of, stands_for
from stacksl.core.heads.linear import ClassHead, MixedHead, mixture_weights, tempered
from stacksl.core.heads.logistic import (
    DEFAULT,
    Fit,
    Soft,
    Strength,
    choose_strength,
    fit_classes,
    folds_of,
    together,
)
from stacksl.core.heads.spreading import (
    NAME_SEED,
    Graph,
    neighbor_graph,
    restored_graph,
    smoothed,
    spread,
)
from stacksl.core.rng import generator
from stacksl.files import arrays
from stacksl.models.confusion import Confusion
from stacksl.runs.loop.batch_selection import surest

Kind = Literal["plain", "names", "names and graph", "names alone", "smoothed"]
KINDS: tuple[Kind, ...] = ("plain", "names", "names and graph", "names alone", "smoothed")
PLAIN, NAMES, GRAPHED, ALONE, SMOOTHED = KINDS
FIRST = KINDS[:4]  # whose mixture is smoothed
PRIOR = np.array([0.5, 1.0, 1.0, 1.5, 1.0])  # labels that speak for each kind before any held out

FEWEST = 6  # labels below which names alone are taken
NAME_WEIGHT = 1.0  # a class name counts as a bought label
FILLED = 8.0  # labels of a class with its name: a name weighs more while it has fewer
SPREAD_WEIGHT = 0.1  # of an item never asked
LEVELED = 0.75  # the power of a class's labels that what they say of other items is divided by
SHARPER = 2  # the power that spread labels are raised to: the graph's are too even
SMOOTHED_WEIGHT = 1.0  # of an item with a smoothed prediction, raised to the same power
SMOOTHED_LEVELED = 0.5  # the power of a class's items that its smoothed predictions are divided by
MODEL_WEIGHT, MODEL_SHARPER = 0.3, 3  # the same in a final fit with labels of a model
ITEMS = 50_000  # nodes of the graph at most: a minute of one core
CELLS = 20_000_000  # nodes x classes of the graph at most
CHUNK = 4096  # items predicted at a time
SAMPLE = 20_000  # items that bought ones represent, at most
FITTED = 2_000_000  # spread rows x classes of a fit at most

AMONG_WRONG = (1.0, 3.0, 10.0)  # C where there are many labels, and some of them are wrong

_FINAL = 1e-6  # tolerance of a final fit
_TRIAL = 3e-4  # tolerance of a fit that is only compared with others
_NARROW = 1e-5  # of a final fit on float32 rows: below it their rounding shows
_NEVER = -1e9  # the logit of a class without an example in a fit

GRAPH = "graph.safetensors"  # in the folder of the features

Rows = NDArray[np.int64]


class Component(NamedTuple):
    """A kind of head in a mixture: its weight, its temperature, its held-out log-loss and its C.

    `taught` is its weight in the mixture of the first four kinds, whose predictions are smoothed.

    The log-loss is on bought labels, which are the hard ones, each counted by how many items it
    represents: only the order of the losses means something. It is NaN where nothing was held out.
    C is NaN where it is not chosen yet, or where the kind has the default.
    """

    kind: Kind
    weight: float = 1.0
    temperature: float = 1.0
    log_loss: float = np.nan
    c: float = np.nan
    taught: float = np.nan


Mixture = tuple[Component, ...]


@dataclass(slots=True, eq=False)
class Source:
    """What a final model can be made of in addition to labels.

    Attributes:
        block: the features of the run's items.
        names: the rows of the class names, (K, d); None where they take no part.
        apart: rows of the block that must not be in the graph: the audit's.
        seed: draws folds, and the items of a graph that cannot hold all.
        graph_file: of the graph; it is read if it is of the same items, and else written.
        model: labels of a model, where they say something: the class of each item of the block,
            −1 for none, and their confusion.
        alone: the head of names alone, once it is fitted; no label changes it.
        tried: the last labels of which a mixture held out folds: rows, classes, and each label's
            probability by every kind, (n, kinds), and its weight.
    """

    block: SharedBlock
    names: NDArray[Any] | None
    apart: frozenset[int]
    seed: int
    graph_file: Path | None = None
    model: tuple[Rows, Confusion] | None = None
    alone: ClassHead | None = None
    tried: tuple[Rows, Rows, Array, Array] | None = None
    _graph: tuple[Graph, Rows] | None = None
    _holding: tuple[Graph, Rows] | None = None
    _kernel: Kernel | None = None
    _outside: tuple[Sequence[int], tuple[NDArray[np.int32], Array]] | None = None
    _name_shift: NDArray[np.float32] | None = None

    def named(self, gold: Rows) -> Soft:
        """The class names, a soft example each, in addition to the labels `gold`.

        A name counts as the labels that its class lacks to `FILLED`. Names are moved to the mean of
        the items: what sets names apart from prompts would speak for the classes with a label.
        """
        assert self.names is not None
        counts = np.bincount(gold, minlength=len(self.names))
        moved_names = self.names + self.name_shift()
        return soft_names(moved_names, np.maximum(NAME_WEIGHT, FILLED - counts))

    def name_shift(self) -> NDArray[np.float32]:
        """From the mean of the class names to that of the items, (d,), of a sample of them."""
        if self._name_shift is None:
            assert self.names is not None
            order = generator(self.seed, "mean").permutation(len(self.block))
            sample = order[~np.isin(order, list(self.apart))][:SAMPLE]
            item_sum = np.asarray(self.block.h[np.sort(sample)], dtype=np.float64).sum(axis=0)
            item_mean = item_sum / max(1, len(sample))  # 0 where every item is apart
            self._name_shift = (item_mean - self.names.mean(axis=0)).astype(np.float32)
        return self._name_shift

    def spread_labels(
        self, rows: Rows, gold: Rows, without: Rows | None = None, *, final: bool = True
    ) -> Soft:
        """Soft labels of the items never asked, but those in `without`, from `gold` of `rows`.

        Each item has the shares of the labels that reach it over the graph of neighbors. With
        labels of a model these are taken for surer in a `final` fit than in one that ranks a pool.
        The graph is made at the first call, and again for rows that it does not have.
        """
        graph, members = self.holding(rows)
        unasked = self._unasked(members, rows, without)
        seeds = np.searchsorted(members, rows)
        model_seeds = self._weak(members, without)
        power, weight = SHARPER, SPREAD_WEIGHT
        if model_seeds is not None and final:
            power, weight = MODEL_SHARPER, MODEL_WEIGHT
        shares = spread(graph, seeds, gold, self.block.classes, unasked, model_seeds)
        if model_seeds is None:  # else a class with many labels would reach most items
            counts = np.bincount(gold, minlength=self.block.classes)
            shares /= ((counts + NAME_SEED) ** LEVELED).astype(np.float32)
        reached = shares.any(axis=1)
        return self._soft(members[unasked[reached]], shares[reached] ** power, weight)

    def smoothed(self, head: MixedHead, rows: Rows, gold: Rows, without: Rows | None) -> Soft:
        """What a `head` of the labels `gold` of `rows` predicts of the items never asked, smoothed.

        That is over the neighbors of the graph. Those in `without` are left out.
        """
        graph, members = self.holding(rows)
        policies = np.empty((len(members), self.block.classes), dtype=np.float32)
        for start in range(0, len(members), CHUNK):
            chunk = self.block.take(members[start : start + CHUNK].tolist())
            policies[start : start + CHUNK] = head.probabilities(chunk)
        shares = smoothed(graph, policies, np.searchsorted(members, rows), gold)
        shares /= np.maximum(1.0, shares.sum(axis=0)) ** SMOOTHED_LEVELED
        unasked = self._unasked(members, rows, without)
        return self._soft(members[unasked], shares[unasked] ** SHARPER, SMOOTHED_WEIGHT)

    def _unasked(self, members: Rows, rows: Rows, without: Rows | None) -> Rows:
        """The positions in `members` of those never asked; a sample where a fit has no room."""
        excluded_rows = rows if without is None else np.concatenate([rows, without])
        positions = np.flatnonzero(~np.isin(members, excluded_rows))
        limit = max(1, FITTED // self.block.classes)
        if len(positions) > limit:
            order = generator(self.seed, "graph/fit").permutation(len(members))
            positions = np.sort(order[np.isin(order, positions)][:limit])
        return positions

    def _soft(self, rows: Rows, shares: NDArray[np.float32], weight: float) -> Soft:
        """The `rows` as soft examples of their `shares`, (n, K), made to add to 1."""
        targets = shares / shares.sum(axis=1, keepdims=True)
        return Soft(self.block.h[rows], targets, np.full(len(rows), weight, dtype=np.float32))

    def _weak(self, members: Rows, without: Rows | None) -> NDArray[np.float32] | None:
        """The model's labels of the graph's items as seeds; none of the items `without`."""
        if self.model is None:
            return None
        labels = self.model[0][members]
        labeled = (labels >= 0) & ~np.isin(members, () if without is None else without)
        seeds = np.zeros((len(members), self.block.classes), dtype=np.float32)
        seeds[labeled] = self.model[1].seeds(labels[labeled])
        return seeds

    def answerable(self, rows: Rows, unnamed: Rows) -> Array:
        """How far answers say of each item that its answer will be a label, 0 to 1, (items,).

        Labels of `rows` and answers of `unnamed` that name no class are spread over the graph.
        """
        graph, members = self.graph()
        item_graph = replace(graph, similarity=graph.similarity[: graph.items, : graph.items])
        answered = np.concatenate([rows, unnamed])
        kinds = np.repeat([0, 1], [len(rows), len(unnamed)])
        inside = np.isin(answered, members)
        shares = spread(item_graph, np.searchsorted(members, answered[inside]), kinds[inside], 2)
        values: Array = np.where(shares.any(axis=1), shares[:, 0], 1.0)  # 1 where none is near
        return values

    def graph(self) -> tuple[Graph, Rows]:
        """The graph of the items, bought or not, and its rows in ascending order."""
        if self._graph is not None:
            return self._graph
        file, names = self.graph_file, b""
        if self.names is not None:
            names = np.ascontiguousarray(self.names).tobytes()
        facts = repr((len(self.block), self.seed, self.block.classes, sorted(self.apart))).encode()
        digest = np.frombuffer(sha256(facts + names).digest(), dtype=np.uint8)  # items and names
        if file is not None and file.exists():
            stored = arrays.load(file, f"delete {file.name} and it is made again")
            if np.array_equal(stored["of"], digest):
                self._graph = restored_graph(stored), stored["rows"]
                return self._graph
        graph, members = self._graph = self._build(np.zeros(0, dtype=np.int64))
        if file is not None:
            arrays.save(file, {**graph.state(), "rows": members, "of": digest})
        return self._graph

    def holding(self, rows: Rows) -> tuple[Graph, Rows]:
        """A graph that has the items `rows`, and its rows in ascending order."""
        graph, members = self.graph() if self._holding is None else self._holding
        if not np.isin(rows, members).all():
            graph, members = self._holding = self._build(rows)
        return graph, members

    def kernel(self) -> tuple[Kernel, Rows]:
        """The kernel over the graph's items, and their rows in ascending order."""
        graph, members = self.graph()
        if self._kernel is None:
            self._kernel = kernel_of(graph)
        return self._kernel, members

    def outside(self, rows: Sequence[int]) -> tuple[NDArray[np.int32], Array]:
        """The edges that join reference `rows` with the kernel's items (`edges_outside`)."""
        if self._outside is None or self._outside[0] != rows:
            _, members = self.graph()
            self._outside = rows, edges_outside(self.block.h[members], self.block.h[rows])
        return self._outside[1]

    def _build(self, rows: Rows) -> tuple[Graph, Rows]:
        """The graph, and the rows of the block that are its items, in ascending order."""
        members = np.setdiff1d(np.arange(len(self.block)), np.array(sorted(self.apart), np.int64))
        limit = max(len(rows), min(ITEMS, CELLS // self.block.classes))
        if len(members) > limit:
            other_rows = np.setdiff1d(members, rows)
            sample = generator(self.seed, "graph").permutation(len(other_rows))[: limit - len(rows)]
            members = np.sort(np.concatenate([rows, other_rows[sample]]))
        return neighbor_graph(np.asarray(self.block.h[members]), self.names), members


def represented(block: SharedBlock, members: Rows, rows: Rows, seed: int) -> Array:
    """How many items each of the bought `rows` represents, of a sample of the rows `members`."""
    order = generator(seed, "represented").permutation(len(members))[:SAMPLE]
    sample = np.union1d(members[order], rows)
    return stands_for(block.h[sample], np.searchsorted(sample, rows))


def soft_names(names: NDArray[Any], weight: float | Array = NAME_WEIGHT) -> Soft:
    """Rows of class names, (K, d), as soft examples of their classes."""
    targets = np.eye(len(names), dtype=np.float32)
    return Soft(names, targets, np.full(len(names), weight, dtype=np.float32))


def make_final(
    source: Source,
    rows: Rows,
    gold: Rows,
    mixture: Mixture = (),
    without: Rows | None = None,
) -> tuple[ClassHead | MixedHead, Mixture]:
    """The final model of the items `rows`, (n,), with bought labels `gold`, and its mixture.

    Without a `mixture` it is fitted on folds. One that was fitted before is kept, with its C; such
    a model is fitted less closely. Nothing is fitted on the rows `without`.
    """
    tolerance = _TRIAL if mixture else _FINAL
    mixture = mixture or fitted_mixture(source, rows, gold)
    components = [part for part in mixture if part.kind != SMOOTHED]
    strength = Strength(next((part.c for part in mixture if part.kind == PLAIN), DEFAULT))
    if np.isnan(strength.value):
        strength = choose_strength(source.block.h[rows], gold, source.seed)
    kinds = [part.kind for part in components]
    labels = _Labels(rows, gold, source.named(gold), without, tolerance)
    heads = _all_at(_fitted(source, labels, kinds, strength), components)
    if len(components) < len(mixture):
        heads.append(_at(_smoothed(source, labels, heads, components), mixture[-1].temperature))
    return (heads[0] if len(heads) == 1 else _mixed(heads, mixture)), mixture


def _at(head: ClassHead, temperature: float) -> ClassHead:
    """The head at a temperature."""
    return ClassHead(head.coefficients / temperature, head.intercepts / temperature, head.strength)


def _all_at(heads: Sequence[ClassHead], components: Sequence[Component]) -> list[ClassHead]:
    return [_at(head, part.temperature) for head, part in zip(heads, components, strict=True)]


def _mixed(heads: Sequence[ClassHead], mixture: Mixture) -> MixedHead:
    return MixedHead(tuple(heads), np.array([part.weight for part in mixture]))


def fitted_mixture(source: Source, rows: Rows, gold: Rows) -> Mixture:
    """The mixture of all kinds that held-out bought labels choose; names alone with few labels."""
    if len(rows) < FEWEST:
        return (Component(NAMES),)
    strength = choose_strength(source.block.h[rows], gold, source.seed)
    result = _held_out(source, rows, gold, KINDS, strength)
    source.tried = rows, gold, result.of_label, result.weight
    return tuple(
        part._replace(c=strength.value) if part.kind == PLAIN else part for part in result.mixture
    )


class HeldOut(NamedTuple):
    """What a final model says of items when it is not fitted on them.

    Attributes:
        sure: its probability of its answer to each labeled item, (n,).
        right: 1 where that answer is the label, else 0, (n,).
        weight: how many items the label represents, (n,).
        others: its probability of its answer to each of the items never asked, (m,).
    """

    sure: Array
    right: Array
    weight: Array
    others: Array


def held_out_answers(
    source: Source, rows: Rows, gold: Rows, unasked: Rows
) -> tuple[Mixture, HeldOut]:
    """The mixture of a final model, and its answers to items that folds left out.

    The rows `unasked` are left out as well: a model is surer of items that it was fitted on, even
    without their labels.
    """
    fold_result = _held_out(source, rows, gold, KINDS, Strength(DEFAULT), unasked)
    confidence, correct = np.zeros(len(rows)), np.zeros(len(rows))
    other_confidence = np.zeros(len(unasked))
    for fold in fold_result.folds:
        head = _mixed(_all_at(fold.heads, fold_result.mixture), fold_result.mixture)
        policies = head.probabilities(source.block.take(rows[fold.held].tolist()))
        confidence[fold.held] = policies.max(axis=1)
        correct[fold.held] = np.argmax(policies, axis=1) == gold[fold.held]
        other_confidence[fold.apart] = surest(head, source.block, unasked[fold.apart].tolist())
    return fold_result.mixture, HeldOut(confidence, correct, fold_result.weight, other_confidence)


def lower_loss(source: Source, rows: Rows, gold: Rows) -> tuple[float, float]:
    """How much labels lower the log-loss of class names alone on held-out labels; standard error.

    It compares the head of labels and names, which costs a tenth of one with neighbors.
    """
    kinds, tried = (NAMES, ALONE), source.tried
    if tried and np.array_equal(tried[0], rows) and np.array_equal(tried[1], gold):
        probabilities, weight = tried[2][:, [KINDS.index(kind) for kind in kinds]], tried[3]
    else:
        fold_result = _held_out(source, rows, gold, kinds, Strength(DEFAULT))
        probabilities, weight = fold_result.of_label, fold_result.weight
    differences = np.log(probabilities[:, 0] / probabilities[:, 1])
    mean = float(weight @ differences / weight.sum())
    return mean, float(np.linalg.norm(weight * (differences - mean)) / weight.sum())


class _Fold(NamedTuple):
    """The heads of a fold, and the places of labels and of other items that it left out."""

    heads: list[ClassHead]
    held: Rows
    apart: Rows


class _Held(NamedTuple):
    """What heads of the other folds say of each label.

    Attributes:
        mixture: of their kinds.
        of_label: the probability of the label by each kind, (n, kinds).
        weight: how many items the label represents, (n,).
    """

    mixture: Mixture
    of_label: Array
    weight: Array
    folds: list[_Fold]


class _Labels(NamedTuple):
    """What heads are fitted on: labels, class names, and items but those of the rows `without`."""

    rows: Rows
    gold: Rows
    names: Soft
    without: Rows | None
    tolerance: float


def _held_out(
    source: Source,
    rows: Rows,
    gold: Rows,
    kinds: Sequence[Kind],
    strength: Strength,
    unasked: Rows | None = None,
) -> _Held:
    """What heads of the `kinds` say of labels that they did not learn, and their mixture."""
    if GRAPHED in kinds:
        source.holding(rows)  # one graph for every fold
    unasked = np.zeros(0, dtype=np.int64) if unasked is None else unasked
    weight = represented(source.block, source.graph()[1], rows, source.seed)
    names = source.named(gold)
    unsmoothed = [kind for kind in kinds if kind != SMOOTHED]
    splits = zip(folds_of(len(rows), source.seed), folds_of(len(unasked), source.seed), strict=True)
    folds, fold_labels = [], []
    for (train, held), (_, apart) in splits:
        without = np.concatenate([rows[held], unasked[apart]])
        labels = _Labels(rows[train], gold[train], names, without, _TRIAL)
        folds.append(_Fold(_fitted(source, labels, unsmoothed, strength), held, apart))
        fold_labels.append(labels)
    fits = [_of_kind(source, rows, gold, weight, folds, n) for n in range(len(unsmoothed))]
    parts = [Component(kind, temperature=t) for kind, (t, _) in zip(unsmoothed, fits, strict=True)]
    if SMOOTHED in kinds:
        of_label = np.stack([fit[1] for fit in fits], axis=1)
        shares = mixture_weights(of_label, weight, PRIOR[: len(FIRST)]).tolist()
        parts = [part._replace(taught=share) for part, share in zip(parts, shares, strict=True)]
        for labels, fold in zip(fold_labels, folds, strict=True):
            fold.heads.append(_smoothed(source, labels, _all_at(fold.heads, parts), parts))
        fits.append(_of_kind(source, rows, gold, weight, folds, len(unsmoothed)))
        parts.append(Component(SMOOTHED, temperature=fits[-1][0]))
    of_label = np.stack([fit[1] for fit in fits], axis=1)
    losses = (-(weight @ np.log(of_label)) / weight.sum()).tolist()
    prior = PRIOR[[KINDS.index(kind) for kind in kinds]]
    shares = mixture_weights(of_label, weight, prior).tolist()
    mixture = tuple(
        part._replace(weight=share, log_loss=loss)
        for part, share, loss in zip(parts, shares, losses, strict=True)
    )
    return _Held(mixture, of_label, weight, folds)


def _of_kind(
    source: Source, rows: Rows, gold: Rows, weight: Array, folds: Sequence[_Fold], position: int
) -> tuple[float, Array]:
    """The temperature of a kind of head, and its probability of each held-out label, (n,)."""
    logits = np.zeros((len(rows), source.block.classes))
    for fold in folds:
        logits[fold.held] = fold.heads[position].logits(source.block.h[rows[fold.held]])
    return tempered(logits, gold, weight)


def _smoothed(
    source: Source, labels: _Labels, heads: Sequence[ClassHead], components: Sequence[Component]
) -> ClassHead:
    """A head of labels, names and what the mixture of `heads` predicts, smoothed."""
    mixed = MixedHead(tuple(heads), np.array([part.taught for part in components]))
    soft = together(labels.names, source.smoothed(mixed, labels.rows, labels.gold, labels.without))
    return _near(source, labels, soft, heads[FIRST.index(GRAPHED)])


def _fitted(
    source: Source, labels: _Labels, kinds: Sequence[Kind], strength: Strength
) -> list[ClassHead]:
    """A head of each of the `kinds`, which are of `FIRST`."""
    rows, gold, names, without, tolerance = labels
    no_rows = np.zeros(0, dtype=np.int64)
    heads: list[ClassHead] = []
    for kind in kinds:
        if kind == PLAIN:
            heads.append(_head(source, rows, gold, Fit(strength, tolerance=tolerance)))
        elif kind == NAMES:
            heads.append(_head(source, rows, gold, Fit(soft=names, tolerance=tolerance)))
        elif kind == ALONE:
            if source.alone is None:
                source.alone = _head(source, no_rows, no_rows, Fit(soft=source.named(no_rows)))
            heads.append(source.alone)
        else:
            soft = together(names, source.spread_labels(rows, gold, without))
            heads.append(_near(source, labels, soft, heads[-1] if NAMES in kinds else None))
    return heads


def _near(source: Source, labels: _Labels, soft: Soft, fitted_head: ClassHead | None) -> ClassHead:
    """A head of labels and soft examples, whose fit begins where that of `fitted_head` ended."""
    start = None if fitted_head is None else (fitted_head.coefficients, fitted_head.intercepts)
    fit = Fit(soft=soft, start=start, tolerance=max(labels.tolerance, _NARROW))
    return _head(source, labels.rows, labels.gold, fit)


def _head(source: Source, rows: Rows, gold: Rows, fit: Fit) -> ClassHead:
    """A head; a class unknown to the fit is never chosen."""
    coefficients = np.zeros((source.block.classes, source.block.dim))
    intercepts = np.full(source.block.classes, _NEVER)
    fitted = fit_classes(source.block.h[rows], gold, source.seed, fit)
    if fitted is None:  # one class alone: it is what there is to say
        intercepts[gold] = 0.0
        return ClassHead(coefficients, intercepts, Strength(DEFAULT))
    fitted_classes, strength = fitted[0], fitted[3]
    coefficients[fitted_classes], intercepts[fitted_classes] = fitted[1], fitted[2]
    return ClassHead(coefficients, intercepts, strength)


# Labels that the data has already ----------------------------------------------------------------


class Doubt(NamedTuple):
    """What heads fitted in folds say of the labels of a column, (n,) each.

    A label is as `sure` as its `held_out` probability, or as the share of the rows of its text that
    have it, where that is lower. `label` is the most probable class where the column has none.
    `flagged` are labels for which another class is more probable than it is on average in the
    rows labeled so (confident learning; Northcutt, Jiang and Chuang, 2021), or that rows of the
    same text do not share.
    """

    sure: Array
    label: Rows
    flagged: NDArray[np.bool_]
    held_out: Array


def fitted_on(
    block: Block, labels: Rows, seed: int, strength: Strength, tolerance: float = _NARROW
) -> ClassHead:
    """The head of the `labels` of all rows, (n,), −1 for none; by default as a final model."""
    assert isinstance(block, SharedBlock)
    no_rows, rows = np.zeros(0, dtype=np.int64), np.flatnonzero(labels >= 0)
    targets = np.eye(block.classes, dtype=np.float32)[labels[rows]]
    soft = Soft(block.h[rows], targets, np.ones(len(rows), dtype=np.float32))
    fit = Fit(strength, soft=soft, tolerance=tolerance)
    return _head(Source(block, None, frozenset(), seed), no_rows, no_rows, fit)


def held_out(
    block: Block, texts: Rows, labels: Rows, seed: int, c: float = AMONG_WRONG[0]
) -> NDArray[np.float32]:
    """The probabilities of each row, (n, K), by the head of a fold that does not have its text.

    `texts` are the numbers of the rows' texts, `labels` those of all rows, −1 for none.
    """
    assert isinstance(block, SharedBlock)
    policies = np.zeros((len(labels), block.classes), dtype=np.float32)
    for train, held in folds_of(int(texts.max()) + 1, seed):
        fold_labels = np.where(np.isin(texts, train), labels, -1)
        head = fitted_on(block, fold_labels, seed, Strength(c), _TRIAL)
        rows = np.flatnonzero(np.isin(texts, held))
        policies[rows] = head.probabilities(block.take(rows.tolist()))
    return policies


def column_strength(
    block: Block, texts: Rows, labels: Rows, seed: int, policies: NDArray[np.float32]
) -> Strength:
    """C of the final head of a column: the one whose held-out heads give most of the labels.

    For the arguments see `held_out`, whose result with the first C is `policies`. The log-loss is
    not compared: it is least for a C at which heads give fewer of the labels.
    """
    rows, shares = np.flatnonzero(labels >= 0), []
    for c in AMONG_WRONG:
        if c != AMONG_WRONG[0]:
            policies = held_out(block, texts, labels, seed, c)
        shares.append(float(np.mean(policies[rows].argmax(axis=1) != labels[rows])))
    return Strength(AMONG_WRONG[int(np.argmin(shares))], tuple(shares))


def doubt_of(policies: NDArray[np.float32], texts: Rows, column: Rows, labels: Rows) -> Doubt:
    """The doubt about the labels of a `column`, (n,), −1 for none.

    `policies` are held out; `labels`, from which they were learned, are those of the column with
    people's in their place. `texts` are the numbers of the rows' texts: rows of one text with
    different labels are doubtful.
    """
    labeled, classes = column >= 0, policies.shape[1]
    label = np.where(labeled, column, policies.argmax(axis=1))
    confidence = policies[np.arange(len(column)), label].astype(np.float64)
    threshold = np.ones(classes, dtype=np.float32)  # of confident learning: the mean confidence
    for index in np.unique(column[labeled]):
        threshold[index] = policies[column == index, index].mean()
    likely_policies = np.where(policies >= threshold, policies, 0.0)
    counts = np.zeros((int(texts.max()) + 1, classes), dtype=np.int32)  # of a text's labels
    np.add.at(counts, (texts[labels >= 0], labels[labels >= 0]), 1)
    total = counts.sum(axis=1)[texts]
    share = np.where(total > 0, counts[texts, label] / np.maximum(1, total), 1.0)
    other_class = likely_policies.any(axis=1) & (likely_policies.argmax(axis=1) != column)
    flagged = labeled & (other_class | (share < 1.0))
    return Doubt(np.minimum(confidence, share), label, flagged, confidence)
