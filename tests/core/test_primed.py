"""The margin's threshold where scores are known before any label, as a language model's are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.blocks import PairBlock
from stacksl.core.gates.registry import Margin
from stacksl.core.gates.rules import Clock
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.fields import Settings

ITEMS, OPTIONS = 400, 3


def block(rng: np.random.Generator, scores: np.ndarray | None) -> PairBlock:
    """Items whose features say nothing; `scores` are (ITEMS, OPTIONS), what a model says."""
    phi = np.zeros((ITEMS * OPTIONS, 2), dtype=np.float32)
    offsets = np.arange(ITEMS + 1, dtype=np.int64) * OPTIONS
    return PairBlock(phi, offsets, None if scores is None else scores.ravel())


def test_the_level_is_the_quantile_above_which_the_labels_left_lie() -> None:
    statistics = -np.arange(1.0, 101.0)
    level, mean, deviation, count = Margin().primed(statistics, 0.2)
    assert int((statistics > level).sum()) == 20
    assert mean == pytest.approx(-50.5)
    assert deviation == pytest.approx(np.abs(statistics + 50.5).mean())
    assert count == 100.0


def test_the_rounds_go_on_from_the_primed_moments() -> None:
    """Of −1 ± .25, with a mean deviation of .125; then −1, and −5.5, which is 4.5 from −1."""
    gate = Margin()
    state = gate.primed(np.array([-1.0, -1.25, -0.75, -1.0]), 0.5)
    state = gate.advance(-1.0, False, Clock(0, 5, 1, 20), state)
    assert state[1:] == pytest.approx((-1.0, 0.75 * 0.125, 5.0))
    state = gate.advance(-5.5, False, Clock(0, 5, 2, 20), state)
    assert state[1:] == pytest.approx((-1.75, 0.8 * 0.75 * 0.125 + 0.2 * 4.5, 6.0))


def test_without_a_finite_statistic_the_first_item_decides_as_ever() -> None:
    gate = Margin()
    assert gate.primed(np.full(3, -math.inf), 0.5) == gate.start()
    assert gate.primed(np.zeros(0), 0.5) == gate.start()


def test_a_run_spreads_its_labels_though_the_first_item_has_a_wide_margin() -> None:
    """Unprimed, a first margin of 30 makes the gate buy every item until the pace has caught up."""
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(ITEMS, OPTIONS))
    scores[0] = [30.0, 0.0, 0.0]
    known = block(rng, scores)
    order, budget = list(range(ITEMS)), 40
    learner = build_learner(Settings(scorer={"name": "newton"}), known, order, budget)
    asked: list[int] = []
    for row in order:
        inputs = [known[row]]
        decision = learner.decide([str(row)], inputs, [(0, 1, 2)], asked=len(asked))[0]
        decision = decision.reserved() if decision.status == "wanted" else decision
        learner.adopt([decision], inputs)
        asked += [row] if decision.asked else []
    assert len(asked) == budget
    assert sum(row < ITEMS // 2 for row in asked) == pytest.approx(budget / 2, abs=8)
    two = np.sort(scores, axis=1)
    margins = two[:, 2] - two[:, 1]
    assert np.median(margins[asked]) < 0.5 * np.median(margins)


def test_a_scorer_that_knows_nothing_yet_is_left_to_its_first_item() -> None:
    unknown = block(np.random.default_rng(5), None)
    learner = build_learner(Settings(scorer={"name": "newton"}), unknown, list(range(ITEMS)), 40)
    assert learner.gate_state == Margin().start()
