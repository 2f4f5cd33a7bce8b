"""An accuracy from an audit and the model's own probabilities: prediction-powered inference.

Before anything is bought, m rows are set aside which nobody is asked about. Let q be the final
model's probability of its own answer, and q̄ its mean over those rows. The accuracy is then
λ·q̄ + mean(right − λ·q) over the n audited rows: as far as q tells which answers are right, chance
in drawing the audit is taken out. λ is cov(right, q)/(var(q)·(1 + n/m)), in [0, 2], so that useless
probabilities change nothing. The interval is Wilson's, of a number of rows that has this variance.

Source: Angelopoulos, Duchi and Zrnic, PPI++: efficient prediction-powered inference, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stacksl.core.blocks import Array

MOST, FEWEST, SHARE = 500, 200, 10


def reference_size(items: int, labels: int) -> int:
    """The rows set aside: a tenth of the items, 500 at most; 0 where that is below 200.

    It is also 0 where the `labels` of the budget need those items.

    >>> [reference_size(*each) for each in ((1_999, 99), (2_000, 99), (9_000, 99), (2_000, 1_900))]
    [0, 200, 500, 0]
    """
    size = min(MOST, items // SHARE)
    return size if size >= FEWEST and labels <= items - size else 0


class Powers(NamedTuple):
    """The model's probabilities of its own answers.

    Attributes:
        sure: of the audited rows, (n,).
        reference: of the rows set aside, (m,).
    """

    sure: Array
    reference: Array


def largest(policies: Sequence[Array]) -> Array | None:
    """The probability of the model's own answer of each row; None where there are no rows."""
    return np.array([float(policy.max()) for policy in policies]) if len(policies) else None


def moments(right: Array, powers: Powers | None) -> tuple[float, float]:
    """The estimated accuracy of a model that has `right` (n,) of the audited rows; its variance."""
    n = len(right)
    share = float(right.mean()) if n else 0.0
    if powers is None or n < 2:
        return share, share * (1 - share) / max(1, n)
    sure, reference = powers
    spread, alike = float(sure.var(ddof=1)), float(np.cov(right, sure)[0, 1])
    if spread < 1e-12 or alike <= 0:  # nothing varies but the last digits
        return share, share * (1 - share) / n
    weight = min(2.0, alike / (spread * (1 + n / len(reference))))
    value = weight * float(reference.mean()) + float((right - weight * sure).mean())
    variance = float((right - weight * sure).var(ddof=1)) / n + weight**2 * spread / len(reference)
    return min(1.0, max(0.0, value)), variance


def rows_of(value: float, variance: float, n: int) -> float:
    """The number of rows whose share has this variance: n·clip(e(1 − e)/(n·variance), 5/n, 2.5)."""
    if variance <= 0:
        return n
    return min(2.5 * n, max(min(5, n), value * (1 - value) / variance))
