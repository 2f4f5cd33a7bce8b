"""Estimates after each label: the exact fit, and forms of gradient steps stronger than `sgd`.

The exact fit is the conditional logit, fitted again at growing counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import SettingsError

GROWTH = 1.1
"""The next fit has this many times the labels of the last: at worst so much of them is unused."""

_STEPS, _TOLERANCE = 500, 1e-8


def counts(labels: int, first: int = 10, growth: float = GROWTH) -> list[int]:
    """The label counts that are fitted: 1 to `first` one by one, then geometric, `labels` last.

    >>> counts(15, first=3, growth=1.5)
    [1, 2, 3, 5, 8, 12, 15]
    """
    found = list(range(1, min(first, labels) + 1))
    while found and found[-1] < labels:
        found.append(min(labels, max(found[-1] + 1, int(np.ceil(growth * found[-1])))))
    return found


def exact_estimates(
    features: Array, labels: NDArray[np.int64], ridge: float = 1.0
) -> tuple[list[int], Array]:
    """The counts that were fitted, and the estimate of each, (n, d).

    Args:
        features: φ of the labelled rounds in their order, (B, K, d).
        labels: their labels, (B,).
        ridge: as in `fit`.
    """
    grid = counts(len(labels))
    found = np.zeros((len(grid), features.shape[2]))
    theta = found[0]
    for place, count in enumerate(grid):
        theta = found[place] = fit(features[:count], labels[:count], ridge, theta)
    return grid, found


def fit(features: Array, labels: NDArray[np.int64], ridge: float, start: Array) -> Array:
    """The θ, (d,), that minimises Σ −log π_θ(label) + ½ ridge‖θ‖², by L-BFGS from `start`.

    Args:
        features: φ, (n, K, d).
        labels: (n,).
        ridge: the prior's precision; the first term alone has no minimum on few labels.
        start: (d,).

    Raises:
        SettingsError: the fit does not come to rest.
    """
    from scipy.optimize import minimize

    gold = features[np.arange(len(labels)), labels].sum(axis=0)
    options = {"maxiter": _STEPS, "gtol": _TOLERANCE, "ftol": 1e-14}
    found = minimize(
        _objective, start, (features, gold, ridge), jac=True, method="L-BFGS-B", options=options
    )
    if not found.success:
        raise SettingsError(f"the exact fit of {len(labels)} labels did not end: {found.message}")
    return np.asarray(found.x, dtype=np.float64)


def _objective(theta: Array, features: Array, gold: Array, ridge: float) -> tuple[float, Array]:
    """What `fit` minimises, a label, and its gradient; `gold` is the sum of the labels' φ, (d,)."""
    scores = features @ theta
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    value = float((top + np.log(total)).sum() - gold @ theta + 0.5 * ridge * theta @ theta)
    gradient = np.tensordot(weights / total, features, axes=2) - gold + ridge * theta
    return value / len(features), gradient / len(features)


def descent(features: Array, labels: NDArray[np.int64], rate: float, power: float) -> Array:
    """θ before and after each of n labels, (n + 1, d), from 0, by one step a label on its log-loss.

        θ_n = θ_{n−1} − rate n^(−power) ∇(−log π_θ(label_n))

    Args:
        features: φ of the labelled rounds in their order, (n, K, d).
        labels: (n,).
        rate: of the first step.
        power: 0 for a constant rate, 0.5 for one that falls with the square root.

    Source: Robbins and Monro (1951), A Stochastic Approximation Method.
    """
    found = np.zeros((len(labels) + 1, features.shape[2]))
    steps = rate * np.arange(1.0, len(labels) + 1.0) ** -power
    for n, (rows, gold, step) in enumerate(zip(features, labels, steps, strict=True)):
        scores = rows @ found[n]
        weights = np.exp(scores - scores.max())
        found[n + 1] = found[n] + step * (rows[gold] - weights @ rows / weights.sum())
    return found


def averaged(thetas: Array) -> Array:
    """The mean of the first 1, 2, … of `thetas`, (n, d).

    Source: Polyak and Juditsky (1992), Acceleration of Stochastic Approximation by Averaging.
    """
    means: Array = np.cumsum(thetas, axis=0) / np.arange(1.0, len(thetas) + 1.0)[:, None]
    return means
