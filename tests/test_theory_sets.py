"""Confidence sets, losses and prices of docs/theory.md by numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from stacksl.core import (
    Contested,
    PairFeatures,
    ScorerSettings,
    make_scorer,
)
from stacksl.core.confidence import radius
from stacksl.core.gates.rules import Clock
from stacksl.core.losses import clip, cross_entropy, kl, softmax
from stacksl.types import Label
from stacksl_lab.likelihood import LikelihoodSet, label_loss, mixture_loss


def test_v_on_all_rounds_leaves_out_the_truth_by_the_bias_of_the_page() -> None:
    """Without noise: ‖θ̂ − θ*‖_V = ‖(λI + U)θ*‖ in V⁻¹, and it grows past the radius."""
    rng = np.random.default_rng(5)
    truth, labels, dim = np.array([1.0, -0.5, 0.25]), 50, 3
    rows = rng.normal(size=(4000, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    known = rows[:labels].T @ rows[:labels]
    for count, inside in ((60, True), (4000, False)):
        unknown = rows[labels:count].T @ rows[labels:count]
        gram = np.eye(dim) + known + unknown
        offset = np.linalg.solve(gram, known @ truth) - truth
        distance = math.sqrt(offset @ gram @ offset)
        bias = (np.eye(dim) + unknown) @ truth
        assert distance == pytest.approx(math.sqrt(bias @ np.linalg.solve(gram, bias)))
        reach = radius(0.3, dim, count, 1.0, 0.05, float(np.linalg.norm(truth)))
        assert (distance <= reach) is inside


def test_the_kl_term_is_flat_at_its_reference_and_a_fisher_metric_around_it() -> None:
    rng = np.random.default_rng(6)
    scores, way = rng.normal(size=6), rng.normal(size=6)
    value, gradient = kl(scores, scores)
    assert value == pytest.approx(0.0, abs=1e-15)
    assert np.abs(gradient).max() < 1e-15
    policy, small = softmax(scores), 1e-3
    fisher = policy @ way**2 - (policy @ way) ** 2
    near, _ = kl(scores + small * way, scores)
    assert near == pytest.approx(0.5 * small**2 * fisher, rel=1e-2)
    assert np.abs(kl(scores + way, scores)[1]).max() > 1e-2


@pytest.mark.parametrize(("candidates", "learns"), [(148, True), (149, False)])
def test_literal_clipping_at_five_learns_nothing_from_149_candidates_on(
    candidates: int, learns: bool
) -> None:
    loss, gradient = cross_entropy(np.zeros(candidates), 0)
    assert loss == pytest.approx(math.log(candidates))
    _, clipped = clip(loss, gradient, 5.0, "literal")
    assert bool(np.abs(clipped).max() > 0) is learns
    assert np.abs(clip(loss, gradient, 5.0, "scale")[1]).max() > 0


def fisher_of(rows: np.ndarray, policy: np.ndarray) -> np.ndarray:
    centred = rows - policy @ rows
    return np.asarray((centred.T * policy) @ centred)


def test_a_label_informs_about_each_pair_by_the_weight_of_theorem_b() -> None:
    """F ⪰ p_i p_j/(p_i + p_j)·DDᵀ, and after a Newton step still ω·DDᵀ for a pair in doubt."""
    rng = np.random.default_rng(8)
    in_doubt = 0
    for _ in range(300):
        count = int(rng.integers(2, 6))
        rows = rng.normal(size=(count, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        theta = 2.0 * rng.normal(size=3)
        policy = softmax(rows @ theta)
        order = np.argsort(policy)
        best, other = int(order[-1]), int(order[-2])
        apart = rows[best] - rows[other]
        weight = policy[best] * policy[other] / (policy[best] + policy[other])
        fisher = fisher_of(rows, policy)
        assert np.linalg.eigvalsh(fisher - weight * np.outer(apart, apart)).min() > -1e-12
        if (rows @ theta)[best] - (rows @ theta)[other] > 1.0:
            continue
        in_doubt += 1
        gold = int(rng.integers(count))
        moved = theta - np.linalg.solve(np.eye(3) + fisher, policy @ rows - rows[gold])
        after = fisher_of(rows, softmax(rows @ moved))
        omega = math.exp(-4.0) / ((1.0 + math.e) * count)
        assert np.linalg.eigvalsh(after - omega * np.outer(apart, apart)).min() > -1e-12
    assert in_doubt > 50


def avoidable(gap: float, spread: float) -> float:
    """τ·h(g/τ), h(u) = φ(u) − u·(1 − Φ(u))."""
    u = gap / spread
    return float(spread * (norm.pdf(u) - u * norm.sf(u)))


@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_the_regret_that_a_label_could_avoid_is_a_gaussian_mean(gap: float, spread: float) -> None:
    def integrand(value: float) -> float:
        return value * float(norm.pdf(value, loc=-gap, scale=spread))

    mean, _ = quad(integrand, 0.0, 12.0 * spread)
    assert avoidable(gap, spread) == pytest.approx(mean, rel=1e-6)
    assert avoidable(gap + 0.1, spread) < avoidable(gap, spread) < avoidable(gap, spread + 0.1)


def test_the_price_of_contested_keeps_its_spending_bound() -> None:
    """q ≤ B(f + (1 − f)t/T) + 1 for a statistic that is at its peak U on every round."""
    horizon, budget, reserve, asked, highest = 400, 60, 0.3, 0, -math.inf
    gate = Contested(reserve=reserve, floor=0.01)
    state = gate.start()
    for t in range(1, horizon + 1):
        clock = Clock(round=t, horizon=horizon, asked=asked, budget=budget)
        took = asked < budget and gate.threshold(1.0, 0.5, clock, state) < 1.0
        state = gate.advance(1.0, took, clock, state)
        asked += took
        assert asked <= budget * (reserve + (1.0 - reserve) * t / horizon) + 1
        highest = max(highest, asked - budget * t / horizon)
    assert highest > 0.9 * reserve * budget, "the bound is nearly met: it says something"


def test_the_drift_guards_exponent() -> None:
    """The supermartingale's factor is 1 at r and below 1 under the cap; the rate is 4.2e-5."""
    variance, allowance, level, cap = 1.1, 2.0, 30.0, 25.0
    rate = brentq(lambda r: 0.5 * math.log1p(-2.0 * r * variance) + r * allowance, 0.1, 0.45)
    assert rate == pytest.approx(0.336, abs=1e-3)
    assert math.exp(-rate * level) == pytest.approx(4.2e-5, rel=0.02)

    def grown(value: float, most: float) -> float:
        density = float(norm.pdf(value, scale=math.sqrt(variance)))
        return math.exp(rate * (min(value * value, most) - allowance)) * density

    free, _ = quad(grown, -40.0, 40.0, args=(math.inf,), limit=200)
    capped, _ = quad(grown, -40.0, 40.0, args=(cap,), limit=200)
    assert free == pytest.approx(1.0, rel=1e-4)
    assert 0.8 < capped < 1.0


