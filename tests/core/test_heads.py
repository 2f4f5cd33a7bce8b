"""Final heads: fits, neighbors, mixtures, abstention."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

from stacksl.core.blocks import PairBlock, SharedBlock
from stacksl.core.heads import logistic as refits
from stacksl.core.heads import spreading
from stacksl.core.heads.linear import FLOOR, mixture_weights, refit, tempered
from stacksl.core.heads.logistic import CHOICES, DEFAULT, Fit, Soft, choose_strength
from stacksl.core.heads.spreading import neighbor_graph, smoothed, spread
from stacksl.core.scorers import ScorerSettings, make_scorer, restore_head


def _classes(count, classes=4, dim=6, noise=0.8, seed=0):
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, dim))
    labels = rng.integers(classes, size=count)
    h = centers[labels] + noise * rng.normal(size=(count, dim))
    return (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32), labels


def _choices(count, dim=5):
    rng = np.random.default_rng(0)
    truth = 4.0 * np.random.default_rng(98).normal(size=dim)
    sizes = rng.integers(2, 6, size=count)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    phi = rng.normal(size=(offsets[-1], dim))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    noise = rng.gumbel(size=offsets[-1])  # argmax of score + Gumbel is a softmax draw
    golds = [int(np.argmax(phi[a:b] @ truth + noise[a:b])) for a, b in pairwise(offsets)]
    return PairBlock(phi.astype(np.float32), offsets), np.array(golds), truth


def _heads(classes, dim):
    return make_scorer("ridge", dim=dim, classes=classes, settings=ScorerSettings())


def test_equal_rows_of_any_size_make_a_head_of_the_shares() -> None:
    """Their curvature is singular in float64, in which a fit cannot change its coordinates."""
    labels = np.repeat([0, 1, 2], (150, 100, 50))
    for size in (0.0, 1.0, 1e6):
        h = np.full((300, 20), size)
        _, coef, intercept, _ = refits.fit_classes(h, labels, 0, Fit())
        scores = np.exp(coef @ h[0] + intercept)
        assert np.allclose(scores / scores.sum(), [1 / 2, 1 / 3, 1 / 6], atol=1e-3)


@pytest.mark.parametrize("strength", refits.CHOICES)
def test_class_head_is_logistic_regression(strength):
    h, labels = _classes(200)
    fit = Fit(refits.Strength(strength))
    head = refit(SharedBlock(h, 4), labels, _heads(4, 6).theta, 3, fit=fit)
    theirs = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(
        h.astype(np.float64), labels
    )
    np.testing.assert_allclose(
        head.probabilities(SharedBlock(h, 4)), theirs.predict_proba(h.astype(float)), atol=2e-4
    )


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
@pytest.mark.parametrize("count", [5, 200])
def test_a_fit_ends_where_the_gradient_is_within_its_tolerance(count, tolerance):
    h, labels = _classes(count)
    problem = refits._Classes(h.astype(np.float64), labels, 4)
    theta = refits._minimize(problem, DEFAULT, tolerance)
    pull = problem.penalized * theta / (DEFAULT * count)
    largest = np.abs(problem.loss(theta)[1] / count + pull).max()
    assert tolerance / 1e3 < largest <= tolerance


def test_default_strength_is_20_below_sixty_labels(monkeypatch):
    def never(*_):
        raise AssertionError("chose C with too few labels")

    monkeypatch.setattr(refits, "_path_losses", never)
    h, labels = _classes(59)
    refit(SharedBlock(h, 4), labels, _heads(4, 6).theta, 3)
    block, golds, _ = _choices(59)
    refit(block, golds, make_scorer("newton", dim=5, classes=None).theta, 3)
    with pytest.raises(AssertionError, match="too few"):
        refit(SharedBlock(*_classes(60)[:1], 4), _classes(60)[1], _heads(4, 6).theta, 3)


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_strength_is_the_one_of_least_held_out_loss(noise):
    h, labels = _classes(300, noise=noise)
    rows = h.astype(np.float64)
    folds = []

    def losses(train, held):
        folds.append((train, held))
        return refits._class_losses(rows, labels, train, held)

    ours = refits._choose(len(labels), 3, losses).value
    search = GridSearchCV(
        LogisticRegression(tol=1e-8, max_iter=10_000),
        {"C": list(refits.CHOICES)},
        scoring="neg_log_loss",
        cv=folds,
    ).fit(rows, labels)
    assert ours == search.best_params_["C"]
    assert sorted(np.concatenate([held for _, held in folds])) == list(range(300))
    train, held = folds[0]
    fitted = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit(rows[train], labels[train])
    expected = log_loss(labels[held], fitted.predict_proba(rows[held]), normalize=False)
    assert refits._class_losses(rows, labels, train, held)[0] == pytest.approx(expected, rel=1e-3)


def test_a_class_never_bought_keeps_the_online_score():
    h, labels = _classes(100)
    labels = np.where(labels == 2, 1, labels)
    scorer = _heads(4, 6)
    scorer.theta = np.random.default_rng(1).normal(size=(4, 6))
    head = refit(SharedBlock(h, 4), labels, scorer.theta, 3)
    np.testing.assert_array_equal(head.coefficients[2], scorer.theta[2])
    assert head.intercepts[2] == 0.0
    assert not np.allclose(head.coefficients[1], scorer.theta[1])
    assert np.isfinite(head.probabilities(SharedBlock(h, 4))).all()


def test_no_refit_without_two_classes_or_without_a_label():
    h, _ = _classes(5)
    assert refit(SharedBlock(h, 4), np.ones(5, dtype=np.int64), _heads(4, 6).theta, 3) is None
    assert refit(SharedBlock(h[:0], 4), np.zeros(0, dtype=np.int64), _heads(4, 6).theta, 3) is None
    empty = PairBlock(np.zeros((0, 5)), np.zeros(1, dtype=np.int64))
    scorer = make_scorer("sgd", dim=5, classes=None)
    assert refit(empty, np.zeros(0, dtype=np.int64), scorer.theta, 3) is None


@pytest.mark.parametrize("count", [2, 70, 200])
def test_a_class_with_a_single_label_is_fitted(count):
    # Nearly every row its own class: folds lack classes, and nothing may warn or be NaN.
    h, _ = _classes(count)
    labels = np.arange(count)
    head = refit(SharedBlock(h, count), labels, _heads(count, 6).theta, 3)
    assert np.isfinite(head.probabilities(SharedBlock(h, count))).all()


def test_pair_head_is_the_conditional_logit():
    block, golds, _ = _choices(40)
    head = refit(block, golds, make_scorer("newton", dim=5, classes=None).theta, 3, tune=False)

    def objective(theta):
        total = 0.5 * theta @ theta
        for item, gold in zip(block, golds, strict=True):
            scores = item.phi @ theta
            total += 20.0 * (np.log(np.exp(scores).sum()) - scores[gold])
        return total

    expected = minimize(objective, np.zeros(5), method="Powell", options={"ftol": 1e-14}).x
    np.testing.assert_allclose(head.theta, expected, atol=2e-3)


def test_heads_come_back_bit_for_bit():
    h, labels = _classes(80)
    block, golds, _ = _choices(30)
    for head, inputs in (
        (refit(SharedBlock(h, 4), labels, _heads(4, 6).theta, 3), SharedBlock(h, 4)),
        (refit(block, golds, make_scorer("sgd", dim=5, classes=None).theta, 3), block),
    ):
        state = head.state()
        assert all(isinstance(array, np.ndarray) for array in state.values())
        again = restore_head(state)
        assert type(again) is type(head)
        for ours, theirs in zip(
            head.probabilities(inputs), again.probabilities(inputs), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


# Labels over a graph of neighbors, held against scikit-learn's, and soft examples in a refit ---


def _clouds(count, classes=3, dim=8):
    rng = np.random.default_rng(0)
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
    graph = neighbor_graph(h[:57], h[57:], neighbors=5)
    assert (graph.items, graph.names) == (57, 3)
    np.testing.assert_allclose(graph.similarity.toarray(), _similarity_by_hand(h, 5), atol=1e-5)


def test_spread_labels_are_the_iteration_to_the_step(monkeypatch):
    h, labels = _clouds(40)
    graph = neighbor_graph(h, neighbors=4)
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


def test_smoothed_predictions_are_the_iteration_to_the_step(monkeypatch):
    h, labels = _clouds(40)
    graph = neighbor_graph(h, h[:3], neighbors=4)
    policies = np.random.default_rng(2).dirichlet(np.ones(3), size=40).astype(np.float32)
    kept, rows = policies.copy(), np.array([0, 5, 9])
    seeds = policies.astype(np.float64)
    seeds[rows] = np.eye(3)[labels[rows]]
    similarity, expected = graph.similarity.toarray()[:40, :40].astype(np.float64), seeds
    for _ in range(spreading.SMOOTH_STEPS):
        expected = 0.5 * similarity @ expected + 0.5 * seeds
    expected /= expected.sum(axis=1, keepdims=True)
    monkeypatch.setattr(spreading, "_COLUMNS", 2)  # classes in two blocks: the same numbers
    np.testing.assert_allclose(smoothed(graph, policies, rows, labels[rows]), expected, atol=2e-5)
    np.testing.assert_array_equal(policies, kept)


def test_a_name_is_a_weaker_seed_than_a_label():
    h = np.array([[1, 0], [0.98, 0.2], [0.98, -0.2]], dtype=np.float32)
    names = np.array([[0.9, 0.45], [0.9, -0.45]], dtype=np.float32)
    names /= np.linalg.norm(names, axis=1, keepdims=True)
    graph = neighbor_graph(h, names, neighbors=4)
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
    found = spread(neighbor_graph(h), np.array([1]), np.array([0]), 2)
    np.testing.assert_array_equal(found[[0, 3]], 0.0)
    assert found[2, 0] == pytest.approx(1.0)
    for count in (0, 1):
        lone = neighbor_graph(h[1 : 1 + count])
        assert spread(lone, np.arange(count), np.zeros(count, np.int64), 2).shape == (count, 2)


def test_many_equal_rows_are_joined_as_closely_as_can_be():
    h = np.random.default_rng(3).standard_normal((30, 64)).astype(np.float32)
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    weights = neighbor_graph(np.repeat(h, 20, axis=0)).weights
    row, column = weights.nonzero()
    assert (row // 20 == column // 20).all(), "a row's neighbors are its copies"
    assert weights.data.min() >= 0.5  # 1 in one direction, and perhaps none in the other
    assert (weights.sum(axis=1) >= 7.5).all()


# Soft examples in a refit --------------------------------------------------------------------


def test_a_refit_with_soft_examples_is_weighted_logistic_regression():
    h, labels = _clouds(90)
    rng = np.random.default_rng(4)
    targets = rng.dirichlet(np.ones(3), size=50).astype(np.float32)
    weight = rng.uniform(0.05, 1.0, size=50).astype(np.float32)
    soft = Soft(h[40:], targets, weight)
    head = refit(SharedBlock(h[:40], 3), labels[:40], _heads(3, 8).theta, 3, fit=Fit(soft=soft))
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
    head = refit(SharedBlock(np.zeros((0, 6)), 4), none, scorer.theta, 3, fit=fit)
    policy = head.probabilities(SharedBlock(names[:3], 4))
    assert policy[:, :3].argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_array_equal(head.coefficients[3], scorer.theta[3])


# Temperatures and weights of a mixture, on made-up held-out labels ------------------------------


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
