"""The losses of the algorithms as functions of the scores, with their gradients.

They depend on scores alone, so pair features and class heads share them: with s_x = θᵀφ(z, x) a
gradient g over the scores becomes Σ_x g_x φ(z, x) over θ. Every loss gives (value, gradient), the
value in nats and the gradient (m,) with respect to the scores.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.gates.rules import TIE

Reading = Literal["none", "literal", "scale"]


def log_softmax(scores: Array) -> Array:
    """The logarithm of the softmax, s_x − log Σ_y exp s_y, (m,); finite wherever `scores` are."""
    shifted = scores - scores.max()
    normalized: Array = shifted - np.log(np.exp(shifted).sum())
    return normalized


def softmax(scores: Array) -> Array:
    """π(x) = exp s_x / Σ_y exp s_y for `scores`, (m,).

    >>> softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    weights = np.exp(scores - scores.max())
    share: Array = weights / weights.sum()
    return share


def cross_entropy(scores: Array, gold: int) -> tuple[float, Array]:
    """ℓ = −log π(x*) with its gradient π − e_{x*}; `gold` is the position of x* in `scores`.

    Source: Algorithm 1, the loss over candidates.
    """
    logs = log_softmax(scores)
    gradient = np.exp(logs)
    gradient[gold] -= 1.0
    return float(-logs[gold]), gradient


def kl(scores: Array, reference_scores: Array) -> tuple[float, Array]:
    """KL(π ‖ π_ref) = Σ π log(π / π_ref), with gradient π·(log(π / π_ref) − KL).

    `scores` and `reference_scores` are (m,); the reference is held fixed. Value and gradient are
    0 where both policies are the same.

    Source: Algorithm 1, the update; Algorithm 2, the KL-only step.
    """
    logs = log_softmax(scores)
    ratio = logs - log_softmax(reference_scores)
    policy = np.exp(logs)
    value = float(policy @ ratio)
    return value, policy * (ratio - value)


def above(loss: float, level: float) -> bool:
    """Whether a loss is above a clip level, both in nats, by more than rounding.

    A level that is a quantile of losses is equal to one of them up to the last bits
    (`docs/paper.md`, D17).
    """
    return loss > level + TIE * (1.0 + level)


def clip(value: float, gradient: Array, level: float, reading: Reading) -> tuple[float, Array]:
    """The loss ℓ = `value` clipped at ρ = `level` nats, and its gradient.

    `level` may be 0, where it is a quantile of losses that round to 0; the result is then 0.

    * `literal`, as printed: min(ℓ, ρ). Above ρ the gradient is zero, so nothing is learned from
      the hardest items.
    * `scale`: the gradient times min(1, ρ/ℓ), which is the gradient of ℓ up to ρ and of
      ρ·(1 + log(ℓ/ρ)) above it.
    * `none`: unchanged.

    Source: Algorithm 1, loss clipping. Deviation: `scale` (`docs/paper.md`, D10); the printed
    max(ℓ, 0) is vacuous for a cross-entropy and left out.
    """
    if reading == "none" or not above(value, level):
        return value, gradient
    if reading == "literal" or level == 0.0:
        return level, np.zeros_like(gradient)
    return level * (1.0 + float(np.log(value / level))), gradient * (level / value)
