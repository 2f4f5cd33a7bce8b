"""The gradient step: the printed update, its references, its clip and its pull to the policy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures
from stacksl.core.losses import clip, cross_entropy, kl
from stacksl.types import Label

from .scorer_cases import ALL, fresh, kronecker, pair_inputs, shared_inputs


def test_sgd_step_is_the_printed_update() -> None:
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {
        "learning_rate": 0.3,
        "kl_weight": 0.2,
        "clip": "scale",
        "clip_level": 1.0,
    }
    scorer = fresh("sgd", **settings)
    theta = np.zeros(5)
    for _ in range(20):
        inputs, gold = pair_inputs(rng), int(rng.integers(4))
        scores = inputs.phi @ theta
        slope = clip(*cross_entropy(scores, gold), 1.0, "scale")[1]
        slope = slope + 0.2 * kl(scores, np.zeros(4))[1]
        theta = theta - 0.3 * inputs.phi.T @ slope
        scorer.step(inputs, ALL, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta, theta, atol=1e-14)
    assert scorer.learnt == 20


@pytest.mark.parametrize("reference", ["frozen", "ema", "previous"])
@pytest.mark.parametrize("inner_steps", [1, 3])
def test_sgd_class_heads_are_sgd_on_the_kronecker_rows(reference: str, inner_steps: int) -> None:
    rng = np.random.default_rng(1)
    settings: dict[str, Any] = {
        "reference": reference,
        "inner_steps": inner_steps,
        "ema_decay": 0.8,
    }
    heads = fresh("sgd", classes=4, **settings)
    flat = fresh("sgd", dim=20, **settings)
    for turn in range(30):
        inputs = shared_inputs(rng)
        choice, gold = int(rng.integers(3)), int(rng.integers(4))
        feedback = None if turn % 5 == 4 else Label(gold)
        shown = ALL if turn % 2 else tuple(sorted({0, 2, gold}))
        heads.step(inputs, shown, choice, feedback)
        flat.step(kronecker(inputs), shown, choice, feedback)
    np.testing.assert_allclose(heads.theta.ravel(), flat.theta, atol=1e-13)
    inputs = shared_inputs(rng)
    ours, theirs = heads.bounds(inputs, (2, 0, 3)), flat.bounds(kronecker(inputs), (2, 0, 3))
    for name in ("scores", "probabilities", "widths", "pair_widths", "radius", "choice"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
    assert set(heads.tracker.blocks) == {0, 1, 2}  # class 3 was never chosen


def test_previous_reference_has_no_pull_in_one_step_and_some_in_three() -> None:
    inputs = pair_inputs(np.random.default_rng(2))
    for inner_steps in (1, 3):
        free = fresh("sgd", reference="previous", kl_weight=0.0, inner_steps=inner_steps)
        held = fresh("sgd", reference="previous", kl_weight=5.0, inner_steps=inner_steps)
        for scorer in (free, held):
            scorer.step(inputs, ALL, 0, Label(1))
        assert np.array_equal(free.theta, held.theta) == (inner_steps == 1)
        before = held.theta.copy()
        if inner_steps == 1:
            held.step(inputs, ALL, 0, None)
            np.testing.assert_allclose(held.theta, before, atol=1e-15)


def test_kl_only_step_pulls_back_to_the_frozen_policy_and_is_no_label() -> None:
    rng = np.random.default_rng(3)
    scorer, inputs = fresh("sgd", kl_weight=1.0), pair_inputs(rng)
    scorer.step(inputs, ALL, 0, Label(1))
    away = kl(scorer.scores(inputs), np.zeros(4))[0]
    for _ in range(10):
        scorer.step(inputs, ALL, 0, None)
    assert kl(scorer.scores(inputs), np.zeros(4))[0] < away
    assert (scorer.learnt, scorer.rounds) == (1, 1)


def test_literal_clip_below_the_first_loss_learns_nothing_and_says_so() -> None:
    # At θ = 0 the loss is log K, so a level below has zero gradient (`docs/paper.md`, D10).
    rng = np.random.default_rng(5)
    literal = fresh("sgd", clip="literal", clip_level=math.log(4) - 0.01)
    scaled = fresh("sgd", clip="scale", clip_level=math.log(4) - 0.01)
    for _ in range(10):
        inputs = pair_inputs(rng)
        literal.step(inputs, ALL, 0, Label(1))
        scaled.step(inputs, ALL, 0, Label(1))
    assert not literal.theta.any()
    assert literal.clipped == 10
    assert scaled.theta.any()


def test_quantile_clip_leaves_the_first_labels_alone_then_clips_a_few() -> None:
    rng = np.random.default_rng(6)
    scorer = fresh("sgd", clip="scale", clip_level=None, learning_rate=0.5)
    for turn in range(400):
        scorer.step(pair_inputs(rng), ALL, 0, Label(int(rng.integers(4))))
        if turn == 19:
            assert scorer.clipped == 0
    assert 5 <= scorer.clipped <= 60  # about 5 % of 380
    assert scorer._level() == pytest.approx(np.quantile(scorer._losses, 0.95), rel=0.02)


def test_a_kl_weight_that_is_adjusted_never_makes_theta_diverge() -> None:
    """Against the frozen start KL only grows as labels come in: the pull stays below 1/η."""
    rng = np.random.default_rng(11)
    scorer = fresh("sgd", dim=4, learning_rate=0.1, kl_target=1e-4)
    for _ in range(400):
        phi = rng.normal(size=(3, 4))
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        scorer.step(PairFeatures(phi), (0, 1, 2), 0, Label(int(np.argmax(phi[:, 0]))))
    assert np.abs(scorer.theta).max() < 2.0
    assert scorer.kl_weight == pytest.approx(10.0)


def test_ema_reference_follows_theta() -> None:
    rng = np.random.default_rng(4)
    scorer, reference = fresh("sgd", reference="ema", ema_decay=0.5), np.zeros(5)
    for _ in range(5):
        scorer.step(pair_inputs(rng), ALL, 0, Label(2))
        reference = 0.5 * reference + 0.5 * scorer.theta
    np.testing.assert_allclose(scorer.reference, reference, atol=1e-15)
