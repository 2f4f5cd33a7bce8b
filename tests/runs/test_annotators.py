"""The annotators' test: an exact permutation test, paid for at every look."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from stacksl.models.annotators import FIRST, LEVEL, WINDOW, compare_annotators, doubt_of


def test_the_p_value_is_that_of_all_permutations_within_strata() -> None:
    rng = np.random.default_rng(5)
    doubt = rng.normal(size=FIRST)
    who, agreed = rng.integers(2, size=FIRST), rng.random(FIRST) < 0.5
    (found,) = compare_annotators(who, agreed, doubt, [0], [1])
    order = np.argsort(doubt)
    sums = [np.zeros(1, dtype=int)]
    for stratum in (order[: FIRST // 2], order[FIRST // 2 :]):
        own = int((who[stratum] == 0).sum())
        assert 0 < own < len(stratum)
        hits = [int(agreed[list(each)].sum()) for each in combinations(stratum, own)]
        sums.append(np.array(hits))
    every = (sums[1][:, None] + sums[2][None, :]).ravel()
    assert found.agreed == int(agreed[who == 0].sum())
    assert found.p == pytest.approx((every <= found.agreed).mean(), rel=1e-9)


@pytest.mark.slow
def test_the_levels_of_all_looks_sum_to_alpha() -> None:
    levels = []
    for rows in range(FIRST, 400):
        who = np.arange(rows) % 3
        found = compare_annotators(who, who == 0, np.zeros(rows), [0, 1, 2], [0, 1, 2])
        levels.append(sum(each.level for each in found))
    assert sum(levels) <= LEVEL
    assert sum(levels) > 0.9 * LEVEL
    few = np.arange(FIRST - 1) % 2
    assert compare_annotators(few, few == 0, np.zeros(len(few)), [0], [1]) == []


def test_a_list_that_never_agrees_is_found_and_a_weaker_annotator_is_not() -> None:
    who = np.arange(400) % 2
    half = np.arange(400) // 2 % 2 == 0
    never = np.where(who == 0, False, half)
    (found, other) = compare_annotators(who, never, np.zeros(400), [0, 1], [0, 1])
    assert (found.differs, other.differs) == (True, False)
    weaker = np.where(who == 0, np.arange(400) // 2 % 10 < 6, np.arange(400) // 2 % 10 < 9)
    (found, _) = compare_annotators(who, weaker, np.zeros(400), [0, 1], [0, 1])
    assert found.p < found.level, "the difference shows"
    assert not found.differs, "but it is not that of another list"


def test_rows_without_the_others_beside_them_count_for_nothing() -> None:
    who = np.repeat([0, 1], 2 * WINDOW)
    assert compare_annotators(who, who == 1, np.zeros(len(who)), [0, 1], [0, 1]) == []


def test_doubt_is_minus_the_lead_of_the_best_candidate() -> None:
    best, doubt = doubt_of(np.array([[1.0, 4.0, 2.0], [0.5, 0.0, 0.25]]))
    assert best.tolist() == [1, 0]
    assert doubt.tolist() == [-2.0, -0.25]
