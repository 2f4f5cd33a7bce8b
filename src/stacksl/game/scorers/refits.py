"""Fits to convergence: logistic regression for class heads, conditional logit for pair features.

Both minimise C·Σ_i −log π(gold_i) + ½‖θ‖². C = 20, or from 60 labels up the C of {1, 5, 20, 100}
with the least log-loss over three shuffled folds of the labels given, seeded (DESIGN D15).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.game.inputs import Array

__all__ = ["fit_classes", "fit_pairs"]

_DEFAULT = 20.0
_CHOICES = (1.0, 5.0, 20.0, 100.0)
_ENOUGH = 60
_FOLDS = 3

Losses = Callable[[NDArray[np.int64], NDArray[np.int64]], Array]
"""From the rows to fit on and the rows held out to the summed log-loss of each C tried."""


def fit_classes(
    h: NDArray[Any], labels: NDArray[np.int64], seed: int, tune: bool
) -> tuple[NDArray[np.int64], Array, Array] | None:
    """The classes seen, (k,), with their coefficients, (k, d), and intercepts, (k,).

    `h` is (n, d), `labels` is (n,). None with fewer than two distinct classes.
    """
    seen = np.unique(labels)
    if len(seen) < 2:
        return None
    rows = np.asarray(h, dtype=np.float64)

    def losses(train: NDArray[np.int64], held: NDArray[np.int64]) -> Array:
        return _class_losses(rows, labels, train, held)

    strength = _choose(len(labels), seed, losses) if tune else _DEFAULT
    weights, offsets = _both_signs(_logistic(strength).fit(rows, labels))
    return seen, weights, offsets


def fit_pairs(
    phi: NDArray[Any],
    offsets: NDArray[np.int64],
    labels: NDArray[np.int64],
    seed: int,
    tune: bool,
) -> Array | None:
    """θ, (d,), of the conditional logit over each item's own candidates.

    `phi` is (ΣK, d), item i owning the rows `offsets`[i] to `offsets`[i + 1]; `labels` are gold
    indices within an item, (n,). None without a label.
    """
    if len(labels) == 0:
        return None
    items = [np.asarray(phi[a:b], dtype=np.float64) for a, b in pairwise(offsets)]

    def losses(train: NDArray[np.int64], held: NDArray[np.int64]) -> Array:
        fitting, testing = _Choices(items, labels, train), _Choices(items, labels, held)
        theta = np.zeros(phi.shape[1])
        out = np.zeros(len(_CHOICES))
        for slot, strength in enumerate(_CHOICES):
            theta = fitting.fit(strength, theta)
            out[slot] = testing.loss(theta)[0]
        return out

    strength = _choose(len(labels), seed, losses) if tune else _DEFAULT
    return _Choices(items, labels, np.arange(len(labels))).fit(strength, np.zeros(phi.shape[1]))


def _choose(count: int, seed: int, losses: Losses) -> float:
    if count < _ENOUGH:
        return _DEFAULT
    order = np.random.default_rng((seed, count)).permutation(count)
    folds = np.array_split(order, _FOLDS)
    total = np.zeros(len(_CHOICES))
    for held in range(_FOLDS):
        train = np.concatenate([fold for other, fold in enumerate(folds) if other != held])
        total += losses(np.sort(train), np.sort(folds[held]))
    return _CHOICES[int(np.argmin(total))]


def _class_losses(
    rows: Array,
    labels: NDArray[np.int64],
    train: NDArray[np.int64],
    held: NDArray[np.int64],
) -> Array:
    known = np.unique(labels[train])
    # A held-out class that the fit cannot know costs the same under every C: left out.
    held = held[np.isin(labels[held], known)]
    if len(known) < 2 or len(held) == 0:
        return np.zeros(len(_CHOICES))
    gold = np.searchsorted(known, labels[held])
    out = np.zeros(len(_CHOICES))
    model = _logistic(_CHOICES[0])
    for slot, strength in enumerate(_CHOICES):
        model.set_params(C=strength)
        weights, offsets = _both_signs(model.fit(rows[train], labels[train]))
        logits = rows[held] @ weights.T + offsets
        logits -= logits.max(axis=1, keepdims=True)
        picked = logits[np.arange(len(held)), gold]
        out[slot] = float(np.log(np.exp(logits).sum(axis=1)).sum() - picked.sum())
    return out


def _logistic(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=5000, warm_start=True)


def _both_signs(model: Any) -> tuple[Array, Array]:
    weights, offsets = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        # Two classes come as one row, the log-odds of the second.
        weights = np.concatenate([-0.5 * weights, 0.5 * weights])
        offsets = np.concatenate([-0.5 * offsets, 0.5 * offsets])
    return weights, offsets


class _Choices:
    """The labelled items at `which`, stacked: the conditional logit's loss and its minimiser."""

    def __init__(
        self, items: list[Array], labels: NDArray[np.int64], which: NDArray[np.int64]
    ) -> None:
        sizes = np.array([len(items[i]) for i in which])
        self.rows = np.concatenate([items[i] for i in which])
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.owners = np.repeat(np.arange(len(which)), sizes)
        self.gold = self.starts + labels[which]

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Σ −log π(gold) and its (d,) gradient."""
        scores = self.rows @ theta
        scores -= np.maximum.reduceat(scores, self.starts)[self.owners]
        policy = np.exp(scores)
        totals = np.add.reduceat(policy, self.starts)
        value = float(np.log(totals).sum() - scores[self.gold].sum())
        policy /= totals[self.owners]
        policy[self.gold] -= 1.0
        return value, policy @ self.rows

    def fit(self, strength: float, start: Array) -> Array:
        """The θ that minimises C·loss + ½‖θ‖², from `start`."""
        from scipy.optimize import minimize

        scale = 1.0 / (strength * len(self.starts))

        def objective(theta: Array) -> tuple[float, Array]:
            value, gradient = self.loss(theta)
            value = strength * value + 0.5 * float(theta @ theta)
            return scale * value, scale * (strength * gradient + theta)

        options = {"maxiter": 5000, "gtol": 1e-6, "ftol": 1e-12}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        theta: Array = found.x
        return theta
