"""Numbers of an evaluation: accuracy with its interval, macro-F1, confusions, calibration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.report.quality import Agreement

Z = 1.959963984540054  # of a 95% interval


def z_of_look(look: int) -> float:
    """The z of the lower bound at look number `look` of many; that of a 95% interval without one.

    Look j has the one-sided level .05·6/(π²j²). These add up to .05, so in 95 of 100 runs every
    bound holds, however many looks there are.

    >>> [round(z_of_look(look), 2) for look in range(4)]
    [1.96, 1.88, 2.43, 2.71]
    """
    return NormalDist().inv_cdf(1 - 0.05 * 6 / (math.pi * look) ** 2) if look else Z


def wilson(correct: float, n: float, z: float = Z) -> tuple[float, float]:
    """The Wilson score interval of a share `correct`/`n`, 95% by default.

    The numbers need not be whole: `n` may be an effective number of items.

    Source: Wilson 1927. It stays inside [0, 1] and is right for shares near the ends.

    >>> tuple(round(x, 3) for x in wilson(8, 10))
    (0.49, 0.943)
    """
    if n == 0:
        return 0.0, 1.0
    share = correct / n
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """The mean F1 over the classes in `gold`; a gold of −1 is no class and counts as a mistake."""
    from sklearn.metrics import f1_score

    labels = sorted(set(gold) - {-1})
    if not labels:
        return 0.0
    return float(f1_score(gold, predicted, labels=labels, average="macro", zero_division=0.0))


def confusions(gold: Sequence[int], predicted: Sequence[int]) -> list[tuple[int, int, int]]:
    """(gold, predicted, count) of the mistakes, most frequent first."""
    pairs = zip(gold, predicted, strict=True)
    wrong = Counter((g, p) for g, p in pairs if g != p and g >= 0)
    ordered = sorted(wrong.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(g, p, count) for (g, p), count in ordered]


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Cohen's kappa of the (first, second) answers in `pairs`: agreement beyond chance.

    κ = (p − e) / (1 − e), with p the share of pairs that agree and e the share that would agree if
    both answered independently with their own frequencies. None where e is 1 or there is no pair.
    Source: Cohen 1960.

    >>> cohen_kappa([("a", "a"), ("b", "b"), ("a", "b"), ("b", "a")])
    0.0
    """
    n = len(pairs)
    first, second = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    by_chance = sum(first[answer] * second[answer] for answer in first)  # n² e
    if by_chance == n * n:
        return None
    share = sum(one == other for one, other in pairs) / n
    return (share - by_chance / n**2) / (1 - by_chance / n**2)


def agreement_of(pairs: Sequence[tuple[Hashable, Hashable]]) -> Agreement | None:
    """How far the (first, second) answers in `pairs` agree; None where there is no pair."""
    if not pairs:
        return None
    return Agreement(len(pairs), sum(one == other for one, other in pairs), cohen_kappa(pairs))


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """The expected calibration error over ten bins of equal width; 0 without an item.

    It is Σ n_b/n · |accuracy_b − confidence_b|. Source: Naeini et al. 2015.
    """
    bins = np.minimum((confidence * 10).astype(int), 9)
    excess = np.bincount(bins, weights=correct - confidence)
    return float(np.abs(excess).sum() / max(1, len(confidence)))


# An accuracy from an audit and the model's own probabilities: prediction-powered inference.
#
# Before anything is bought, m reference rows are drawn: nobody is asked about them. Let q be the
# final model's probability of its own answer, and q̄ its mean over these rows. The accuracy is then
# λ·q̄ + mean(right − λ·q) over the n audited rows: as far as q tells which answers are right, chance
# in drawing the audit is taken out. λ is cov(right, q)/(var(q)·(1 + n/m)), in [0, 2], so that
# useless probabilities change nothing. The interval is Wilson's, of a number of rows that has this
# variance.
#
# Source: Angelopoulos, Duchi and Zrnic, PPI++: efficient prediction-powered inference, 2023.


def reference_size(items: int, labels: int) -> int:
    """The number of reference rows: a tenth of the items, 500 at most; 0 where that is below 200.

    It is also 0 where the `labels` of the budget need those items.

    >>> [reference_size(*each) for each in ((1_999, 99), (2_000, 99), (9_000, 99), (2_000, 1_900))]
    [0, 200, 500, 0]
    """
    size = min(500, items // 10)
    return size if size >= 200 and labels <= items - size else 0


class Powers(NamedTuple):
    """The model's probabilities of its own answers.

    Attributes:
        sure: of the audited rows, (n,).
        reference: of the reference rows, (m,).
    """

    sure: Array
    reference: Array


def largest(policies: Sequence[Array]) -> Array | None:
    """The probability of the model's own answer of each row; None where there are no rows."""
    return np.array([float(policy.max()) for policy in policies]) if len(policies) else None


def moments(right: Array, powers: Powers) -> tuple[float, float]:
    """The estimated accuracy of a model that has `right` (n,) of the audited rows; its variance."""
    n = len(right)
    share = float(right.mean()) if n else 0.0
    if n < 2:
        return share, share * (1 - share) / max(1, n)
    sure, reference = powers
    spread, covariance = float(sure.var(ddof=1)), float(np.cov(right, sure)[0, 1])
    if spread < 1e-12 or covariance <= 0:  # nothing varies but the last digits
        return share, share * (1 - share) / n
    weight = min(2.0, covariance / (spread * (1 + n / len(reference))))
    value = weight * float(reference.mean()) + float((right - weight * sure).mean())
    variance = float((right - weight * sure).var(ddof=1)) / n + weight**2 * spread / len(reference)
    return min(1.0, max(0.0, value)), variance


def rows_of(value: float, variance: float, n: int) -> float:
    """The number of rows whose share has this variance: n·clip(e(1 − e)/(n·variance), 5/n, 2.5)."""
    if variance <= 0:
        return n
    return min(2.5 * n, max(min(5, n), value * (1 - value) / variance))
