"""Temperatures and weights of a mixture, on made-up held-out labels."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.heads.logistic import CHOICES, DEFAULT, choose_strength
from stacksl.core.heads.mixing import FLOOR, mixture_weights, tempered


def _labels(logits, rng):
    policies = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return np.array([rng.choice(len(each), p=each) for each in policies])


def test_a_temperature_is_found_again() -> None:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4000, 5))
    gold, even = _labels(logits, rng), np.ones(4000)
    assert tempered(logits, gold, even)[0] == pytest.approx(1.0, abs=0.15)
    assert 3.0 < tempered(4 * logits, gold, even)[0] < 4.2, "drawn to 1"


def test_a_class_that_a_model_rules_out_costs_no_more_than_the_floor() -> None:
    logits = np.array([[0.0, -1e9], [0.0, -1e9]])
    _, right = tempered(logits, np.array([0, 1]), np.ones(2))
    np.testing.assert_allclose(right, [1 - FLOOR / 2, FLOOR / 2])


def test_labels_count_by_their_weight() -> None:
    logits = np.array([[9.0, 0.0], [9.0, 0.0]])
    gold = np.array([0, 1])
    sure, _ = tempered(logits, gold, np.array([99.0, 1.0]))
    unsure, _ = tempered(logits, gold, np.array([1.0, 1.0]))
    assert unsure > 1.5 * sure
    right = np.array([[0.9, 0.1], [0.1, 0.9]])
    first = mixture_weights(right, np.array([3.0, 1.0]), np.ones(2))
    assert first[0] > first[1]
    np.testing.assert_allclose(first, mixture_weights(right, np.array([30.0, 10.0]), np.ones(2)))


def test_the_better_model_takes_the_weight_with_the_labels() -> None:
    right = np.column_stack([np.full(200, 0.9), np.full(200, 0.3), np.full(200, 0.3)])
    few, many = (mixture_weights(right[:n], np.ones(n), np.ones(3)) for n in (3, 200))
    assert 1 / 3 < few[0] < many[0]
    assert many[0] > 0.95
    assert many.sum() == pytest.approx(1.0)


def test_models_that_are_right_elsewhere_share_the_weight() -> None:
    right = np.where(np.arange(100)[:, None] % 2 == np.arange(2), 0.9, 0.1)
    np.testing.assert_allclose(
        mixture_weights(right, np.ones(100), np.ones(2)), [0.5, 0.5], atol=1e-9
    )


def test_where_no_held_out_label_can_be_judged_the_default_strength_is_kept() -> None:
    """Every class has one label, so that no fold has seen what it is judged on."""
    rng = np.random.default_rng(1)
    found = choose_strength(rng.normal(size=(60, 8)), np.arange(60), 3)
    assert found.value == DEFAULT
    assert found.tried == (0.0,) * len(CHOICES)
