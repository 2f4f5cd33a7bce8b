"""Log-likelihoods of options to scores s, and scores to what a softmax takes, s / temperature.

Which option wins depends on how its length is paid for; no rule is best everywhere, so an
evaluation shows all four. Scores say an order; how far the best is ahead means nothing until they
are divided by a temperature, which entropy fixes before any label, and then the labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from stacksl.core.blocks import Array
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.paths import Tensor, sent

Normalization: TypeAlias = Literal["token_mean", "sum", "char_mean", "pmi"]

NORMALIZATIONS: dict[Normalization, str] = {
    "token_mean": "log p(option | prompt) / tokens: the paper's",
    "sum": "log p(option | prompt): lm-eval's acc",
    "char_mean": "log p(option | prompt) / characters: lm-eval's acc_norm",
    "pmi": "log p(option | prompt) - log p(option): lm-eval's acc_mutual_info",
}


def normalized(
    sums: Sequence[Tensor],
    items: Sequence[TokenItem],
    kind: Normalization = "token_mean",
    *,
    alone: Sequence[Tensor] | None = None,
    temperature: float = 1.0,
) -> list[Tensor]:
    """Scores of every option, s / temperature: a tensor (k,) an item; gradients pass through.

    Args:
        sums: log p(option | prompt), a tensor (k,) an item.
        items: their token rows; an option that was cut counts the tokens it kept.
        kind: `token_mean`, `sum`, `char_mean` (characters of the candidate as written, without the
            delimiter) or `pmi`.
        alone: log p(option) of the same options; `pmi` needs them.
        temperature: what the scores are divided by, above 0.

    Source: the paper's experiments, "length-normalized per-choice score" (token mean); Holtzman et
        al. (2021), "Surface Form Competition" (pmi).
    """
    if kind == "pmi":
        assert alone is not None
        pairs = zip(sums, alone, strict=True)
        return [(value - premise.to(value.device)) / temperature for value, premise in pairs]
    lengths = [divisors(item, kind) for item in items]
    return [
        value / (sent(length, value.device).to(value.dtype) * temperature)
        for value, length in zip(sums, lengths, strict=True)
    ]


def divisors(item: TokenItem, kind: Normalization) -> list[float]:
    """What the log-likelihood of each option is divided by; 1 for `sum` and `pmi`."""
    if kind == "token_mean":
        return [float(len(option)) for option in item.options]
    if kind == "char_mean":
        return [float(length) for length in item.lengths]
    return [1.0] * len(item.options)


_ENTROPY = 0.5  # of log K: between uniform and certain
_WIDEST = 12.0  # |log T| at most


def prior_temperature(scores: Sequence[Array]) -> float:
    """T at which the mean entropy of softmax(s / T) is half of log K, before any label is known.

    A prior between a uniform guess, log K, and certainty, 0. Where no T reaches it, since most
    items have equal scores, T is 1.

    Args:
        scores: (K,) an unlabeled item, one item at least.

    >>> round(prior_temperature([np.array([2.0, 0.0]), np.array([0.0, 4.0])]), 2)
    1.38
    """
    padded = _padded(scores)
    target = _ENTROPY * float(np.mean([math.log(len(row)) for row in scores]))
    low, high = -_WIDEST, _WIDEST
    if not _entropy(padded, low) <= target <= _entropy(padded, high):
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _entropy(padded, middle) < target else (low, middle)
    return math.exp((low + high) / 2)


def fitted_temperature(scores: Sequence[Array], gold: Sequence[int], prior: float) -> float:
    """T of the smallest Σ -log softmax(s / T)[gold] + ½ log²(T / T₀), by its logarithm.

    The second term is a normal prior on log T of standard deviation 1, so that a few labels, all
    of them right or none, leave T finite; from some ten labels on it weighs little.

    Args:
        scores: (K,) a labeled item, of a model that was not trained on these labels.
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

    minimum = minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded")
    return prior * math.exp(float(minimum.x))


def calibrated_loss(scores: Sequence[Array], gold: Sequence[int]) -> float:
    """The mean -log softmax(s / T)[gold] at T fitted to the same labels, nats.

    It compares normalizations, whose scores have different scales.

    Args:
        scores: (K,) a labeled item, one item at least, of a model not trained on these labels.
        gold: the index of each one's label.
    """
    from scipy.special import log_softmax

    scale = fitted_temperature(scores, gold, prior_temperature(scores))
    logs = log_softmax(_padded(scores) / scale, axis=1)
    return -float(logs[np.arange(len(scores)), gold].mean())


def _entropy(padded: Array, log_temperature: float) -> float:
    from scipy.special import entr, log_softmax

    logs = log_softmax(padded / math.exp(log_temperature), axis=1)
    return float(entr(np.exp(logs)).sum(1).mean())


def _padded(scores: Sequence[Array]) -> Array:
    """Scores less their greatest as (n, K), -inf behind an item's own."""
    padded = np.full((len(scores), max(map(len, scores))), -np.inf)
    for row, item_scores in zip(padded, scores, strict=True):
        row[: len(item_scores)] = item_scores - item_scores.max()
    return padded
