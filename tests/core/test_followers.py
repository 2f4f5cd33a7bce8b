"""Who chooses the candidates, and what an outside gold does to the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core import (
    FOLLOWERS,
    Given,
    Hard,
    PairFeatures,
    SharedFeatures,
    gold_outside,
    loss_set,
    make_follower,
    make_scorer,
)
from stacksl.errors import SettingsError
from stacksl.types import Label


class Scored:
    """A scorer whose scores are the single column of φ."""

    def scores(self, inputs: PairFeatures) -> np.ndarray:
        return inputs.phi[:, 0]


def column(*scores: float) -> PairFeatures:
    return PairFeatures(np.array(scores)[:, None])


def test_given_presents_every_candidate() -> None:
    block = [column(1, 2, 3), column(1, 2), SharedFeatures(np.ones(2), 4)]
    assert Given().respond(block, Scored()) == [(0, 1, 2), (0, 1), (0, 1, 2, 3)]


def test_hard_presents_the_top_k_plus_1_in_ascending_order() -> None:
    block = [column(0.1, 0.9, 0.5, 0.7), column(3, 1)]
    assert Hard(2).respond(block, Scored()) == [(1, 2, 3), (0, 1)]


def test_hard_breaks_ties_by_the_lowest_index() -> None:
    assert Hard(1).respond([column(0, 0, 0, 0), column(0, 1, 1, 1)], Scored()) == [(0, 1), (1, 2)]


def test_hard_follows_the_policy_of_a_real_scorer() -> None:
    scorer = make_scorer("ridge", dim=2, classes=5)
    item = SharedFeatures(np.array([1.0, 0.0]), 5)
    assert Hard(1).respond([item], scorer) == [(0, 1)]
    scorer.step(item, (0, 1, 3), 0, Label(3))
    assert Hard(1).respond([item], scorer) == [(0, 3)]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9), st.integers(1, 5), st.data())
def test_the_loss_of_hard_has_k_negatives_and_the_best_of_them(scores, k, data) -> None:
    gold = data.draw(st.integers(0, len(scores) - 1))
    item = column(*scores)
    [presented] = Hard(k).respond([item], Scored())
    chosen = loss_set(presented, gold, np.array(scores, dtype=float))
    assert list(chosen) == sorted(set(chosen))
    assert gold in chosen
    negatives = [x for x in chosen if x != gold]
    assert len(negatives) == min(k, len(scores) - 1)
    others = sorted((-scores[x], x) for x in range(len(scores)) if x != gold)
    assert sorted((-scores[x], x) for x in negatives) == others[: len(negatives)]


@given(st.sets(st.integers(0, 8), min_size=1), st.integers(0, 8))
def test_without_scores_an_outside_gold_joins(presented, gold) -> None:
    shown = tuple(sorted(presented))
    joined = loss_set(shown, gold)
    assert joined == tuple(sorted(presented | {gold}))
    assert gold_outside(shown, gold) == (len(joined) > len(shown))


def test_make_follower() -> None:
    assert make_follower("given") == Given()
    assert make_follower("hard") == Hard(4)
    assert make_follower("hard", 2) == Hard(2)
    assert all(FOLLOWERS[name].name == name for name in FOLLOWERS)
    with pytest.raises(SettingsError, match="did you mean 'hard'"):
        make_follower("hrad")
    with pytest.raises(SettingsError, match="takes no k"):
        make_follower("given", 2)
    with pytest.raises(SettingsError, match="k = 0"):
        make_follower("hard", 0)
