"""The query strategy `coverage` in a stream: items whose label tells most of uncertain items.

The gate `margin` keeps its pace: as threshold the quantile of the last 300 statistics was no better
on Banking77's training rows. Its statistic is log(u(x) · gain of x), with the doubt u of the
head that is refitted on labels and class names on the way (`core.heads.coverage`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE, Margin
from stacksl.core.heads.coverage import SEEN, SeenItems, doubts
from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.core.learner import Learner
from stacksl.core.scorers import Head
from stacksl.runs.loop.game import Examples
from stacksl.runs.settings.fields import Settings

EVERY, SHARE = 25, 0.05  # new labels that make a refit due, and as a share of those in the last
FIRST = 25  # rounds before the gate starts, at most
PACE = 0.2  # of the gate, unless it is set: the logarithm falls during a run
SHORT = 20  # over the rounds: the pace of a run of fewer than 100


class StreamCoverage:
    """The statistics of a stream, a function of its rounds and labels and of the head.

    The `names` are rows of the class names, (K, d).
    """

    def __init__(self, examples: Examples, names: NDArray[np.floating]) -> None:
        self._examples, self._seen_items = examples, SeenItems(names)
        self._head: Head | None = None

    @classmethod
    def begin(
        cls,
        settings: Settings,
        learner: Learner,
        examples: Examples,
        names: NDArray[np.floating] | None,
    ) -> StreamCoverage | None:
        """The statistics of a new learner, whose gate is set to follow them; None elsewhere."""
        if settings.mode != "stream" or settings.gate.name != COVERAGE:
            return None
        assert names is not None
        assert isinstance(examples.block, SharedBlock)
        pace: float | None = getattr(settings.gate, "pace", None)
        learner.gate = Margin(pace or max(PACE, SHORT / learner.horizon))
        return cls(examples, names[: examples.block.classes])  # not those of classes added later

    def statistic(self, learner: Learner, head: Head | None, row: int, asked: int) -> float:
        """The statistic of a row that the next round is about; −∞ before the gate's start.

        The gate starts after a tenth of the rounds, at most 25, with the statistics of their items:
        before that there is nothing to compare with, nor to cover. Items that are added later do
        not take a start back. `asked` counts the labels asked.
        """
        assert isinstance(learner.gate, Margin)
        starts = learner.gate_state == learner.gate.start()
        if starts and learner.round < min(FIRST, max(2, learner.horizon // 10)):
            return -math.inf
        self._follow(head)
        if starts:
            share = (learner.budget - asked) / max(1, learner.horizon - learner.round)
            learner.gate_state = learner.gate.primed(_logs(self._seen_items.statistics()), share)
        h = self._features([row])
        doubt = _doubts(head, h)
        return float(_logs(doubt * self._seen_items.gain(h[0], doubt[0]))[0])

    def _follow(self, head: Head | None) -> None:
        """Add the rounds and purchases since the last call, and the doubt of a new head."""
        items, examples = self._seen_items, self._examples
        for h in self._features(examples.taken[items.labels :]):
            items.buy(h)
        items.skip(max(0, len(examples.seen) - items.count - SEEN))
        rounds = examples.seen[items.count :]
        h = self._features([row for row, _ in rounds])
        for features, doubt, (_, labels) in zip(h, _doubts(head, h), rounds, strict=True):
            items.add(features, doubt, labels)
        if head is not self._head:
            self._head = head
            items.renew(_doubts(head, self._features([row for row, _ in examples.seen[-SEEN:]])))

    def _features(self, rows: list[int]) -> NDArray[np.floating]:
        block = self._examples.block
        assert isinstance(block, SharedBlock)
        return np.asarray(block.h[rows])


def _logs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _doubts(head: Head | None, h: NDArray[np.floating]) -> NDArray[np.float64]:
    """The doubt of each row; 1 without a head."""
    return doubts(head, h) if isinstance(head, ClassHead | MixedHead) else np.ones(len(h))
