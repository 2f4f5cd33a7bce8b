"""The bounds of docs/theory.md by numbers: lemmas, theorems, constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from stacksl.core import (
    First,
    ScorerSettings,
)
from stacksl.core.confidence import radius

from .theory_cases import play


def potential(rows: np.ndarray, ridge: float) -> float:
    """Σ ‖a_i‖² in V⁻¹, each before its own row enters."""
    inverse, total = np.eye(rows.shape[1]) / ridge, 0.0
    for row in rows:
        image = inverse @ row
        width = float(row @ image)
        inverse -= np.outer(image, image) / (1.0 + width)
        total += width
    return total


def log_volume(count: int, dim: int, ridge: float) -> float:
    return dim * math.log1p(count / (ridge * dim))


@pytest.mark.parametrize("ridge", [1.0, 3.0])
@pytest.mark.parametrize("kind", ["sphere", "repeated", "axes"])
def test_the_potential_lemma_holds_where_the_ridge_is_at_least_the_norm(
    ridge: float, kind: str
) -> None:
    dim, count = 5, 400
    rows = np.random.default_rng(0).normal(size=(count, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if kind == "repeated":
        rows[:] = rows[0]
    if kind == "axes":
        rows = np.eye(dim)[np.arange(count) % dim]
    bound = log_volume(count, dim, ridge) / math.log(2.0)
    assert 0.05 * bound < potential(rows, ridge) <= bound


def test_the_printed_constant_two_needs_a_ridge() -> None:
    """One unit row in one dimension: 2 holds down to λ = 1/2.513; at 0.001 it is 70 times off."""
    edge = brentq(lambda m: m - 2.0 * math.log1p(m), 1.0, 5.0)
    assert edge == pytest.approx(2.5129, abs=1e-4)
    row = np.ones((1, 1))
    for ridge, holds in ((1.01 / edge, True), (0.99 / edge, False), (0.001, False)):
        assert (potential(row, ridge) <= 2.0 * log_volume(1, 1, ridge)) is holds
        factor = (1.0 / ridge) / math.log1p(1.0 / ridge)
        assert potential(row, ridge) == pytest.approx(factor * log_volume(1, 1, ridge))
    assert potential(row, 0.001) > 70 * 2.0 * log_volume(1, 1, 0.001)


class PairGapRun:
    """A gate on pair gaps in plain NumPy against a follower that knows θ*, V and θ.

    It presents, of 8 candidate sets, the one whose pair gap is largest; on odd rounds the one
    whose truly best candidate the learner ranks lowest.
    """

    def __init__(self, seed: int, about: str, threshold: float, budget: int) -> None:
        rng = np.random.default_rng(seed)
        self.dim, self.noise, self.horizon = 3, 0.1, 600
        truth = rng.normal(size=self.dim)
        truth /= np.linalg.norm(truth)
        gram, moment = np.eye(self.dim), np.zeros(self.dim)
        self.asked, self.predicted, self.played, self.covered = 0, 0.0, 0.0, True
        self.certified = self.wide_enough = True
        for t in range(self.horizon):
            inverse = np.linalg.inv(gram)
            theta = inverse @ moment
            self.covered &= bool((theta - truth) @ gram @ (theta - truth) <= self.radius**2)
            sets = rng.normal(size=(8, 4, self.dim))
            sets /= np.linalg.norm(sets, axis=-1, keepdims=True)
            made = [self.gap(rows, theta, inverse) for rows in sets]
            losses = [
                float((s @ truth).max() - (s @ truth)[m[1]])
                for s, m in zip(sets, made, strict=True)
            ]
            at = int(np.argmax(losses if t % 2 else [m[0] for m in made]))
            rows, (gap, _, wide, upper), loss = sets[at], made[at], losses[at]
            self.certified &= loss <= gap + 1e-9
            self.predicted += loss
            self.wide_enough &= self.doubt_is_wide(rows, truth, inverse, gap, (wide, upper))
            if self.asked < budget and gap > threshold:
                arm = wide if about == "pair" else upper
                self.played += float((rows @ truth).max() - rows[arm] @ truth)
                gram += np.outer(rows[arm], rows[arm])
                moment += rows[arm] * (rows[arm] @ truth + self.noise * rng.normal())
                self.asked += 1
            else:
                self.played += loss

    def doubt_is_wide(
        self,
        rows: np.ndarray,
        truth: np.ndarray,
        inverse: np.ndarray,
        gap: float,
        arms: tuple[int, int],
    ) -> bool:
        """(*): G ≤ 2βw for both ways to ask; where G > 0, w > e/(4β) for the pair (point 5)."""
        reach, values = self.radius, np.sort(rows @ truth)
        wide, upper = (math.sqrt(rows[arm] @ inverse @ rows[arm]) for arm in arms)
        lead = float(values[-1] - values[-2])
        doubted = gap == 0.0 or wide >= lead / (4.0 * reach) - 1e-9
        return bool(gap <= 2.0 * reach * min(wide, upper) + 1e-9 and (doubted or not self.covered))

    @property
    def radius(self) -> float:
        return radius(self.noise, self.dim, self.asked, 1.0, 0.05, 1.0)

    def gap(
        self, rows: np.ndarray, theta: np.ndarray, inverse: np.ndarray
    ) -> tuple[float, int, int, int]:
        """(G, x̂, the wider of x̂ and x♯, the UCB candidate)."""
        scores, reach = rows @ theta, self.radius
        widths = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
        choice = int(scores.argmax())
        apart = rows - rows[choice]
        gaps = scores - scores[choice]
        gaps = gaps + reach * np.sqrt(
            np.maximum(np.einsum("ij,jk,ik->i", apart, inverse, apart), 0)
        )
        gaps[choice] = -np.inf
        other = int(gaps.argmax())
        wide = choice if widths[choice] >= widths[other] else other
        return max(0.0, float(gaps[other])), choice, wide, int((scores + reach * widths).argmax())


@pytest.mark.parametrize("about", ["pair", "ucb"])
def test_theorem_a_holds_against_a_follower_that_knows_everything(about: str) -> None:
    """Points 1, 3 and 4, in the runs where θ* stayed in the set: 19 of 20 at least in the mean."""
    budget, dim, noise, covered = 300, 3, 0.1, 0
    volume = log_volume(budget, dim, 1.0)
    level = radius(noise, dim, budget, 1.0, 0.05, 1.0) * math.sqrt(8.0 * volume / budget)
    for seed in range(4):
        run = PairGapRun(seed, about, level, budget)
        covered += run.covered
        if not run.covered:
            continue
        assert run.certified
        assert run.wide_enough
        assert 1 <= run.asked < budget
        last = radius(noise, dim, run.asked - 1, 1.0, 0.05, 1.0)
        assert run.asked * level**2 < 8.0 * last**2 * log_volume(run.asked, dim, 1.0)
        idle = run.horizon - run.asked
        assert run.predicted <= level * (idle + math.sqrt(run.asked * budget))
        twice = 2.0 if about == "pair" else 1.0
        assert run.played <= level * (idle + twice * math.sqrt(run.asked * budget))
    assert covered >= 3


def psi(error: float) -> float:
    return (1.0 - 2.0 * error) * math.log((1.0 - error) / error)


def test_the_constants_of_the_lower_bounds() -> None:
    """ψ⁻¹(2) and Φ(−1); ψ is convex and falls, x ↦ Φ(−√x) too."""
    adaptive = brentq(lambda a: psi(a) - 2.0, 1e-6, 0.4999)
    assert adaptive == pytest.approx(0.0832, abs=1e-4)
    assert 2.0 * adaptive >= 0.166
    assert 2.0 * norm.cdf(-1.0) >= 0.317
    at = np.linspace(0.01, 0.49, 97)
    errors = np.array([psi(a) for a in at])
    assert (np.diff(errors) < 0).all()
    assert (np.diff(errors, 2) > 0).all()
    tails = norm.cdf(-np.sqrt(np.linspace(0.0, 9.0, 200)))
    assert (np.diff(tails) < 0).all()
    assert (np.diff(tails, 2) > 0).all()
    best = max(
        2 * s * brentq(lambda a, s=s: psi(a) - 2 * s * s, 1e-9, 0.49999) for s in (0.5, 0.56)
    )
    assert best >= 0.26


def test_a_learner_that_stops_early_errs_less_than_a_fixed_number_of_labels_allows() -> None:
    """A sequential test with at most σ²/m² labels in the mean: below Φ(−1), not below ψ⁻¹(2).

    4,000 walks: the standard error of the share is 0.005.
    """
    drift = 0.1
    least = brentq(lambda a: psi(a) - 2.0, 1e-6, 0.4999)
    barrier = math.log((1.0 - 0.095) / 0.095) / (2.0 * drift)  # the overshoot does the rest
    steps = drift + np.random.default_rng(1).normal(size=(4000, 1500))
    walks = np.cumsum(steps, axis=1)
    ends = np.argmax(np.abs(walks) >= barrier, axis=1)
    assert (np.abs(walks[np.arange(4000), ends]) >= barrier).all()
    wrong = float((walks[np.arange(4000), ends] < 0).mean())
    assert (ends + 1).mean() <= 1.0 / drift**2
    assert least - 0.015 < wrong < norm.cdf(-1.0) - 0.04


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
