"""The settings of a run reach the gate of its learner."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core import PairBlock
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.resolve import resolve


@pytest.mark.parametrize(("gate", "names"), [("width", ["ridge"]), ("dgs", ["ridge", "delta"])])
def test_ridge_and_delta_are_the_scorers_own(gate: str, names: list[str]) -> None:
    asked = {"budget": "5", "gate": gate, "scorer": "newton", "ridge": 0.25, "delta": 0.1}
    rows = np.random.default_rng(0).normal(size=(40, 3)) / 4
    block = PairBlock(rows, np.arange(0, 41, 4))
    learner, _ = build_learner(resolve(asked).settings, block, list(range(10)), 5)
    for name in names:
        assert getattr(learner.gate, name) == asked[name]
