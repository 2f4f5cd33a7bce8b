"""Gradient steps at a rate that decays, and their running mean: the stronger forms of `sgd`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.game.inputs import Array


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
