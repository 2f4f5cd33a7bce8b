"""The share of items that can be labeled, and the items of each class: rates over simulations."""

import numpy as np
import pytest
from scipy.stats import binom

from stacksl.models.own_items import class_totals, fewest, labeled_share, lower_bound, table_choices

TRIALS = 200
SIZES = [200, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 100, 600))]


def simulated(rng, n, sharp):
    """Confidences of measured and own items, and whether the measured are right."""
    own, confidence = rng.beta(sharp, 1.0, 2000), rng.beta(sharp, 1.0, n)
    return confidence, rng.random(n) < 0.5 + 0.5 * confidence**2, own


def test_the_fewest_items_are_those_whose_exact_bound_reaches_the_accuracy():
    for wanted in (0.5, 0.8, 0.9, 0.95, 0.99):
        n = fewest(wanted)
        assert lower_bound(n, n) >= wanted > lower_bound(n - 1, n - 1)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("wanted", [0.9, 0.95])
def test_the_accuracy_above_the_threshold_is_too_low_in_five_of_a_hundred_at_most(n, wanted):
    rng, wrong, told = np.random.default_rng(n), 0, 0
    fresh = np.sort(rng.beta(4.0, 1.0, 200_000))
    right = 0.5 + 0.5 * fresh**2
    accuracy = np.cumsum(right[::-1])[::-1] / np.arange(len(fresh), 0, -1)  # from each one upwards
    for _ in range(TRIALS):
        found = labeled_share(*simulated(rng, n, 4.0), wanted)
        if found.threshold is not None:
            told += 1
            wrong += accuracy[np.searchsorted(fresh, found.threshold)] < wanted
    assert wrong <= binom.ppf(0.999, TRIALS, 0.05)
    if (n, wanted) == (600, 0.9):  # a procedure that never answers is no procedure
        assert told > TRIALS / 2


def test_too_few_items_tell_nothing_and_say_how_many_would():
    found = labeled_share(np.ones(50), np.ones(50, dtype=bool), np.ones(9), 0.95)
    assert (found.share, found.needed) == (None, 59)
    assert labeled_share(np.ones(59), np.ones(59, dtype=bool), np.ones(9), 0.95).share == 1.0


def test_a_model_that_is_often_wrong_where_it_is_sure_labels_nothing():
    confidence = np.linspace(0, 1, 400)
    assert labeled_share(confidence, confidence < 0.5, confidence, 0.9).share is None


@pytest.mark.parametrize("n", SIZES)
def test_the_interval_of_a_class_holds_its_number_of_items(n):
    """3,000 items of four classes, one of them rare; a model that confuses two of them."""
    rng, inside = np.random.default_rng(n), np.zeros(4)
    confusion = np.array([[0.8, 0.2, 0, 0], [0.05, 0.9, 0.05, 0], [0, 0, 1, 0], [0.3, 0, 0, 0.7]])
    for _ in range(TRIALS):
        gold = rng.choice(4, 3000, p=[0.5, 0.3, 0.18, 0.02])
        said = (rng.random(3000)[:, None] > np.cumsum(confusion[gold], axis=1)).sum(axis=1)
        part = rng.permutation(3000)
        audit, bought, rest = part[:n], part[n : n + 100], part[n + 100 :]
        human = gold[np.concatenate([audit, bought])]
        rows = class_totals(human, said[rest], gold[audit], said[audit], "abcd")
        truth = np.bincount(gold, minlength=4)
        inside += [row.low <= truth[k] <= row.high for k, row in enumerate(rows)]
    assert inside.min() >= binom.ppf(0.001, TRIALS, 0.95)


def test_no_mistake_among_few_items_is_no_proof_of_none():
    gold = np.array([0, 1] * 10)
    row = class_totals(np.array([0]), np.array([0, 0, 1, 1] * 10), gold, gold, "ab")[0]
    assert (row.human, row.predicted, row.total) == (1, 20, 21)
    assert row.low < 21 < row.high


def test_nothing_measured_is_nothing_corrected():
    nothing = np.zeros(0, dtype=np.int64)
    row = class_totals(np.array([1]), np.array([1, 0]), nothing, nothing, "ab")[1]
    assert (row.human, row.predicted, row.total, row.low) == (1, 1, None, None)


@pytest.mark.parametrize("easy", [False, True])
def test_all_lines_of_the_table_of_choices_hold_at_once(easy: bool):
    """A table of 2,000 rows: 150 audited, some bought, the rest the model's unless people answer.

    The worst is that `easy` rows were bought: then the rows that are left are harder than those
    that were audited, however sure the model is of them.
    """
    rng, broken, told = np.random.default_rng(3), 0, 0
    for _ in range(TRIALS):
        sure = rng.beta(4.0, 1.0, 2000)
        right = rng.random(2000) < 0.5 + 0.5 * sure**2
        if easy:
            right |= np.arange(2000) < 1000
        audit, others = np.split(rng.permutation(2000), [150])
        kept = (others >= 1000) if easy else (sure[others] > 0.5)
        bought, rest = others[~kept], others[kept]
        found = table_choices(sure[audit], right[audit], sure[rest], sure[bought], 2000)
        by_model = [np.sort(sure[rest])[people:] for _, people in found]
        wrong = [(~right[rest][sure[rest] >= s[0]]).sum() if len(s) else 0 for s in by_model]
        broken += any(n > 2000 * (1 - each) for n, (each, _) in zip(wrong, found, strict=True))
        told += found[0][1] < len(rest)
        assert found == tuple(sorted(found, key=lambda each: each[1]))
    assert broken <= binom.ppf(0.999, TRIALS, 0.05)
    assert told > TRIALS / 2


def test_people_answer_what_no_audit_can_vouch_for():
    nothing = np.zeros(0)
    found = table_choices(nothing, nothing.astype(bool), np.linspace(0.5, 1, 100), nothing, 1000)
    assert [people for _, people in found] == [0, 34, 54, 74, 94]  # 100, 70, 50, ... may be wrong
    sure = np.ones(200)
    assert table_choices(sure, sure.astype(bool), np.ones(100), nothing, 300)[3] == (0.97, 0)
