"""Which candidate a scorer takes, and by how much: ties, optimism, margin and spread."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import PairFeatures
from stacksl.core.scorers import tie_argmax

from .scorer_cases import fresh


def test_ties_go_to_the_lowest_candidate_whatever_the_order() -> None:
    values = np.array([1.0, 3.0, 3.0 - 1e-10])
    assert tie_argmax(values, 3.0) == 1
    assert tie_argmax(values, 3.0, (5, 4, 2)) == 2
    assert tie_argmax(values, 1e-3, (5, 4, 2)) == 1
    view = fresh("ridge").bounds(PairFeatures(np.eye(5)), (4, 2, 3))
    assert view.choice == 1
