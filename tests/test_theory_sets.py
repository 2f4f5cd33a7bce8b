"""Confidence sets, losses and prices of docs/theory.md by numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core import (
    Contested,
    PairFeatures,
    ScorerSettings,
    make_scorer,
)
from stacksl.core.gates.rules import Clock
from stacksl.core.losses import clip, cross_entropy, kl, softmax
from stacksl.types import Label
from stacksl_lab.likelihood import LikelihoodSet, label_loss, mixture_loss


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
