"""Laws of the game that hold for every input: Hypothesis draws the shapes and the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.confidence import ConfidenceSet
from stacksl.core.losses import clip, cross_entropy, kl
from stacksl.core.scorers import SCORERS, ScorerSettings, make_scorer
from stacksl.types import Label

seeds = st.integers(0, 2**32 - 1)
dims = st.integers(1, 6)
scores = arrays(np.float64, st.integers(1, 8), elements=st.floats(-20, 20, width=32))


def _rows(rng, count, dim):
    rows = rng.normal(size=(count, dim))
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def _inputs(rng, classes, count, dim):
    if classes:
        return SharedFeatures(_rows(rng, 1, dim)[0], count)
    return PairFeatures(_rows(rng, count, dim))


def _trained(name, classes, count, dim, seed, **settings):
    rng = np.random.default_rng(seed)
    scorer = make_scorer(
        name, dim=dim, classes=count if classes else None, settings=ScorerSettings(**settings)
    )
    for _ in range(12):
        choice, gold = (int(x) for x in rng.integers(count, size=2))
        scorer.step(_inputs(rng, classes, count, dim), tuple(range(count)), choice, Label(gold))
    return scorer, rng


@given(seeds, dims, st.integers(1, 5), st.integers(1, 60), st.floats(1e-3, 1e2))
def test_inverse_times_gram_is_the_identity(seed, dim, count, updates, ridge):
    rng = np.random.default_rng(seed)
    trust, gram = ConfidenceSet.empty(dim, ridge), ridge * np.eye(dim)
    for _ in range(updates):
        rows, weights = _rows(rng, count, dim), rng.random(count)
        trust.update(rows, weights)
        gram += (rows.T * weights) @ rows
    assert np.abs(trust.gram_inv @ gram - np.eye(dim)).max() < 1e-9


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("name", sorted(SCORERS))
@given(seed=seeds, count=st.integers(1, 6), dim=dims)
def test_bounds_are_ordered_and_the_policy_is_a_policy(name, classes, seed, count, dim):
    for action in ("greedy", "ucb"):
        scorer, rng = _trained(name, classes, count, dim, seed, action=action)
        view = scorer.bounds(_inputs(rng, classes, count, dim), tuple(range(count)))
        assert (view.lower <= view.scores).all()
        assert (view.scores <= view.upper).all()
        assert (view.probabilities >= 0).all()
        assert view.probabilities.sum() == pytest.approx(1.0)
        assert view.pair_widths[view.choice] == 0.0
        assert view.spread >= view.scores.max() - view.scores.min()
        best = view.scores if action == "greedy" else view.upper
        assert best[view.choice] >= best.max() - 1e-9 * np.abs([view.lower, view.upper]).max()


@given(scores, st.data())
def test_gradients_are_the_central_differences(values, data):
    gold = data.draw(st.integers(0, len(values) - 1))
    others = data.draw(arrays(np.float64, len(values), elements=st.floats(-20, 20, width=32)))
    level = data.draw(st.floats(0.1, 30.0))
    reading = data.draw(st.sampled_from(["literal", "scale", "none"]))
    step = 1e-5

    def clipped(s):
        return clip(*cross_entropy(s, gold), level, reading)

    for loss in (lambda s: cross_entropy(s, gold), lambda s: kl(s, others), clipped):
        gradient = loss(values)[1]
        for x in range(len(values)):
            nudge = step * np.eye(len(values))[x]
            numeric = (loss(values + nudge)[0] - loss(values - nudge)[0]) / (2 * step)
            near_the_kink = loss is clipped and abs(cross_entropy(values, gold)[0] - level) < 1e-3
            assert near_the_kink or gradient[x] == pytest.approx(numeric, abs=1e-5, rel=1e-5)


@given(scores, st.floats(-50, 50))
def test_kl_is_zero_and_flat_at_the_reference_and_never_negative(values, offset):
    value, gradient = kl(values, values + offset)
    assert abs(value) < 1e-12
    assert np.abs(gradient).max() < 1e-12
    assert kl(values, -values)[0] >= -1e-12
