"""Selections of a batch before any label, from a base model's scores and features.

Each takes arrays over n items and gives the rows to buy, in their order. They are pilots of
`language_model.py`, no choice of a run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def margin(policy: Array) -> Rows:
    """The items by how little the best option leads, (n,); `policy` is (n, K)."""
    best = np.sort(policy, axis=1)
    return np.argsort(best[:, -1] - best[:, -2], kind="stable")


def badge(policy: Array, phi: Array, count: int, draw: np.random.Generator) -> Rows:
    """`count` items by k-means++ on Σ_x (π(x) − [x is the best]) φ_x, the longest first.

    That is the gradient of −log π in θ of scores θᵀφ, (n, d), were the best option right. `phi` is
    (n, K, d).

    Source: Ash et al. (2020), "Deep batch active learning by diverse, uncertain gradient lower
    bounds".
    """
    residual = policy - np.eye(policy.shape[1])[np.argmax(policy, axis=1)]
    gradients = np.einsum("nk,nkd->nd", residual, phi)
    squares = np.einsum("nd,nd->n", gradients, gradients)
    rows = [int(np.argmax(squares))]
    away = np.full(len(policy), np.inf)  # squared distance to the nearest chosen item
    while len(rows) < count:
        from_last = squares + squares[rows[-1]] - 2 * gradients @ gradients[rows[-1]]
        away = np.minimum(away, np.maximum(from_last, 0.0))
        away[rows] = 0.0
        rows.append(int(draw.choice(len(away), p=away / away.sum())))
    return np.array(rows)


def disagreement(policy: Array, other: Array) -> Rows:
    """The items by the Jensen-Shannon divergence of two policies, (n, K), largest first."""
    mean = (policy + other) / 2
    apart = (policy * np.log(policy / mean) + other * np.log(other / mean)).sum(axis=1)
    return np.argsort(-apart, kind="stable")


def covering(prompts: NDArray[np.float32], doubt: Array, count: int) -> Rows:
    """`count` items that cover the prompts most, (n, e), weighted by doubt, (n,): a pool's rule.

    With equal doubts the typical ones of the densest regions are first.
    """
    from stacksl.core.heads.coverage import kernel_of, most_covering
    from stacksl.core.heads.spreading import neighbour_graph

    kernel = kernel_of(neighbour_graph(prompts))
    return np.array(most_covering(kernel, doubt, np.ones(len(doubt), bool), count))
