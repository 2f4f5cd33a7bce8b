"""Laws of the game that hold for every input: Hypothesis draws the shapes and the numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.confidence import ConfidenceSet, pair_norms, radius
from stacksl.core.gates.rules import margin_statistic
from stacksl.core.losses import clip, cross_entropy, kl, softmax
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


def _trained(name, classes, count, dim, seed, rounds=12, **settings):
    rng = np.random.default_rng(seed)
    scorer = make_scorer(
        name, dim=dim, classes=count if classes else None, settings=ScorerSettings(**settings)
    )
    for _ in range(rounds):
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


@given(seeds, dims, st.integers(1, 40), st.floats(1e-3, 10.0))
def test_widths_never_grow_when_a_vector_is_added(seed, dim, updates, ridge):
    rng = np.random.default_rng(seed)
    trust, probes = ConfidenceSet.empty(dim, ridge), _rows(rng, 7, dim)
    widths, pairs = trust.widths(probes), pair_norms(probes, trust.images(probes), 0)
    for _ in range(updates):
        trust.update(_rows(rng, int(rng.integers(1, 4)), dim))
        narrower, nearer = trust.widths(probes), pair_norms(probes, trust.images(probes), 0)
        assert (narrower <= widths + 1e-12 / math.sqrt(ridge)).all()
        assert (nearer <= pairs + 1e-12 / math.sqrt(ridge)).all()
        widths, pairs = narrower, nearer


@given(seeds, dims, st.integers(2, 6))
def test_a_pair_is_no_wider_than_both_together(seed, dim, count):
    rng = np.random.default_rng(seed)
    trust, rows = ConfidenceSet.empty(dim, 1.0), _rows(rng, count, dim)
    trust.update(_rows(rng, 9, dim))
    widths, pairs = trust.widths(rows), pair_norms(rows, trust.images(rows), 1)
    assert (pairs <= widths + widths[1] + 1e-12).all()
    assert (pairs >= np.abs(widths - widths[1]) - 1e-12).all()


@given(st.integers(0, 10_000), st.integers(1, 500), st.floats(1e-3, 10.0), st.floats(0.001, 0.999))
def test_radius_grows_with_labels_and_with_confidence(count, dim, ridge, delta):
    reach = radius(1.0, dim, count, ridge, delta, 1.0)
    assert radius(1.0, dim, count + 1, ridge, delta, 1.0) > reach
    assert radius(1.0, dim, count, ridge, delta / 2, 1.0) > reach


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


@pytest.mark.parametrize("name", sorted(SCORERS))
@given(seed=seeds, count=st.integers(2, 6), dim=st.integers(2, 6))
def test_permuting_candidates_permutes_everything(name, seed, count, dim):
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    where = np.argsort(order)  # candidate x of the one is candidate where[x] of the other
    pair = [make_scorer(name, dim=dim, classes=None) for _ in range(2)]
    for _ in range(10):
        phi, choice, gold = _rows(rng, count, dim), *rng.integers(count, size=2)
        shown = tuple(range(count))
        pair[0].step(PairFeatures(phi), shown, int(choice), Label(int(gold)))
        permuted = Label(int(where[gold]))
        pair[1].step(PairFeatures(phi[order]), shown, int(where[choice]), permuted)
    phi = _rows(rng, count, dim)
    one = pair[0].bounds(PairFeatures(phi), shown)
    other = pair[1].bounds(PairFeatures(phi[order]), shown)
    for field in ("scores", "probabilities", "widths", "upper", "lower"):
        np.testing.assert_allclose(
            getattr(other, field), getattr(one, field)[order], rtol=0, atol=1e-12
        )
    if margin_statistic(one.scores) < -1e-9:  # no tie
        assert order[other.choice] == one.choice
        np.testing.assert_allclose(other.pair_widths, one.pair_widths[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("name", sorted(SCORERS))
@given(seed=seeds, count=st.integers(2, 6), dim=dims)
def test_the_order_of_the_presented_only_orders_the_arrays(name, classes, seed, count, dim):
    scorer, rng = _trained(name, classes, count, dim, seed)
    inputs = _inputs(rng, classes, count, dim)
    shown = tuple(int(x) for x in rng.permutation(count)[: int(rng.integers(1, count + 1))])
    view, ordered = scorer.bounds(inputs, shown), scorer.bounds(inputs, tuple(sorted(shown)))
    np.testing.assert_allclose(
        view.scores, ordered.scores[[sorted(shown).index(x) for x in shown]], rtol=0, atol=1e-12
    )
    assert shown[view.choice] == sorted(shown)[ordered.choice]


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


@given(scores, st.data())
def test_infinite_clip_equals_none(values, data):
    loss, gradient = cross_entropy(values, data.draw(st.integers(0, len(values) - 1)))
    for reading in ("literal", "scale"):
        clipped, slope = clip(loss, gradient, math.inf, reading)
        assert clipped == loss
        np.testing.assert_array_equal(slope, gradient)


@given(scores, st.floats(0.01, 10.0), st.data())
def test_clipping_never_lengthens_a_gradient_or_raises_a_loss(values, level, data):
    loss, gradient = cross_entropy(values, data.draw(st.integers(0, len(values) - 1)))
    for reading in ("literal", "scale"):
        clipped, slope = clip(loss, gradient, level, reading)
        assert clipped <= loss + 1e-12
        assert np.linalg.norm(slope) <= np.linalg.norm(gradient) * (1 + 1e-12)


@given(scores)
def test_softmax_ignores_a_common_offset(values):
    np.testing.assert_allclose(softmax(values + 100.0), softmax(values), atol=1e-12)
