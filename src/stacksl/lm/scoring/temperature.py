"""The temperature of a language model's scores: by their entropy before any label, then by labels.

Scores of options say an order; how far the best is ahead means nothing until they are divided by a
temperature T. What reads probabilities (the gate, the KL reference, cross-entropy) needs one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stacksl.core.blocks import Array

_ENTROPY = 0.5  # of log K: between uniform and certain
_WIDEST = 12.0  # |log T| at most


def prior_temperature(scores: Sequence[Array]) -> float:
    """T at which the mean entropy of softmax(s / T) is half of log K, before any label is known.

    A prior between a uniform guess, log K, and certainty, 0. Where no T reaches it, since most
    items have equal scores, T is 1.

    Args:
        scores: (K,) an unlabelled item, one item at least.

    >>> round(prior_temperature([np.array([2.0, 0.0]), np.array([0.0, 4.0])]), 2)
    1.38
    """
    padded = _padded(scores)
    wanted = _ENTROPY * float(np.mean([math.log(len(each)) for each in scores]))
    low, high = -_WIDEST, _WIDEST
    if not _entropy(padded, low) <= wanted <= _entropy(padded, high):
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _entropy(padded, middle) < wanted else (low, middle)
    return math.exp((low + high) / 2)


def fitted_temperature(scores: Sequence[Array], gold: Sequence[int], prior: float) -> float:
    """T of the smallest Σ -log softmax(s / T)[gold] + ½ log²(T / T₀), by its logarithm.

    The second term is a normal prior on log T of standard deviation 1, so that a few labels, all
    of them right or none, leave T finite; from some ten labels on it weighs little.

    Args:
        scores: (K,) a labelled item, of a model that was not trained on these labels.
        gold: the index of each one's label.
        prior: T₀; the result where there is no label.

    Source: Guo et al. (2017), "On Calibration of Modern Neural Networks".

    >>> fitted_temperature([np.array([2.0, 0.0])] * 4, [0, 0, 0, 1], 1.0) > 1.2
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    if not len(scores):
        return prior
    padded, rows = _padded(scores), np.arange(len(scores))

    def loss(shift: float) -> float:
        logs = log_softmax(padded / (prior * math.exp(shift)), axis=1)
        return float(0.5 * shift**2 - logs[rows, gold].sum())

    found = minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded")
    return prior * math.exp(float(found.x))


def _entropy(padded: Array, log_temperature: float) -> float:
    """The mean entropy at a temperature, nats."""
    from scipy.special import entr, log_softmax

    logs = log_softmax(padded / math.exp(log_temperature), axis=1)
    return float(entr(np.exp(logs)).sum(1).mean())


def _padded(scores: Sequence[Array]) -> Array:
    """Scores less their greatest as (n, K), -inf behind an item's own."""
    found = np.full((len(scores), max(map(len, scores))), -np.inf)
    for row, own in zip(found, scores, strict=True):
        row[: len(own)] = own - own.max()
    return found
