"""The comparison as a study: a cell for each strategy and seed, and the rows of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias, final

import numpy as np

from stacksl.core.blocks import Array, SharedBlock
from stacksl.version import __version__
from stacksl_lab.pools.peers import PEERS
from stacksl_lab.pools.split import Split
from stacksl_lab.pools.strategies import ALL, PLAIN, PRODUCT, RANDOM, measure
from stacksl_lab.statistics.intervals import bootstrapped
from stacksl_lab.study.bench import Bench, Job, Wanted, program_hash
from stacksl_lab.study.rows import Row, pooled
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Study

SHARES = (0.9, 0.95, 0.99)
"""Of the accuracy with all labels: how many labels reach it."""

FURTHER = (2, 4)
"""Multiples of the largest budget that `random` is measured at too, as far as a pool has rows."""

_CELLS = tuple(f"stacksl_lab/pools/{name}.py" for name in ("split", "ours", "peers", "strategies"))
PROGRAM = ("stacksl/core", "stacksl/ledger", "stacksl/runs", *_CELLS)
"""The program text that a cell depends on; features are in the hash of the data."""

Cells: TypeAlias = Mapping[str, Sequence[Numbers]]
"""The numbers of each strategy, one mapping a seed."""


@final
@dataclass(frozen=True, slots=True)
class Comparison(Study):
    """Strategies on one labeled data set.

    Attributes:
        split: features and answers.
        strategies: their names; `random` is among them.
        budgets: labels, ascending.
    """

    split: Split
    strategies: tuple[str, ...]
    budgets: tuple[int, ...]

    def store_file(self) -> str:
        """One file for all comparisons: a key has the hash of the data."""
        return "compare.jsonl"

    def about(self, bench: Bench, seeds: Sequence[int]) -> Mapping[str, Any]:
        """What was compared, and why a strategy has no numbers."""
        named = self._stored(bench, seeds)
        reasons = {n: cell for n, cells in named.items() for cell in cells if isinstance(cell, str)}
        return {**self.split.about, "budgets": list(self.budgets), "failed": reasons}

    def rows(self, bench: Bench, seeds: Sequence[int]) -> list[Row]:
        """See `Study.rows`."""
        jobs = [
            Job((self.key(name, seed),), measure, (self.split, name, seed, counts), label)
            for seed in seeds
            for name, counts in self._asked().items()
            for label in [f"{name}, seed {seed}"]
            if bench.store.get(self.key(name, seed)) is None
        ]
        if jobs:
            raise Wanted(jobs)
        named = self._stored(bench, seeds)
        cells: dict[str, list[Numbers]] = {
            name: [cell for cell in numbers if not isinstance(cell, str)]
            for name, numbers in named.items()
            if not any(isinstance(cell, str) for cell in numbers)
        }
        models = (PLAIN, PRODUCT) if isinstance(self.split.block, SharedBlock) else (PRODUCT,)
        return [row for model in models for row in self._rows(cells, model)]

    def key(self, name: str, seed: int) -> str:
        """A hash of what fixes a cell: data, strategy, budgets, seed, program and package."""
        version = PEERS[name].version if name in PEERS else __version__
        counts, code = self._asked()[name], program_hash(parts=PROGRAM)
        text = json.dumps([self.split.digest, name, version, counts, seed, code])
        return blake2b(text.encode(), digest_size=12).hexdigest()

    def _asked(self) -> dict[str, tuple[int, ...]]:
        """The budgets of every cell by its strategy."""
        size = self.split.size
        further = [n * self.budgets[-1] for n in FURTHER]
        longer = (*self.budgets, *(min(n, size) for n in further if n < 2 * size))
        budgets = dict.fromkeys(self.strategies, self.budgets)
        return {**budgets, RANDOM: tuple(dict.fromkeys(longer)), ALL: (size,)}

    def _stored(self, bench: Bench, seeds: Sequence[int]) -> dict[str, list[Numbers | str]]:
        return {
            name: [numbers for seed in seeds if (numbers := bench.store.get(self.key(name, seed)))]
            for name in self._asked()
        }

    def _rows(self, cells: Cells, model: str) -> Iterator[Row]:
        """The rows of one final model."""
        asked = self._asked()
        curves = {n: _curve(cells[n], model, asked[n]) for n in cells}
        full, base = curves[ALL][0], curves[RANDOM]

        def row(name: str, metric: str, value: float | None, se: float | None, **extra: Any) -> Row:
            settings = {"model": model, **extra}
            n = len(full)
            return Row(self.name, name, metric, value, se=se, seeds=n, settings=settings)

        for name in (*self.strategies, ALL):
            if name not in cells:
                continue
            for place, labels in enumerate(asked[name]):
                mean, error = pooled(curves[name][place].tolist())
                yield row(name, "accuracy", mean, error, labels=labels)
                if name not in (RANDOM, ALL):
                    gain = curves[name][place] - base[place]
                    yield row(name, "gain", *pooled(gain.tolist()), labels=labels)
            if name == ALL:
                continue
            for share in SHARES:
                grid, samples = asked[name], np.vstack([full, curves[name]])
                yield row(name, "labels_to", **_reached(samples, grid, share), share=share)
            yield row(name, "seconds", *pooled([float(c["seconds"] or 0.0) for c in cells[name]]))
            if name != RANDOM:
                for place, labels in enumerate(self.budgets):
                    samples = np.vstack([curves[name][place], base])
                    saving = _reached(samples, asked[RANDOM], 1.0, labels)
                    yield row(name, "saved", **saving, labels=labels)
        rivals = [n for n in self.strategies if n != RANDOM and n in cells]
        for place, labels in enumerate(self.budgets):
            gains = {n: (curves[n][place] - base[place]).tolist() for n in rivals}
            best = recommended(gains)
            mean, error = pooled(gains[best]) if best in gains else (0.0, None)
            yield row(best, "recommended", mean, error, labels=labels, among=len(rivals))


def recommended(gains: Mapping[str, Sequence[float]]) -> str:
    """The strategy with the largest mean gain over `random` whose interval is above zero.

    `gains` are paired differences of accuracy, one a seed. Intervals are t-intervals that hold
    together for all strategies with 95% (Bonferroni), since the best of several is picked.
    `random` where none is above zero, and where one seed, or equal differences, give no interval.

    >>> recommended({"a": [0.02, 0.03, 0.02], "b": [0.05, -0.04, 0.06]})
    'a'
    >>> recommended({"b": [0.05, -0.04, 0.06]})
    'random'
    """
    from scipy.stats import t

    sure = {}
    for name, values in gains.items():
        mean, error = pooled(values)
        if not error:
            continue
        reach = float(t.ppf(1.0 - 0.025 / len(gains), len(values) - 1)) * error
        if mean - reach > 0.0:
            sure[name] = mean
    return max(sure, key=lambda name: sure[name], default=RANDOM)


def _curve(cells: Sequence[Numbers], model: str, budgets: Sequence[int]) -> Array:
    """Accuracies, (budgets, seeds)."""
    return np.array([[float(c[f"{model}@{b}"] or 0.0) for c in cells] for b in budgets])


def _reached(
    samples: Array, grid: Sequence[int], share: float, labels: int | None = None
) -> dict[str, Any]:
    """The labels at which a curve reaches an accuracy, as the value and error of a row.

    The mean curve is made monotone and interpolated between the budgets of `grid`. With `labels`
    the value is the share of labels saved, 1 − labels / those of the curve. Where the accuracy is
    outside the curve the value is None, and `above` or `below` the value at its end.

    Args:
        samples: (1 + m, seeds): the accuracy to reach, and the curve at the m budgets of `grid`.
        grid: the budgets of the curve.
        share: of the accuracy that is to be reached.
        labels: see above.
    """
    count = np.array(grid, dtype=np.float64)

    def where(means: Array) -> Array:
        flat = means.reshape(-1, means.shape[-1])
        reached = [np.interp(share * row[0], _rising(row[1:]), count) for row in flat]
        places = np.array(reached).reshape(means.shape[:-1])
        return places if labels is None else 1.0 - labels / places

    target, curve = share * samples[0].mean(), _rising(samples[1:].mean(axis=1))
    ends = count if labels is None else 1.0 - labels / count
    if target < curve[0]:
        return {"value": None, "se": None, "below": float(ends[0])}
    if target > curve[-1]:
        return {"value": None, "se": None, "above": float(ends[-1])}
    value, error = bootstrapped(where, samples)
    return {"value": value, "se": error}


def _rising(curve: Array) -> Array:
    """The curve's running maximum, strictly ascending."""
    rising: Array = np.maximum.accumulate(curve) + 1e-12 * np.arange(len(curve))
    return rising
