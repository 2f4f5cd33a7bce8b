"""What a model's answers to a run's own items are worth, judged by items drawn at random.

The share of items that can be labeled at a wanted accuracy (`labeled_share`), how many people
would still have to answer for a share of right rows (`table_choices`), and how many items each
class has (`class_totals`). All are pure functions on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.models.metrics import wilson
from stacksl.models.promise import allowed_wrong, shows
from stacksl.report.quality import ClassTotal, LabeledShare

SURE = 0.95  # of every bound
CHOICES = (0.9, 0.93, 0.95, 0.97, 0.99)  # shares of right rows of a table
STEPS = 20  # thresholds of a sequence at most
FEW = 5  # measured items of a class below which its count is not corrected
CAUTION = 2.0  # standard errors by which classes are to differ more than by chance


def fewest(accuracy: float) -> int:
    """The fewest items, all right, whose exact lower bound reaches `accuracy`.

    >>> fewest(0.9), fewest(0.95)
    (29, 59)
    """
    return math.ceil(math.log(1 - SURE) / math.log(accuracy))


def lower_bound(correct: int, n: int) -> float:
    """The exact one-sided 95% lower bound of a share (Clopper and Pearson 1934).

    >>> round(lower_bound(59, 59), 3), lower_bound(0, 5)
    (0.95, 0.0)
    """
    from scipy.special import betaincinv  # scipy.stats takes long to import

    return float(betaincinv(correct, n - correct + 1, 1 - SURE)) if correct else 0.0


def labeled_share(confidence: Array, right: Array, own_items: Array, target: float) -> LabeledShare:
    """The share of `own_items` whose labels by the model reach the accuracy `target`.

    The thresholds are quantiles of `own_items`, fixed before a measured item is looked at, and are
    tested from strict to loose until one fails; the last that passes is reported. With probability
    95% the accuracy above it, on items from the source of the measured ones, is at least `target`:
    no correction for several tests is needed where each is only done after all before it passed
    (fixed-sequence testing, Maurer et al. 1995; for thresholds Angelopoulos et al. 2021). The
    strictest one keeps the geometric mean of all items and the fewest that could pass, so that a
    few mistakes above it are allowed.

    Args:
        confidence: (n,) the probability of the model's choice for the measured items.
        right: (n,) bool, whether it was right.
        own_items: (m,) the probability of its choice for the run's own items.
        target: in 0..1.
    """
    needed, n = fewest(target), len(confidence)
    last_passed = LabeledShare(target, needed)
    if n < needed or not len(own_items):
        return last_passed
    for share in np.linspace(math.sqrt(needed / n), 1.0, STEPS):
        threshold = float(np.quantile(own_items, 1 - share, method="lower"))
        above = confidence >= threshold
        count, correct = int(above.sum()), int(right[above].sum())
        if lower_bound(correct, count) < target:
            break
        share_above = float(np.mean(own_items >= threshold))
        last_passed = LabeledShare(target, needed, share_above, threshold, count, correct)
    return last_passed


def table_choices(
    confidence: Array, right: NDArray[np.bool_], own_items: Array, bought: Array, rows: int
) -> tuple[tuple[float, int], ...]:
    """How many of the `own_items` people would still answer for each share of right `rows`.

    With a probability of 95% all lines hold at once, for each has a fifth of the level. Thresholds
    are tested from strict to loose as in `labeled_share`; the wrong rows above one are bounded as
    those of a promise, since the measured items are a part of the table. They were drawn before
    others were bought by choice, so that the bound is of all rows above a threshold, the bought
    ones among them.

    Args:
        confidence, right, own_items: as in `labeled_share`; the measured items are of the table.
        bought: the probability of the model's choice for the items that were bought by choice.
        rows: of the whole table, people's among them.
    """
    choices, level = [], (1 - SURE) / len(CHOICES)
    for right_share in CHOICES:
        people, allowed = len(own_items), allowed_wrong(right_share, rows)
        for share in np.linspace(0.0, 1.0, STEPS + 1)[1:]:
            threshold = float(np.quantile(own_items, 1 - share, method="lower"))
            labeled, above = int((own_items >= threshold).sum()), confidence >= threshold
            n, wrong = int(above.sum()), int((above & ~right).sum())
            all_above = labeled + n + int((bought >= threshold).sum())
            if not shows(wrong, n, all_above, allowed, level):
                break
            people = len(own_items) - labeled
        choices.append((right_share, people))
    return tuple(choices)


def class_totals(
    human: NDArray[np.int64],
    predicted: NDArray[np.int64],
    gold: NDArray[np.int64],
    choice: NDArray[np.int64],
    names: Sequence[str],
) -> tuple[ClassTotal, ...]:
    """The items of each class: human labels as they are, the model's corrected by measured items.

    The number of predictions is corrected by the share of measured items of the class that the
    model missed, less the share that it gave the class wrongly (prediction-powered inference,
    Angelopoulos et al. 2023). One mistake among 100 measured items stands for a hundredth of all,
    which for one class of many is mostly chance. So a correction is shrunk by what differences of
    classes exceed chance in all, and a class with fewer than `FEW` measured items has none
    (`benchmarks/class_totals.py`). The interval of the difference of the two shares combines their
    Wilson intervals (Newcombe 1998), so that no mistake among few items is no proof of none.
    The measured items are taken to be like those without an answer; if labels were bought where
    the model was in doubt, they are slightly harder.

    Args:
        human: the label of each item that has one.
        predicted: the model's choice for each item without one.
        gold, choice: (n,) answer and choice of the measured items; −1 is none of the classes.
    """
    unlabeled, n, totals = len(predicted), len(gold), []
    labeled = np.bincount(human[human >= 0], minlength=len(names))
    guessed = np.bincount(predicted, minlength=len(names))
    if not n:
        counts = zip(names, labeled.tolist(), guessed.tolist(), strict=True)
        return tuple(ClassTotal(*row) for row in counts)
    wrong = gold != choice
    missed, wrongly = (_counts(classes[wrong], len(names)) for classes in (gold, choice))
    factor = shrinkage(missed, wrongly, guessed / max(1, unlabeled))
    factor[_counts(gold, len(names)) < FEW] = 0.0
    for k, name in enumerate(names):
        counted, called = int(labeled[k]), int(guessed[k])
        difference, low, high = _difference(int(missed[k]), int(wrongly[k]), n)
        shift = difference * float(factor[k])
        ends = (called + unlabeled * value for value in (shift, min(low, shift), max(high, shift)))
        total, lower, upper = (counted + min(max(end, 0.0), float(unlabeled)) for end in ends)
        totals.append(ClassTotal(name, counted, called, total, lower, upper))
    return tuple(totals)


def shrinkage(missed: NDArray[np.int64], wrongly: NDArray[np.int64], share: Array) -> Array:
    """How much of each class's correction to keep, 0 to 1, (K,).

    Were all mistakes chance, the model would miss about as many items of a class as it adds, both
    in proportion to the class. The variance of the differences beyond that of chance, less
    `CAUTION` of its standard errors, says how far classes differ in truth (a moment estimate, as
    in empirical Bayes; Efron and Morris 1975).

    Args:
        missed: measured items of each class that the model called something else.
        wrongly: measured items that it called so wrongly.
        share: of each class in the model's choices.
    """
    mistakes, difference = missed + wrongly, missed - wrongly
    expected = np.maximum(missed.sum() * share, 1e-9)  # mistakes of each kind
    error = math.sqrt(float((2 * mistakes**2 + mistakes).sum()))
    beyond = float((difference**2 - mistakes).sum()) - CAUTION * error
    spread = max(0.0, beyond) / float((expected**2).sum()) * expected**2
    factor: Array = spread / (spread + 2 * expected)
    return factor


def _counts(classes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """How often each class occurs; −1 is none."""
    return np.bincount(classes[classes >= 0], minlength=count)


def _difference(first: int, second: int, n: int) -> tuple[float, float, float]:
    """The difference of two shares of the same `n` items, with its interval."""
    p, q = first / n, second / n
    (p_low, p_high), (q_low, q_high) = wilson(first, n), wilson(second, n)
    below = math.hypot(p - p_low, q_high - q)
    above = math.hypot(p_high - p, q - q_low)
    return p - q, p - q - below, p - q + above
