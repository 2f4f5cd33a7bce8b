"""What the policy tells of a round: its entropy, and the information that a label would bring."""

from __future__ import annotations

import numpy as np

from stacksl.game import measures, rules
from stacksl.game.engines.compiling import allocating, compiled, summed
from stacksl.game.engines.descent import policy_of
from stacksl.game.engines.judging import ENTROPY, INFORMATION
from stacksl.game.engines.plans import NEWTON, RIDGE, Plan
from stacksl.game.engines.rooms import Space
from stacksl.game.inputs import Array

__all__ = ["information", "shares", "told", "told_by_heads"]

_entropy_statistic = allocating(measures.entropy_statistic)


@compiled
def told(plan: Plan, space: Space, rows: Array, choice: int, rewarded: bool) -> float:
    """The statistic of `entropy` or `information` for pair features (nats); NaN for other gates.

    `space` holds the scores, and for `information` the widths and the images of the rows.
    `rewarded` says that a `ridge` learns from rewards, whose policy is a softmax.
    """
    if plan.gate not in (ENTROPY, INFORMATION):
        return np.nan
    if plan.gate == INFORMATION and plan.scorer != NEWTON:
        return float(space.widths[choice] * space.widths[choice])
    if plan.scorer == RIDGE and not rewarded:
        shares(space.scores, space.policy)
    else:
        policy_of(space.scores, space.powers, space.policy)
    if plan.gate == ENTROPY:
        return _entropy_statistic(space.policy)
    return information(rows, space.products, space.policy, space.mean, space.direction)


@compiled
def told_by_heads(plan: Plan, scores: Array, policy: Array, square: float) -> float:
    """The same for ridge class heads, of which `square` is the width squared; sets `policy`."""
    if plan.gate == ENTROPY:
        shares(scores, policy)
        return _entropy_statistic(policy)
    return square if plan.gate == INFORMATION else np.nan


@compiled
def shares(scores: Array, policy: Array) -> None:
    """Set `policy` to max(s, 0)/Σ max(s, 0), (m,), as `scorers.ridge.shares`."""
    total = 0.0
    for x in range(len(scores)):
        policy[x] = max(scores[x], 0.0)
        total += policy[x]
    for x in range(len(scores)):
        policy[x] = policy[x] / total if total > rules.TIE else 1.0 / len(scores)


@summed
def information(rows: Array, products: Array, policy: Array, apart: Array, against: Array) -> float:
    """tr(F H⁻¹) = Σ π_x ‖D_x‖² − ‖Σ π_x D_x‖² with D_x = φ_x − φ_i for the likeliest i.

    `products` is rows·H⁻¹; `apart` and `against` are room for Σ π_x D_x and its image, (d,).
    """
    likeliest = 0
    for x in range(len(policy)):
        if policy[x] > policy[likeliest]:
            likeliest = x
    for j in range(rows.shape[1]):
        apart[j], against[j] = 0.0, 0.0
    total = 0.0
    for x in range(len(policy)):
        square = 0.0
        for j in range(rows.shape[1]):
            step = rows[x, j] - rows[likeliest, j]
            image = products[x, j] - products[likeliest, j]
            square += step * image
            apart[j] += policy[x] * step
            against[j] += policy[x] * image
        total += policy[x] * square
    for j in range(rows.shape[1]):
        total -= apart[j] * against[j]
    return max(total, 0.0)
