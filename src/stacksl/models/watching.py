"""Whether new rows are like a run's, which classes grew, and which rows are like none of its.

The tests of likeness are e-processes: a capital that begins at 1 and bets, row by row, that the new
rows differ. While they do not, the probability that it ever reaches 20 is at most 5%, however
often and whenever one looks (Ville's inequality; Shafer and Vovk, Game-theoretic foundations, 2019;
Waudby-Smith and Ramdas 2024). The mean of two such capitals is one. Pure functions on arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.nearest import nearest
from stacksl.core.rng import generator
from stacksl.features.encoders import Vectors

LEVEL = 0.05  # of false alarms, and of classes that are named wrongly
FEWEST = 15  # rows that are grouped
FALSE = 0.1  # the share of the rows called unlike that are so by chance, at most
STAKES = (-1.8, -1.2, -0.6, 0.6, 1.2, 1.8)  # on p − 1/2
FIRST, GROWTH = 32, 1.5  # new rows before the first bet; as many times more before the next fit
STRENGTHS = (0.01, 0.1)  # C of the classifiers, whose capitals are averaged
_AT_ONCE = 1024
_SHARES = np.linspace(0.005, 0.995, 199)  # of right rows, whichever of which is the true one


def confidence_bets(held_out: Array, new: Array, seed: int) -> Array:
    """The log capital, (n,), of bets that the model's confidence in new rows is another.

    Of each row the rank among the `held_out` rows, (m,), and the new ones up to it, ties broken at
    random, is uniform and independent of earlier ranks while all are exchangeable. The bets are
    1 + s·(p − 1/2) for each stake s (a conformal test martingale; Vovk 2021).
    """
    ranked, ties = sorted(held_out.tolist()), generator(seed, "watching/ties").random(len(new))
    ranks = np.zeros(len(new))
    for i, value in enumerate(new.tolist()):
        below, equal = bisect_left(ranked, value), bisect_right(ranked, value)
        ranks[i] = (below + ties[i] * (equal - below + 1)) / (len(ranked) + 1)
        insort(ranked, value)
    return together(np.cumsum(np.log1p(np.outer(STAKES, ranks - 0.5)), axis=1))


def vector_bets(old: Vectors, new: Vectors, seed: int) -> Array:
    """The log capital, (n,), of bets that a classifier can tell new rows from old ones.

    Half of the old rows, drawn at random, are learned from; each other one meets one new row, and
    while both are exchangeable either is as probably the new one. A logistic regression on all
    rows before says how probably, and that probability doubled is the bet (Shekhar and Ramdas 2023;
    Podkopaev and Ramdas 2023). It reads the vectors and the largest cosine with a row that is
    learned from. When no old row is left, there are no more bets.

    `old` (N, d) are unit vectors of the run's rows, none of which took part in making vectors, and
    `new` (n, d) of the new rows in their order.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    order = generator(seed, "watching/old").permutation(len(old))
    learned, met = old[order[: len(old) // 2]], old[order[len(old) // 2 :]]
    count = min(len(new), len(met))
    logs, start = np.zeros((len(STRENGTHS), len(new))), FIRST
    tables = (learned, met, new[:count])
    ranks = (2, 1, 1)  # the nearest row of one that is learned from is itself
    cosines = [nearest(table, learned, n)[1][:, -1] for table, n in zip(tables, ranks, strict=True)]
    middle, spread = float(cosines[0].mean()), float(cosines[0].std()) or 1.0
    learned, met, new = (
        np.column_stack([table, (cosine - middle) / spread])
        for table, cosine in zip(tables, cosines, strict=True)
    )
    with threadpool_limits(1):
        while start < count:
            end = min(count, int(start * GROWTH))
            rows = np.concatenate([learned, met[:start], new[:start]])
            is_new = np.arange(len(rows)) >= len(rows) - start
            for log, strength in zip(logs, STRENGTHS, strict=True):
                model = LogisticRegression(C=strength, class_weight="balanced").fit(rows, is_new)
                score = model.decision_function
                lead = score(new[start:end]) - score(met[start:end])
                log[start:end] = np.log(2.0) - np.logaddexp(0.0, -lead)
            start = end
    return together(np.cumsum(logs, axis=1))


def together(capitals: Any) -> Array:
    """The log of the mean of capitals, (n,), from their logs, (m, n)."""
    mean: Array = np.logaddexp.reduce(capitals, axis=0) - np.log(len(capitals))
    return mean


def told_after(capital: Array) -> int | None:
    """The rows after which a log capital first reached 20; None where it never did."""
    reached = np.flatnonzero(capital >= -np.log(LEVEL))
    return int(reached[0]) + 1 if len(reached) else None


def shifted_classes(
    old: NDArray[np.int64], new: NDArray[np.int64], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The classes whose share of the model's choices changed, the largest difference first.

    Fisher's exact test of each, at 5% for all together (Holm 1979), of choices for rows held out
    (`old`) and `new` rows. It is one look's.
    """
    from scipy.stats import fisher_exact

    counts = [np.bincount(choices, minlength=len(names)) for choices in (old, new)]
    m, n = len(old), len(new)
    p = [fisher_exact([[a, m - a], [b, n - b]])[1] for a, b in zip(*counts, strict=True)]
    shifts = []
    for rank, k in enumerate(np.argsort(p, kind="stable")):
        if p[k] > LEVEL / (len(names) - rank):
            break
        before, now = float(counts[0][k] / m), float(counts[1][k] / n)
        shifts.append({"name": names[k], "before": before, "now": now})
    return sorted(shifts, key=lambda shift: -abs(shift["now"] - shift["before"]))


def unlike(new: Vectors, old: Vectors) -> NDArray[np.int64]:
    """The new rows near which the run has far fewer rows than it should, in ascending order.

    In the smallest ball around a new row that holds k other new ones, each row is as probably new
    as rows are in all: a binomial test. Of the reported rows a tenth are expected to be so by
    chance (Benjamini and Hochberg 1995). k is at least the size of a group, and so large that a
    ball without a row of the run has a probability of 1 in 10,000.
    """
    from scipy.stats import binom

    share = (len(new) - 1) / (len(new) - 1 + len(old))
    around = max(FEWEST, int(np.ceil(np.log(1e-4) / np.log(share))))
    if around >= len(new):
        return np.zeros(0, dtype=np.int64)
    within = np.zeros(len(new), dtype=np.int64)
    for start in range(0, len(new), _AT_ONCE):
        chunk = slice(start, start + _AT_ONCE)
        cosines = new[chunk] @ new.T
        np.fill_diagonal(cosines[:, start:], -2.0)
        farthest = np.partition(cosines, -around, axis=1)[:, -around]
        within[chunk] = np.count_nonzero(new[chunk] @ old.T >= farthest[:, None], axis=1)
    p = binom.sf(around - 1, around + within, share)
    ranked = np.sort(p)
    passed = np.flatnonzero(ranked <= FALSE * np.arange(1, len(p) + 1) / len(p))
    return np.flatnonzero(p <= (ranked[passed[-1]] if len(passed) else -1.0))


def fall_p(old: tuple[int, int], new: tuple[int, int]) -> float:
    """The one-sided p-value that a share of right rows fell: Boschloo's exact test.

    While no share falls, it is at most 5% in at most 5% of cases. It finds more than Fisher's exact
    test, whose p-value it takes to order the cases, above all with small audits. `old` and `new`
    are how many rows were right, and of how many.

    Source: Boschloo (1970), "Raised conditional level of significance for the 2 x 2 table".

    >>> round(fall_p((90, 100), (80, 100)), 3), fall_p((10, 10), (10, 10))
    (0.028, 1.0)
    """
    from scipy.stats import hypergeom

    (right, n), (new_right, m) = old, new
    fisher = float(hypergeom.cdf(new_right, n + m, right + new_right, m))
    return min(1.0, float(_falls(n, m, _SHARES, _SHARES)(fisher).max()))


def fall_found(
    accuracy: float, old: int, new: int, fall: float = 0.1, unsettled: float = 0
) -> float:
    """The exact probability that `fall_p` of `old` and `new` rows is 5% at most after a fall.

    The share `unsettled` of both counts against a fall: as wrong before, and as right now.

    >>> [round(fall_found(0.9, first, 300), 2) for first in (50, 100, 200, 400)]
    [0.54, 0.77, 0.92, 0.98]
    """
    without, low, high = _falls(old, new, _SHARES, _SHARES), 0.0, 1.0
    while high - low > 1e-6:  # for the largest p-value of Fisher's test that is 5% of `fall_p`
        middle = (low + high) / 2
        low, high = (middle, high) if without(middle).max() <= LEVEL else (low, middle)
    new_share = max(0.0, accuracy + unsettled - fall)
    return float(_falls(old, new, np.array([accuracy]), np.array([new_share]))(low)[0])


def _falls(n: int, m: int, old: Array, new: Array) -> Callable[[float], Array]:
    """A function of p: the probability that Fisher's p-value of a fall is at most p, (g,).

    Of n rows before and of m rows now the shares `old` and `new`, (g,) each, are right.
    """
    from scipy.special import gammaln
    from scipy.stats import binom

    if m > n:  # wrong rows that become more are the same fall, and need fewer steps
        return _falls(m, n, 1 - new, 1 - old)
    old_logs, new_logs, all_logs = (
        gammaln(k + 1) - gammaln(np.arange(k + 1) + 1) - gammaln(k - np.arange(k + 1) + 1)
        for k in (n, m, n + m)
    )
    tails = binom.sf(np.arange(-1, n + 1)[:, None], n, old)  # that at least 0 to n + 1 are right
    exactly = binom.pmf(np.arange(m + 1)[:, None], m, new)

    def at_most(p: float) -> Array:
        fewest, reached = np.empty(m + 1, np.int64), np.zeros(n + 1)
        for later in range(m + 1):
            # of 0 to n right before, P(at most `later` right now), given how many are right in all
            reached = np.append(reached[1:], 0.0)
            reached += np.exp(old_logs + new_logs[later] - all_logs[later : later + n + 1])
            fewest[later] = n + 1 - np.count_nonzero(reached <= p * (1 + 1e-9))
        chances: Array = (tails[fewest] * exactly).sum(axis=0)
        return chances

    return at_most


def power(old: tuple[int, int, int], new: int) -> str:
    """How often `new` rows show a fall from so many right, clear and open rows, as a clause."""
    right, rows, open_rows = old
    percent = 100 * fall_found(right / rows, rows, new, unsettled=open_rows / rows)
    open_part = f", {open_rows:,} of them open," if open_rows else ""
    sizes = f"with {rows:,} audited {'row' if rows == 1 else 'rows'} then{open_part}"
    clause = f"{sizes} and {new:,} now, a fall of ten points is found in {percent:.0f}% of cases"
    if not open_rows:
        return clause
    settled = 100 * fall_found((right + open_rows / 2) / rows, rows, new)
    return f"{clause} (in {settled:.0f}% once none is open)"
