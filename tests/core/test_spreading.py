"""Labels over a graph of neighbours, held against scikit-learn's, and soft examples in a refit."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from stacksl.core.blocks import SharedBlock
from stacksl.core.heads import spreading
from stacksl.core.heads.logistic import Fit, Soft, together
from stacksl.core.heads.spreading import Graph, neighbour_graph, spread
from stacksl.core.scorers import ScorerSettings, make_scorer


def _clouds(count, classes=3, dim=8, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    h = 2.0 * np.eye(dim)[labels] + rng.normal(size=(count, dim)) * 0.6
    return (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32), labels


def _similarity_by_hand(h, count):
    """The definition, node by node: mean of both directions, exp(−(d / median)²), D^−½ W D^−½."""
    distance = 1.0 - h.astype(np.float64) @ h.astype(np.float64).T
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1)[:, :count]
    median = np.median(np.take_along_axis(distance, near, axis=1))
    weights = np.zeros_like(distance)
    for node, others in enumerate(near):
        weights[node, others] = np.exp(-((distance[node, others] / median) ** 2))
    weights = (weights + weights.T) / 2
    scale = 1 / np.sqrt(weights.sum(axis=1))
    return scale[:, None] * weights * scale


def test_the_graph_is_its_definition():
    h, _ = _clouds(60)
    graph = neighbour_graph(h[:57], h[57:], neighbours=5)
    assert (graph.items, graph.names) == (57, 3)
    np.testing.assert_allclose(graph.similarity.toarray(), _similarity_by_hand(h, 5), atol=1e-5)


def test_spread_labels_are_the_iteration_to_the_step(monkeypatch):
    h, labels = _clouds(40)
    graph = neighbour_graph(h, neighbours=4)
    rows = np.array([0, 5, 9])
    seeds = np.zeros((40, 3))
    seeds[rows, labels[rows]] = 1.0
    found = seeds
    for _ in range(spreading.STEPS):
        found = 0.9 * graph.similarity.toarray().astype(np.float64) @ found + 0.1 * seeds
    found /= np.maximum(found.sum(axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(spread(graph, rows, labels[rows], 3), found, atol=2e-5)
    monkeypatch.setattr(spreading, "_COLUMNS", 2)  # classes in two blocks: the same numbers
    wanted = np.array([7, 30])
    some = spread(graph, rows, labels[rows], 3, wanted)
    np.testing.assert_allclose(some, found[wanted], atol=2e-5)


def test_a_name_is_a_weaker_seed_than_a_label():
    h = np.array([[1, 0], [0.98, 0.2], [0.98, -0.2]], dtype=np.float32)
    names = np.array([[0.9, 0.45], [0.9, -0.45]], dtype=np.float32)
    names /= np.linalg.norm(names, axis=1, keepdims=True)
    graph = neighbour_graph(h, names, neighbours=4)
    none = np.zeros(0, dtype=np.int64)
    from_names = spread(graph, none, none, 2)
    assert from_names[0] == pytest.approx([0.5, 0.5], abs=1e-3)
    assert from_names[1, 0] > 0.5 > from_names[2, 0]
    bought = spread(graph, np.array([0]), np.array([1]), 2)
    assert (bought[:, 1] > from_names[:, 1]).all()
    assert bought[0, 1] > 0.5


def test_rows_without_a_direction_and_tiny_graphs_are_left_alone():
    h = np.zeros((4, 3), dtype=np.float32)
    h[1], h[2] = [1, 0, 0], [0.9, 0.1, 0]
    found = spread(neighbour_graph(h), np.array([1]), np.array([0]), 2)
    np.testing.assert_array_equal(found[[0, 3]], 0.0)
    assert found[2, 0] == pytest.approx(1.0)
    for count in (0, 1):
        lone = neighbour_graph(h[1 : 1 + count])
        assert spread(lone, np.arange(count), np.zeros(count, np.int64), 2).shape == (count, 2)


def test_equal_rows_find_each_other_and_never_themselves():
    h = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    graph = neighbour_graph(h, neighbours=2)
    dense = graph.similarity.toarray()
    assert np.diag(dense).max() == 0.0
    assert np.isfinite(dense).all()
    assert (np.count_nonzero(dense, axis=1) >= 2).all()
    assert isinstance(graph, Graph)


# Soft examples in a refit --------------------------------------------------------------------


def _heads(classes, dim):
    return make_scorer("ridge", dim=dim, classes=classes, settings=ScorerSettings(), seed=3)


def test_a_refit_with_soft_examples_is_weighted_logistic_regression():
    h, labels = _clouds(90)
    rng = np.random.default_rng(4)
    targets = rng.dirichlet(np.ones(3), size=50).astype(np.float32)
    weight = rng.uniform(0.05, 1.0, size=50).astype(np.float32)
    soft = Soft(h[40:], targets, weight)
    head = _heads(3, 8).refit(SharedBlock(h[:40], 3), labels[:40], fit=Fit(soft=soft))
    # scikit-learn has no soft targets: each example once a class, weighted by its target
    rows = np.concatenate([h[:40], *[h[40:]] * 3]).astype(np.float64)
    gold = np.concatenate([labels[:40], *[np.full(50, c) for c in range(3)]])
    weights = np.concatenate([np.ones(40), *[(targets[:, c] * weight) for c in range(3)]])
    theirs = LogisticRegression(C=20.0, tol=1e-10, max_iter=10_000).fit(rows, gold, weights)
    ours = head.probabilities(SharedBlock(h, 3))
    np.testing.assert_allclose(ours, theirs.predict_proba(h.astype(float)), atol=2e-3)


def test_names_alone_make_a_head_and_an_unnamed_class_keeps_the_online_score():
    names = np.eye(4, 6, dtype=np.float32)
    targets = np.eye(4, dtype=np.float32)
    targets[3] = 0.0  # says nothing of its class
    scorer = _heads(4, 6)
    scorer.theta = np.random.default_rng(1).normal(size=(4, 6))
    none = np.zeros(0, dtype=np.int64)
    fit = Fit(soft=Soft(names, targets, np.ones(4)))
    head = scorer.refit(SharedBlock(np.zeros((0, 6)), 4), none, fit=fit)
    policy = head.probabilities(SharedBlock(names[:3], 4))
    assert policy[:, :3].argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_array_equal(head.coefficients[3], scorer.theta[3])


def test_soft_examples_join():
    part = Soft(np.ones((2, 3)), np.ones((2, 4)), np.ones(2))
    both = together(part, part)
    assert (both.h.shape, both.targets.shape, both.weight.shape) == ((4, 3), (4, 4), (4,))
    assert both.classes == 4