@pytest.mark.parametrize(("norm", "held"), [(2.0, True), (9.6, True), (9.8, False), (40.0, False)])
def test_the_ellipsoid_of_newton_is_false_after_one_label_of_a_large_truth(
    norm: float, held: bool
) -> None:
    """Section 4: d = 1, candidates ±1, λ = 1; the label is the better one but for e^(−2S)."""
    scorer = make_scorer("newton", dim=1, classes=None, settings=ScorerSettings(norm_bound=norm))
    inputs = PairFeatures(np.array([[1.0], [-1.0]]))
    scorer.step(inputs, (0, 1), 0, Label(0))
    state = scorer.state()
    assert state["theta"] == pytest.approx([0.5])
    assert 1.0 / state["gram_inv"][0] == pytest.approx([1.786], abs=5e-4)
    reach = scorer.bounds(inputs, (0, 1)).radius
    assert reach == pytest.approx(2.585 + norm, abs=5e-4)
    error = math.sqrt(1.0 / float(state["gram_inv"][0, 0])) * (norm - 0.5)
    assert (error <= reach) is held
    label = label_loss([inputs], [(0, 1)], [0])
    assert LikelihoodSet.of(label, norm, 0.05).contains(np.array([norm]))


def test_the_mixtures_set_keeps_its_promise_whoever_chooses_the_items() -> None:
    """θ* is drawn from the mixture, so that at most δ = 1/2 of the runs ever lose it, and some do.

    A gate that looks at the answers stops buying where the set has lost θ*, and goes on elsewhere:
    the worst that a choice of items can do.
    """
    rng, runs, lost = np.random.default_rng(0), 200, 0
    for _ in range(runs):
        truth = rng.normal(size=2)
        bought: list[tuple[PairFeatures, int]] = []
        out = False
        while not out and len(bought) < 12:
            inputs = PairFeatures(rng.normal(size=(3, 2)))
            gold = int((inputs.phi @ truth + rng.gumbel(size=3)).argmax())
            bought.append((inputs, gold))
            items, golds = zip(*bought, strict=True)
            loss = label_loss(items, [(0, 1, 2)] * len(items), golds)
            out = bool(loss.value(truth) > mixture_loss(loss, 1.0) + math.log(2.0))
        lost += out
    assert 0 < lost <= 0.5 * runs
