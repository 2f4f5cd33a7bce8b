"""Values of losses against SciPy; their gradients are in tests/laws/test_game_laws.py."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax as scipy_log_softmax
from scipy.special import rel_entr

from stacksl.core.losses import above, clip, cross_entropy, kl, log_softmax, softmax

SCORES = np.array([0.3, -1.2, 2.0, 0.3, -4.0])
OTHERS = np.array([1.0, 0.5, -0.5, 0.0, 2.0])


def test_softmax_agrees_with_scipy_and_does_not_overflow():
    np.testing.assert_allclose(log_softmax(SCORES), scipy_log_softmax(SCORES), rtol=1e-14)
    np.testing.assert_allclose(softmax(SCORES), np.exp(scipy_log_softmax(SCORES)), rtol=1e-14)
    far = softmax(np.array([0.0, 1e4, -1e4]))
    np.testing.assert_array_equal(far, [0.0, 1.0, 0.0])


def test_the_value_of_cross_entropy():
    loss, gradient = cross_entropy(SCORES, 3)
    assert loss == pytest.approx(-scipy_log_softmax(SCORES)[3])
    assert abs(gradient.sum()) < 1e-15


def test_a_hopeless_label_has_a_finite_loss():
    loss, gradient = cross_entropy(np.array([0.0, 5000.0]), 0)
    assert loss == 5000.0
    np.testing.assert_array_equal(gradient, [-1.0, 1.0])


def test_single_candidate_has_nothing_to_learn():
    assert cross_entropy(np.array([7.0]), 0) == (0.0, [0.0])
    assert kl(np.array([7.0]), np.array([-7.0])) == (0.0, [0.0])


def test_the_value_of_kl():
    value, _ = kl(SCORES, OTHERS)
    assert value == pytest.approx(float(rel_entr(softmax(SCORES), softmax(OTHERS)).sum()))


def test_readings_differ_above_the_level_alone():
    loss, gradient = cross_entropy(SCORES, 1)
    assert loss > 1.0
    literal, flat = clip(loss, gradient, 1.0, "literal")
    assert literal == 1.0
    np.testing.assert_array_equal(flat, 0.0)
    scaled, shorter = clip(loss, gradient, 1.0, "scale")
    assert scaled == pytest.approx(1.0 + math.log(loss))
    np.testing.assert_allclose(shorter, gradient / loss)


def test_a_loss_is_not_above_a_level_that_it_is_but_for_rounding() -> None:
    level = math.log(7.0)
    assert not above(level * (1.0 + 1e-12), level)
    assert not above(1e-16, 0.0)
    assert above(level + 1e-6, level)
    assert not above(1e9, math.inf)
    gradient = np.array([0.5, -0.5])
    assert clip(level * (1.0 + 1e-12), gradient, level, "literal")[1] is gradient
