"""Streams whose feedback is known, for the tests of docs/theory.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stacksl.core import (
    Gate,
    Learner,
    PairFeatures,
    ScorerSettings,
    make_scorer,
)
from stacksl.types import Decision, Feedback, Reward


def rounds_of(
    learner: Learner,
    phi: np.ndarray,
    feedback: Callable[[int, int], Feedback],
    watch: Callable[[], None] = lambda: None,
) -> list[Decision]:
    """The (T, K, d) stream `phi` played by `learner`; `feedback` is of a round and a choice."""
    shown, asked, played = tuple(range(phi.shape[1])), 0, []
    for t, rows in enumerate(phi):
        block = [PairFeatures(rows)]
        [decision] = learner.decide([str(t)], block, [shown], asked=asked)
        if decision.status == "wanted":
            decision = decision.reserved()
        learner.adopt([decision], block)
        if decision.asked:
            asked += 1
            learner.learn(decision, block[0], feedback(t, decision.choice))
        played.append(decision)
        watch()
    return played


def play(
    gate: Gate, phi: np.ndarray, truth: np.ndarray, settings: ScorerSettings, budget: int, seed: int
) -> list[Decision]:
    """Ridge under rewards on the (T, K, d) stream `phi`."""
    scorer = make_scorer("ridge", dim=phi.shape[2], classes=None, settings=settings)
    learner = Learner(scorer, gate, budget=budget, horizon=len(phi))
    noise = settings.noise * np.random.default_rng([seed, 1]).normal(size=len(phi))
    return rounds_of(learner, phi, lambda t, x: Reward(float(phi[t, x] @ truth + noise[t])))
