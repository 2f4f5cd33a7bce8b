"""The settings of a run reach the gate of its learner."""

from __future__ import annotations

import numpy as np

from stacksl.core import Contested, PairBlock
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.resolve import resolve


def test_the_width_scale_of_the_records_is_the_gates_own() -> None:
    asked = {"budget": "5", "gate": "contested", "scorer": "newton", "width_scale": 0.25}
    rows = np.random.default_rng(0).normal(size=(40, 3)) / 4
    block = PairBlock(rows, np.arange(0, 41, 4))
    learner, _ = build_learner(resolve(asked).settings, block, list(range(10)), 5)
    assert learner.gate == Contested(width_scale=0.25)
    assert learner.width_scale == 0.25
