"""Selections of a batch before any label, from a base model's scores and features.

`bought` gives what a cell of `language_model.py` buys by its gate's name. The others take arrays
over n items and give the rows to buy, in their order. All but margin and random are pilots, no
choice of a run.
"""

from __future__ import annotations

import numpy as np
from _refits import Task, lessons_of, refitted
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def bought(task: Task, gate: str, count: int, seed: int) -> NDArray[np.int64]:
    """The questions that a cell buys, in their order."""
    from stacksl.core.losses import softmax
    from stacksl.core.rng import generator
    from stacksl.lm.scoring.normalize import prior_temperature

    if gate == "random":
        return np.argsort(generator(seed, "pool/random").random(len(task.items)))[:count]
    scale = prior_temperature(task.pool)
    policy = np.array([softmax(each / scale) for each in task.pool])
    if gate == "badge":
        return badge(policy, task.states, count, generator(seed, "pool/badge"))
    if gate in ("typical", "typical-hashing"):
        prompts = task.prompts if gate == "typical" else task.words
        return covering(prompts, np.ones(len(policy)), count)
    if gate == "half":
        first = covering(task.prompts, np.ones(len(policy)), count // 2)
        order = margin(policy)
        return np.concatenate([first, order[~np.isin(order, first)]])[:count]
    if gate == "doubtful":
        best = np.sort(policy, axis=1)
        return covering(task.prompts, 1 - best[:, -1] + best[:, -2], count)
    order = margin(policy)
    if gate == "two":
        first = order[: count // 2]
        lessons, scale = lessons_of(task, first)
        _, model = refitted(lessons, len(first), {}, seed, scale)
        rest = np.setdiff1d(np.arange(len(policy)), first)
        anew = model.scores([task.items[row] for row in rest], "pmi")
        policy = np.array([softmax(each / scale) for each in anew])
        return np.concatenate([first, rest[margin(policy)]])[:count]
    if gate == "committee":
        first, near = order[: count // 2], order[count // 2 : 5 * (count // 2)]
        voices = voices_of(task, first, near, seed)
        return np.concatenate([first, near[disagreement(*voices)]])[:count]
    if gate == "disagreement":
        first = order[: count // 2]
        apart = disagreement(policy, head_of(task, first, seed))
        order = np.concatenate([first, apart[~np.isin(apart, first)]])
    return order[:count]


def head_of(task: Task, rows: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """What a linear head on the answers' states says of all questions after labels of `rows`."""
    from stacksl.core.heads.logistic import fit_pairs
    from stacksl.core.losses import softmax

    options = task.states.shape[1]
    offsets = np.arange(len(rows) + 1) * options
    phi = task.states[rows].reshape(-1, task.states.shape[2])
    theta, _ = fit_pairs(phi, offsets, task.gold[rows], seed, tune=True)
    return np.array([softmax(each @ theta) for each in task.states])


def voices_of(task: Task, first: Rows, near: Rows, seed: int) -> list[Array]:
    """What three adapters of other seeds, trained on `first`, say of the questions `near`.

    Only those of the next margins are asked, four for each to buy, since scoring all costs more
    than the refits.
    """
    from stacksl.core.losses import softmax

    lessons, scale = lessons_of(task, first)
    voices = []
    for member in (1, 2, 3):
        _, model = refitted(lessons, len(first), {}, seed + 10_000 * member, scale)
        scores = model.scores([task.items[row] for row in near], "pmi")
        voices.append(np.array([softmax(each / scale) for each in scores]))
    return voices


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


def disagreement(*policies: Array) -> Rows:
    """The items by the Jensen-Shannon divergence of policies, (n, K) each, largest first."""
    mean = sum(policies) / len(policies)
    apart = sum((each * np.log(each / mean)).sum(axis=1) for each in policies)
    return np.argsort(-np.asarray(apart), kind="stable")


def covering(prompts: NDArray[np.float32], doubt: Array, count: int) -> Rows:
    """`count` items that cover the prompts most, (n, e), weighted by doubt, (n,): a pool's rule.

    With equal doubts the typical ones of the densest regions are first.
    """
    from stacksl.core.heads.coverage import kernel_of, most_covering
    from stacksl.core.heads.spreading import neighbor_graph

    kernel = kernel_of(neighbor_graph(prompts))
    return np.array(most_covering(kernel, doubt, np.ones(len(doubt), bool), count).items)
