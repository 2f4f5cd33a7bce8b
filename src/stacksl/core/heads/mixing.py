"""The mixture of several models: a temperature of each, and weights, by held-out log-loss.

Every probability counts as (1 − FLOOR)·p + FLOOR/K while these are fitted, so that no held-out
label decides alone.
"""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.heads.logistic import Rows

FLOOR = 0.02
TEMPERATURES = np.exp(np.linspace(-2.0, 2.0, 41))
PULL = 0.02  # nats per label and square of log temperature: few labels leave it near 1
STEPS = 200


def tempered(logits: Array, gold: Rows, weight: Array) -> tuple[float, Array]:
    """The temperature of one model, and the probability of each held-out label under it, (n,).

    It has the least weighted log-loss, with a penalty on log² of the temperature.

    Args:
        logits: (n, K) of held-out items.
        gold: their labels, (n,).
        weight: of each, (n,); only their ratios count.
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    share, best = weight / weight.sum(), (np.inf, 1.0, np.zeros(len(gold)))
    for temperature in TEMPERATURES:
        policies = np.exp(shifted / temperature)
        right = policies[np.arange(len(gold)), gold] / policies.sum(axis=1)
        right = (1.0 - FLOOR) * right + FLOOR / logits.shape[1]
        loss = float(PULL * np.log(temperature) ** 2 - share @ np.log(right))
        if loss < best[0]:
            best = loss, float(temperature), right
    return best[1], best[2]


def mixture_weights(right: Array, weight: Array, prior: Array) -> Array:
    """The weights of M models in their mixture, (M,), which add to 1.

    They maximize the weighted log-likelihood of held-out labels by expectation maximization, with
    labels that speak for each model from the start. The held-out labels count together as many as
    their effective size, (Σ weight)² / Σ weight² (Kish).

    Args:
        right: the probability of each held-out label under each model, (n, M).
        weight: of each label, (n,); only their ratios count.
        prior: the labels that speak for each model from the start, (M,).
    """
    counts = weight * weight.sum() / (weight @ weight)
    mixed: Array = prior / prior.sum()
    for _ in range(STEPS):
        shares = right * mixed
        shares /= shares.sum(axis=1, keepdims=True)
        mixed = (counts @ shares + prior) / (counts.sum() + prior.sum())
    return mixed
