"""The final model of a run: refits of the head on all labels bought so far (D15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game.inputs import Array, Block, SharedBlock
from stacksl.game.scorers import Head, Scorer, restore_head
from stacksl.game.scorers.heads import ClassHead
from stacksl.game.scorers.refits import Fit
from stacksl.runs.final import KINDS, Kind, Made, Source, beside_names, make_final
from stacksl.runs.rounds import Table

__all__ = ["Refits"]

Bought = Sequence[tuple[int, int, int]]

PREFIX = "head."
COUNT = "refits"
MADE = "refits.made"  # the kind's number, then what each was worth, NaN where it was not tried
ON_THE_WAY = 1e-4  # tolerance of refits that only rank


@dataclass(slots=True, eq=False)
class Refits:
    """The head as it is now, after `count` refits, the last of them on `labels` labels.

    `final` says that the last was on the whole budget, `made_by` what it was made of, and `tried`
    the cross-validated accuracy of each kind of final model it was chosen from (`runs.final`).
    `names` are the rows of the class names, (K, d), None where they take no part, those of classes
    still to be added behind the others; `seed` draws the folds.
    """

    table: Table
    names: NDArray[Any] | None = None
    seed: int = 0
    head: Head | None = None
    count: int = 0
    labels: int = 0
    final: bool = False
    made_by: Kind = "plain"
    tried: Mapping[Kind, float] = field(default_factory=dict)
    _source: Source | None = None

    @property
    def due(self) -> bool:
        """Whether the head lags behind: there are labels, or names, that it has not seen."""
        return self.labels < len(self.table.bought) or (self.names is not None and self.count == 0)

    def outdate(self) -> None:
        """Let the head be fitted again, whatever it has seen: there is a class it does not know."""
        self.labels, self.final = -1, False

    def again(self, *, tune: bool = False) -> None:
        """Refit the head on the labels bought so far and leave a `refit` row in the ledger."""
        self.apply(tune=tune)
        detail: dict[str, object] = {"tune": tune}
        if self.names is not None:
            detail["made_by"] = self.made_by
        if self.tried:
            detail["tried"] = dict(self.tried)
        self.table.ledger.note_refit(len(self.table.bought), detail)

    def apply(self, *, tune: bool) -> None:
        """Refit the head without a word in the ledger, as its replay does."""
        scorer, bought = self.table.learner.scorer, self.table.bought
        if self.names is None:
            made = Made(_fit(scorer, bought, self.table.block, tune), "plain")
        elif tune and bought:
            made = make_final(scorer, self._whole(), *_split(bought))
        else:
            made = Made(self._on_the_way(scorer, bought, self._named(self.names)), "names")
        self.head, self.made_by, self.tried = made.head, made.made_by, made.tried
        self.count += 1
        self.labels = len(bought)
        self.final = tune

    def as_if(self, labels: int, untouched: Scorer) -> Head | None:
        """The final model there would have been after the first `labels` labels.

        `untouched` is a scorer that has learnt nothing: the online one knows classes that were
        bought later. It is made as the last one was.
        """
        bought = self.table.bought[:labels]
        if self.names is None or not bought:
            return _fit(untouched, bought, self.table.block, tune=True)
        return make_final(untouched, self._whole(), *_split(bought), self.made_by).head

    def without(
        self, places: NDArray[np.int64], others: NDArray[np.int64], untouched: Scorer
    ) -> Head | None:
        """The final model that was never told the labels at these `places` of those bought.

        It is made as the last one was, of a scorer that has learnt nothing, and fitted neither on
        their items nor on those of the rows `others`.
        """
        bought, held = self.table.bought, set(places.tolist())
        kept = [each for place, each in enumerate(bought) if place not in held]
        if self.names is None or not kept:
            return _fit(untouched, kept, self.table.block, tune=True)
        fresh, source = self._source is None, self._whole()
        if fresh and self.made_by == KINDS[-1]:
            source.rest(*_split(bought))  # the graph is to hold the items of every fold
        rows, _ = _split([bought[place] for place in places.tolist()])
        left_out = np.concatenate([rows, others])
        return make_final(untouched, source, *_split(kept), self.made_by, left_out).head

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, what the last one was made of, and the head's arrays, for a checkpoint."""
        head = {} if self.head is None else self.head.state()
        tried = [self.tried.get(kind, np.nan) for kind in KINDS]
        return {
            COUNT: np.array([self.count, self.labels, self.final]),
            MADE: np.array([float(KINDS.index(self.made_by)), *tried]),
            **{PREFIX + k: v for k, v in head.items()},
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """What `state` described."""
        self.count, self.labels = int(arrays[COUNT][0]), int(arrays[COUNT][1])
        self.final = bool(arrays[COUNT][2])
        if MADE in arrays:  # a checkpoint from before names has none
            number, *tried = (float(value) for value in arrays[MADE])
            self.made_by = KINDS[int(number)]
            pairs = zip(KINDS, tried, strict=True)
            self.tried = {kind: value for kind, value in pairs if not np.isnan(value)}
        mine = {k.removeprefix(PREFIX): v for k, v in arrays.items() if k.startswith(PREFIX)}
        self.head = restore_head(mine) if mine else None

    def _on_the_way(self, scorer: Scorer, bought: Bought, names: NDArray[Any]) -> Head | None:
        """The head that ranks a pool: labels and names, from where the last one ended."""
        rows, gold = _split(bought)
        start: tuple[Array, Array] | None = None
        if isinstance(self.head, ClassHead) and self.head.coefficients.shape == names.shape:
            start = self.head.coefficients, self.head.intercepts
        fit = Fit(soft=beside_names(names), start=start, tolerance=ON_THE_WAY)
        return scorer.refit(self.table.block.take(rows.tolist()), gold, fit=fit)

    def _named(self, names: NDArray[Any]) -> NDArray[Any]:
        """The rows of the names of the classes that there are by now."""
        assert isinstance(self.table.block, SharedBlock)
        return names[: self.table.block.classes]

    def _unnamed(self) -> frozenset[int]:
        """Items whose answer was no candidate: nothing is spread to them or fitted on them."""
        said = [row for row in self.table.ledger.export() if row["state"] == "answered"]
        return frozenset(self.table.row[str(r["item"])] for r in said if r["said"] != "label")

    def _whole(self) -> Source:
        """What final models are made of; one graph serves them all while its items are the same."""
        table = self.table
        apart = (frozenset(table.aside) | self._unnamed()) - {row for row, _, _ in table.bought}
        old = self._source
        if old is None or old.block is not table.block or old.apart != apart:
            assert isinstance(table.block, SharedBlock)
            assert self.names is not None
            names = self._named(self.names)
            old = self._source = Source(table.block, names, apart, self.seed)
        return old


def _fit(scorer: Scorer, bought: Bought, block: Block, tune: bool) -> Head | None:
    if not bought:
        return None
    rows, gold = _split(bought)
    return scorer.refit(block.take(rows.tolist()), gold, tune=tune)


def _split(bought: Bought) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that were bought, and their labels."""
    table = np.array([(row, label) for row, label, _ in bought], dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
