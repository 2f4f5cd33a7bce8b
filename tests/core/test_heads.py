"""The final model against scikit-learn, and its way to disk and back."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

from stacksl.core.blocks import PairBlock, SharedBlock
from stacksl.core.heads import logistic as refits
from stacksl.core.scorers import ScorerSettings, make_scorer, restore_head
from stacksl.errors import FeatureError


def _classes(count, classes=4, dim=6, noise=0.8, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dim))
    labels = rng.integers(classes, size=count)
    h = centres[labels] + noise * rng.normal(size=(count, dim))
    return (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32), labels


def _choices(count, dim=5, seed=0, scale=4.0):
    rng = np.random.default_rng(seed)
    truth = scale * np.random.default_rng(98).normal(size=dim)
    sizes = rng.integers(2, 6, size=count)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    phi = rng.normal(size=(offsets[-1], dim))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    noise = rng.gumbel(size=offsets[-1])  # argmax of score + Gumbel is a softmax draw
    golds = [int(np.argmax(phi[a:b] @ truth + noise[a:b])) for a, b in pairwise(offsets)]
    return PairBlock(phi.astype(np.float32), offsets), np.array(golds), truth


def _heads(classes, dim):
    return make_scorer("ridge", dim=dim, classes=classes, settings=ScorerSettings(), seed=3)


@pytest.mark.parametrize("strength", refits.CHOICES)
def test_class_head_is_logistic_regression(strength, monkeypatch):
    monkeypatch.setattr(refits, "DEFAULT", strength)
    h, labels = _classes(200)
    head = _heads(4, 6).refit(SharedBlock(h, 4), labels, tune=False)
    theirs = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(
        h.astype(np.float64), labels
    )
    np.testing.assert_allclose(
        head.probabilities(SharedBlock(h, 4)), theirs.predict_proba(h.astype(float)), atol=2e-4
    )


def test_default_strength_is_20_below_sixty_labels(monkeypatch):
    def never(*_):
        raise AssertionError("chose C with too few labels")

    monkeypatch.setattr(refits, "_path_losses", never)
    h, labels = _classes(59)
    _heads(4, 6).refit(SharedBlock(h, 4), labels)
    block, golds, _ = _choices(59)
    make_scorer("newton", dim=5, classes=None).refit(block, golds)
    with pytest.raises(AssertionError, match="too few"):
        _heads(4, 6).refit(SharedBlock(*_classes(60)[:1], 4), _classes(60)[1])


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
    head = scorer.refit(SharedBlock(h, 4), labels)
    np.testing.assert_array_equal(head.coefficients[2], scorer.theta[2])
    assert head.intercepts[2] == 0.0
    assert not np.allclose(head.coefficients[1], scorer.theta[1])
    assert np.isfinite(head.probabilities(SharedBlock(h, 4))).all()


def test_no_refit_without_two_classes_or_without_a_label():
    h, _ = _classes(5)
    assert _heads(4, 6).refit(SharedBlock(h, 4), np.ones(5, dtype=np.int64)) is None
    assert _heads(4, 6).refit(SharedBlock(h[:0], 4), np.zeros(0, dtype=np.int64)) is None
    empty = PairBlock(np.zeros((0, 5)), np.zeros(1, dtype=np.int64))
    scorer = make_scorer("sgd", dim=5, classes=None)
    assert scorer.refit(empty, np.zeros(0, dtype=np.int64)) is None


@pytest.mark.parametrize("count", [2, 70, 200])
def test_a_class_with_a_single_label_is_fitted(count):
    # Nearly every row its own class: folds lack classes, and nothing may warn or be NaN.
    h, _ = _classes(count)
    labels = np.arange(count)
    head = _heads(count, 6).refit(SharedBlock(h, count), labels)
    assert np.isfinite(head.probabilities(SharedBlock(h, count))).all()


def test_pair_head_is_the_conditional_logit():
    block, golds, _ = _choices(40)
    head = make_scorer("newton", dim=5, classes=None).refit(block, golds, tune=False)

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
        (_heads(4, 6).refit(SharedBlock(h, 4), labels), SharedBlock(h, 4)),
        (make_scorer("sgd", dim=5, classes=None).refit(block, golds), block),
    ):
        state = head.state()
        assert all(isinstance(array, np.ndarray) for array in state.values())
        again = restore_head(state)
        assert type(again) is type(head)
        for ours, theirs in zip(
            head.probabilities(inputs), again.probabilities(inputs), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_heads_refuse_what_is_not_theirs():
    with pytest.raises(FeatureError, match="kind 7"):
        restore_head({"kind": np.array([7])})
    with pytest.raises(FeatureError, match="kind"):
        restore_head({})
