"""Who chooses the candidates, and what a label is learned over."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.followers import FOLLOWERS, Given, Hard, loss_set
from stacksl.core.scorers import make_scorer
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


@given(st.sets(st.integers(0, 8), min_size=1), st.integers(0, 8))
def test_the_loss_set_is_the_part_of_the_candidates_that_has_the_gold(presented, gold) -> None:
    shown = tuple(sorted(presented))
    chosen = loss_set(shown, gold, 9)
    assert gold in chosen
    outside = tuple(x for x in range(9) if x not in presented)
    assert chosen == (shown if gold in shown else outside)


def test_followers_are_listed_by_their_names() -> None:
    assert all(FOLLOWERS[name].name == name for name in FOLLOWERS)
