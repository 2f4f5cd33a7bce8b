"""Who chooses the candidates, and what a label is learned over."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.learner import loss_set, presented
from stacksl.core.scorers import make_scorer
from stacksl.types import Label


class Scored:
    """A scorer whose scores are the single column of φ."""

    def scores(self, inputs: PairFeatures) -> np.ndarray:
        return inputs.phi[:, 0]


def column(*scores: float) -> PairFeatures:
    return PairFeatures(np.array(scores)[:, None])


def test_every_candidate_is_presented_without_a_k() -> None:
    block = [column(1, 2, 3), column(1, 2), SharedFeatures(np.ones(2), 4)]
    assert presented(block, Scored(), None) == [(0, 1, 2), (0, 1), (0, 1, 2, 3)]


def test_with_a_k_the_best_k_plus_1_are_presented_in_ascending_order() -> None:
    block = [column(0.1, 0.9, 0.5, 0.7), column(3, 1)]
    assert presented(block, Scored(), 2) == [(1, 2, 3), (0, 1)]


def test_ties_are_broken_by_the_lowest_index() -> None:
    assert presented([column(0, 0, 0, 0), column(0, 1, 1, 1)], Scored(), 1) == [(0, 1), (1, 2)]


def test_the_best_are_those_of_a_real_scorers_policy() -> None:
    scorer = make_scorer("ridge", dim=2, classes=5)
    item = SharedFeatures(np.array([1.0, 0.0]), 5)
    assert presented([item], scorer, 1) == [(0, 1)]
    scorer.step(item, (0, 1, 3), 0, Label(3))
    assert presented([item], scorer, 1) == [(0, 3)]


@given(st.sets(st.integers(0, 8), min_size=1), st.integers(0, 8))
def test_the_loss_set_is_the_part_of_the_candidates_that_has_the_gold(among, gold) -> None:
    shown = tuple(sorted(among))
    chosen = loss_set(shown, gold, 9)
    assert gold in chosen
    outside = tuple(x for x in range(9) if x not in among)
    assert chosen == (shown if gold in shown else outside)
