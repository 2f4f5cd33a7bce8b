"""The threshold for abstaining: against a search by hand, its area against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.blocks import Array
from stacksl.core.heads.abstaining import FEWEST, auroc, best_threshold, stands_for

SHARES = st.lists(st.integers(0, 12).map(lambda n: n / 12), min_size=FEWEST, max_size=40)


def balanced(labelled: Array, none: Array, cut: float) -> float:
    return float(((labelled >= cut).mean() + (none < cut).mean()) / 2)


@given(SHARES, SHARES)
def test_the_area_is_that_of_scikit_learn(labelled: list[float], none: list[float]) -> None:
    from sklearn.metrics import roc_auc_score

    truth = [1] * len(labelled) + [0] * len(none)
    expected = roc_auc_score(truth, labelled + none)
    assert auroc(np.array(labelled), np.array(none)) == pytest.approx(expected, abs=1e-12)


@given(SHARES, SHARES)
def test_no_other_cut_keeps_and_leaves_out_more(labelled: list[float], none: list[float]) -> None:
    kept, left = np.array(labelled), np.array(none)
    found = best_threshold(kept, left)
    cuts = np.arange(-1, 27) / 24  # below, between, at and above all values there are
    if found is None:
        assert auroc(kept, left) < 0.85  # 10 of either must be this far apart to be told so
        return
    assert found.balanced_accuracy == pytest.approx(balanced(kept, left, found.value))
    assert found.balanced_accuracy >= max(balanced(kept, left, cut) for cut in cuts) - 1e-12
    assert (found.labels, found.none) == (len(labelled), len(none))


def test_of_equal_cuts_the_lowest_is_taken() -> None:
    labelled = np.array([0.3, 0.7] * 10)  # cuts at 0.25 and 0.6 lose a half of one kind each
    none = np.array([0.2, 0.5] * 10)
    found = best_threshold(labelled, none)
    assert found is not None
    assert found.value == pytest.approx(0.25)


@pytest.mark.parametrize(("labels", "none"), [(FEWEST - 1, 50), (50, FEWEST - 1), (0, 0)])
def test_a_few_items_make_no_threshold(labels: int, none: int) -> None:
    assert best_threshold(np.full(labels, 0.9), np.full(none, 0.1)) is None


def test_there_is_none_where_the_probability_says_nothing() -> None:
    rng = np.random.default_rng(0)
    draws = [best_threshold(rng.random(30), rng.random(30)) for _ in range(200)]
    found = sum(each is not None for each in draws)
    assert found / 200 < 0.06  # two standard errors on one side: 2.3 % of pure chance
    assert best_threshold(np.full(20, 0.5), np.full(20, 0.5)) is None


@given(SHARES, SHARES)
def test_a_weight_is_as_many_items(labelled: list[float], none: list[float]) -> None:
    kept, left = np.array(labelled), np.array(none)
    weights = np.arange(len(kept)) % 3 + 1.0
    again = np.repeat(kept, weights.astype(int))
    assert auroc(kept, left, weights) == pytest.approx(auroc(again, left))
    found, twin = best_threshold(kept, left, weights), best_threshold(again, left)
    if found is not None and twin is not None:
        assert found.balanced_accuracy == pytest.approx(twin.balanced_accuracy)


@given(SHARES, SHARES, SHARES)
def test_what_the_bought_stand_for_is_all_there_is(
    labelled: list[float], none: list[float], rest: list[float]
) -> None:
    weights = stands_for(np.array(labelled), np.array(none), np.array(rest), 2.5)
    total = len(labelled) + len(none) + 2.5 * len(rest)
    assert sum(each.sum() for each in weights) <= total + 1e-9
    assert min(each.min() for each in weights) >= 1.0
