"""The annotators' test: whether one agrees with a prediction far less than the others do.

A stratified permutation test on training rows alone. The prediction is that of the class names,
which no label can spoil, or without names that of the model before the label. Rows are cut into
windows of consecutive rounds, and each window into halves by the prediction's doubt. If an
annotator answers as the others do, every assignment of a stratum's rows to people is equally
likely, and the number of an annotator's rows that agree is hypergeometric in each stratum; their
sum's distribution is the convolution. The p-value is exact.

Looks are paid for by spending: the test with N rows has the level α · N₀ / (N (N + 1)) over the
number of annotators, which sums to at most α over all N ≥ N₀ and all annotators, however often and
whenever it is made. It also asks that the annotator agrees less than half as often as the others:
an annotator who is merely weaker is not accused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array

LEVEL = 0.01  # α, of one run
FIRST = 20  # N₀, rows before which there is no test
WINDOW = 32  # rows of about the same time
SHARE = 0.5  # of the others' agreement, below which an annotator is accused


@dataclass(frozen=True, slots=True)
class Finding:
    """An annotator against the others, on rows that both could have had.

    Of the `rows` compared the label was predicted on `agreed`; `expected` are those at the others'
    rate in each stratum. The p-value `p` of so few is compared with `level`.
    """

    annotator: int
    rows: int
    agreed: int
    expected: float
    p: float
    level: float

    @property
    def differs(self) -> bool:
        """Whether the annotator answers in another way than the others."""
        return self.p <= self.level and self.agreed < SHARE * self.expected


def compare_annotators(
    annotators: NDArray[np.int64],
    agreed: NDArray[np.bool_],
    doubt: Array,
    tested: Sequence[int],
    against: Sequence[int],
) -> list[Finding]:
    """Each annotator in `tested` against the others in `against`.

    Args:
        annotators: (N,) the annotator of each row with a label, in the order of rounds.
        agreed: (N,) whether that label was predicted.
        doubt: (N,) of the prediction; larger is harder.
        against: annotators whose rows are the others' level.
    """
    if len(annotators) < FIRST or not len(tested):
        return []
    level = LEVEL * FIRST / (len(annotators) * (len(annotators) + 1)) / len(tested)
    strata, is_reference = _strata(doubt), np.isin(annotators, against)
    findings = (
        _compared(id, agreed, strata, annotators == id, is_reference & (annotators != id), level)
        for id in tested
    )
    return [finding for finding in findings if finding is not None]


def doubt_of(scores: Array) -> tuple[NDArray[np.int64], Array]:
    """The candidate with the largest of (N, K) scores, and minus its lead over the second, (N,)."""
    top_two = np.partition(scores, -2, axis=1)[:, -2:]
    return np.argmax(scores, axis=1), top_two[:, 0] - top_two[:, 1]


def _strata(doubt: Array) -> list[NDArray[np.int64]]:
    """The rows of each stratum: the less and the more doubtful half of each window."""
    strata = []
    for start in range(0, len(doubt), WINDOW):
        order = start + np.argsort(doubt[start : start + WINDOW], kind="stable")
        strata += np.array_split(order, 2)
    return strata


def _compared(
    annotator: int,
    agreed: NDArray[np.bool_],
    strata: Sequence[NDArray[np.int64]],
    own_rows: NDArray[np.bool_],
    other_rows: NDArray[np.bool_],
    level: float,
) -> Finding | None:
    """One annotator against the rest; None where no stratum has rows of both."""
    from scipy.stats import hypergeom

    rows = hits = 0
    expected = 0.0
    distribution = np.ones(1)
    for stratum in strata:
        mine, theirs = agreed[stratum[own_rows[stratum]]], agreed[stratum[other_rows[stratum]]]
        if not len(mine) or not len(theirs):
            continue
        total = int(mine.sum() + theirs.sum())
        counts = np.arange(len(mine) + 1)
        pmf = hypergeom.pmf(counts, len(mine) + len(theirs), total, len(mine))
        distribution = np.convolve(distribution, pmf)
        rows, hits = rows + len(mine), hits + int(mine.sum())
        expected += len(mine) * float(theirs.mean())
    if not rows:
        return None
    p = min(1.0, float(distribution[: hits + 1].sum()))
    return Finding(annotator, rows, hits, expected, p, level)
