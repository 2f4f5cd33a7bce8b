"""The final model, refitted on all bought labels at the end of a run (`docs/paper.md`, D15).

A mixture of several models has a temperature of each and weights, both by held-out log-loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, PairBlock, SharedBlock
from stacksl.core.heads.logistic import Fit, Rows, Strength, fit_classes, fit_pairs
from stacksl.core.losses import softmax
from stacksl.core.scorers.rows import all_scores

FLOOR = 0.02  # every probability counts as (1 − FLOOR)·p + FLOOR/K: no held-out label decides alone
TEMPERATURES = np.exp(np.linspace(-2.0, 2.0, 41))
PULL = 0.02  # nats per label and square of log temperature: few labels leave it near 1
STEPS = 200  # of the fit of a mixture's weights


@dataclass(frozen=True, slots=True, eq=False)
class ClassHead:
    """Multinomial logistic regression: π(x) ∝ exp(coefficients_x · h + intercepts_x).

    `coefficients` is (K, d), `intercepts` (K,). `strength` is the C it was fitted with, and the
    held-out losses of the others.
    """

    coefficients: Array
    intercepts: Array
    strength: Strength

    def logits(self, h: NDArray[Any]) -> Array:
        """(n, K) logits of the rows of `h`, (n, d)."""
        logits: Array = np.asarray(h, dtype=np.float64) @ self.coefficients.T
        logits += self.intercepts
        return logits

    def probabilities(self, block: Block) -> Array:
        """(n, K) probabilities of the classes."""
        assert isinstance(block, SharedBlock)
        return _policies(self.logits(block.h))

    def alone(self, h: NDArray[Any]) -> Array:
        """The probabilities of the rows of `h`, each computed alone."""
        logits = np.vecdot(h.astype(np.float64)[:, None], self.coefficients) + self.intercepts
        return _policies(logits)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays for `restore_head`."""
        return {
            "coefficients": self.coefficients.copy(),
            "intercepts": self.intercepts.copy(),
            "strength": np.array([self.strength.value, *self.strength.tried]),
        }


@dataclass(frozen=True, slots=True, eq=False)
class MixedHead:
    """A mixture of class heads: π(x) = Σ_m weights_m · π_m(x).

    Temperatures are a part of the heads' coefficients and intercepts.
    """

    heads: tuple[ClassHead, ...]
    weights: Array

    def probabilities(self, block: Block) -> Array:
        """(n, K) probabilities of the classes."""
        return self._mixed([head.probabilities(block) for head in self.heads])

    def alone(self, h: NDArray[Any]) -> Array:
        """The probabilities of the rows of `h`, each computed alone."""
        return self._mixed([head.alone(h) for head in self.heads])

    def _mixed(self, policies: list[Array]) -> Array:
        mixed: Array = self.weights[0] * policies[0]
        for weight, policy in zip(self.weights[1:], policies[1:], strict=True):
            mixed += weight * policy
        return mixed

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays for `restore_head`."""
        return {
            "coefficients": np.stack([head.coefficients for head in self.heads]),
            "intercepts": np.stack([head.intercepts for head in self.heads]),
            "strength": np.array([head.strength.value for head in self.heads]),
            "weights": self.weights.copy(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class PairHead:
    """Conditional logit: π(x | z) ∝ exp(offset_x + thetaᵀφ(z, x)) over an item's own candidates.

    `theta` is (d,); the offset is the item's `PairFeatures.offset`, 0 where it has none.
    `strength` is as in `ClassHead`.
    """

    theta: Array
    strength: Strength

    def probabilities(self, block: Block) -> list[Array]:
        """One (K_i,) array an item."""
        assert isinstance(block, PairBlock)
        return [softmax(all_scores(self.theta, inputs)) for inputs in block]

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays for `restore_head`."""
        return {
            "theta": self.theta.copy(),
            "strength": np.array([self.strength.value, *self.strength.tried]),
        }


Head: TypeAlias = ClassHead | MixedHead | PairHead
"""A final model: probabilities, which add to 1, of the candidates of each item of a block."""


def restore_head(state: Mapping[str, NDArray[Any]]) -> Head:
    """The head with this `state`, bit for bit."""
    if "weights" in state:
        arrays = zip(state["coefficients"], state["intercepts"], state["strength"], strict=True)
        heads = tuple(ClassHead(np.array(a), np.array(b), Strength(float(c))) for a, b, c in arrays)
        return MixedHead(heads, np.array(state["weights"]))
    value, *tried = (float(number) for number in state["strength"])
    strength = Strength(value, tuple(tried))
    if "theta" in state:
        return PairHead(np.array(state["theta"]), strength)
    return ClassHead(np.array(state["coefficients"]), np.array(state["intercepts"]), strength)


def refit(
    block: Block,
    labels: NDArray[np.int64],
    theta: Array,
    seed: int = 0,
    tune: bool = True,
    fit: Fit | None = None,
) -> Head | None:
    """The final model of the labeled items `block` with gold indices `labels`, (n,).

    Class heads: a logistic regression, as `fit` says where it is given; `theta` is the online head,
    (K, d), which gives the logit of a class without examples. Pair features: a
    conditional logit around the block's `base`, if it has one. See `refits` for C, which `tune`
    lets be chosen (from 60 labels up) by folds drawn from `seed`.

    None where the labels cannot carry a model: fewer than two classes, or no labeled pair item.
    """
    if isinstance(block, SharedBlock):
        fit = fit or (Fit(None) if tune else Fit())
        fitted = fit_classes(block.h, labels, seed, fit)
        if fitted is None:
            return None
        classes_seen, weights, offsets, strength = fitted
        coefficients, intercepts = theta.copy(), np.zeros(len(theta))
        coefficients[classes_seen], intercepts[classes_seen] = weights, offsets
        return ClassHead(coefficients, intercepts, strength)
    pairs = fit_pairs(block.phi, block.offsets, labels, seed, tune, block.base)
    return None if pairs is None else PairHead(*pairs)


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


def _policies(logits: Array) -> Array:
    """The softmax of each row, in place."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits
