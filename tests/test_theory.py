"""The bounds of docs/theory.md by numbers: lemmas, theorems, constants."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom, norm

from stacksl.core import (
    First,
    ScorerSettings,
)

from .theory_cases import play


def first_on_the_lower_bound(horizon: int, budget: int, dim: int, noise: float) -> float:
    """E R(T) of `first` on C.1, the formula of the page."""
    size = noise * math.sqrt(dim / budget)
    total = 0.0
    for t in range(1, horizon + 1):
        known = min(t - 1, budget)
        counts = np.arange(known + 1)
        errors = norm.cdf(-np.sqrt(counts * dim / budget))
        total += float(binom.pmf(counts, known, 1.0 / dim) @ errors)
    return 2.0 * size * total


def test_the_regret_of_first_on_the_lower_bound_is_its_formula() -> None:
    """80 runs of the library's own ridge: within 4 standard errors, and above the lower bound."""
    horizon, budget, dim, noise = 80, 32, 8, 0.5
    expected = first_on_the_lower_bound(horizon, budget, dim, noise)
    assert expected >= 0.317 * noise * horizon * math.sqrt(dim / budget)
    regrets = []
    for seed in range(80):
        rng = np.random.default_rng([seed, 7])
        axes = np.eye(dim)[rng.integers(dim, size=horizon)]
        phi = np.stack([axes, -axes], axis=1)
        truth = rng.choice([-1.0, 1.0], size=dim) * noise * math.sqrt(dim / budget)
        played = play(First(), phi, truth, ScorerSettings(noise=noise), budget, seed)
        values = phi @ truth
        got = values[np.arange(horizon), [d.choice for d in played]]
        regrets.append(float((values.max(axis=1) - got).sum()))
    error = np.std(regrets, ddof=1) / math.sqrt(len(regrets))
    assert error < 0.12 * expected
    assert abs(np.mean(regrets) - expected) < 4.0 * error
