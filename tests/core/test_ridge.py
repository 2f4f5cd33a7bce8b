"""Ridge against the ridge estimate, solved in full matrices."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import PairFeatures
from stacksl.core.losses import softmax
from stacksl.types import Label, Reward

from .scorer_cases import ALL, fresh, kronecker, pair_inputs, shared_inputs


def test_ridge_on_rewards_is_the_ridge_estimate() -> None:
    rng = np.random.default_rng(12)
    scorer, rows, values = fresh("ridge", ridge=0.5), [], []
    for _ in range(40):
        inputs, choice, value = pair_inputs(rng), int(rng.integers(4)), float(rng.normal())
        scorer.step(inputs, ALL, choice, Reward(value))
        rows.append(inputs.phi[choice])
        values.append(value)
    matrix, targets = np.array(rows), np.array(values)
    expected = np.linalg.solve(0.5 * np.eye(5) + matrix.T @ matrix, matrix.T @ targets)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)
    view = scorer.bounds(inputs, ALL)
    np.testing.assert_allclose(view.probabilities, softmax(view.scores))


def test_ridge_on_labels_regresses_on_the_whole_loss_set() -> None:
    rng = np.random.default_rng(13)
    scorer, rows, values = fresh("ridge"), [], []
    for turn in range(25):
        inputs = pair_inputs(rng)
        shown = (0, 1, 3) if turn % 2 else ALL
        scorer.step(inputs, shown, 0, Label(3))
        rows += [inputs.phi[x] for x in shown]
        values += [float(x == 3) for x in shown]
    matrix, targets = np.array(rows), np.array(values)
    expected = np.linalg.solve(np.eye(5) + matrix.T @ matrix, matrix.T @ targets)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)


def test_ridge_class_heads_are_ridge_on_the_kronecker_rows() -> None:
    rng = np.random.default_rng(14)
    heads, flat = fresh("ridge", classes=4), fresh("ridge", dim=20)
    for _ in range(30):
        inputs, gold = shared_inputs(rng), int(rng.integers(4))
        heads.step(inputs, ALL, 0, Label(gold))
        flat.step(kronecker(inputs), ALL, 0, Label(gold))
    np.testing.assert_allclose(heads.theta.ravel(), flat.theta, atol=1e-12)
    inputs = shared_inputs(rng)
    ours, theirs = heads.bounds(inputs, (3, 1)), flat.bounds(kronecker(inputs), (3, 1))
    for name in ("scores", "probabilities", "widths", "pair_widths", "choice"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)


def test_ridge_class_heads_learn_absent_classes_as_zero() -> None:
    rng = np.random.default_rng(15)
    some, every = fresh("ridge", classes=4), fresh("ridge", classes=4)
    for _ in range(10):
        inputs = shared_inputs(rng)
        some.step(inputs, (1, 2), 1, Label(2))
        every.step(inputs, ALL, 1, Label(2))
    np.testing.assert_array_equal(some.theta, every.theta)


def test_ridge_policy_is_the_share_of_positive_scores() -> None:
    scorer, inputs = fresh("ridge"), PairFeatures(np.eye(5)[:4])
    np.testing.assert_array_equal(scorer.bounds(inputs, ALL).probabilities, 0.25)
    scorer.theta = np.array([0.6, -0.5, 0.2, 0.0, 0.0])
    np.testing.assert_allclose(scorer.bounds(inputs, ALL).probabilities, [0.75, 0, 0.25, 0])
    scorer.theta = -np.ones(5)
    np.testing.assert_array_equal(scorer.bounds(inputs, (1, 2)).probabilities, 0.5)
