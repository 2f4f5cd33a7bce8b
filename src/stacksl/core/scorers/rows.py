"""Helpers of all scorers: scores, and steps of θ by rows."""

from __future__ import annotations

from functools import lru_cache

from stacksl.core.blocks import Array, Inputs, PairFeatures


def all_scores(theta: Array, inputs: Inputs) -> Array:
    """Scores of all K candidates, (K,): offset_x + θᵀφ(z, x), the offset 0 where there is none.

    `theta` is (d,) for pair features, (K, d) for class heads.
    """
    if isinstance(inputs, PairFeatures):
        scores: Array = inputs.phi @ theta
        return scores if inputs.offset is None else scores + inputs.offset
    scores = theta @ inputs.h
    return scores


def presented_scores(
    theta: Array, inputs: PairFeatures, presented: tuple[int, ...], rows: Array
) -> Array:
    """Scores of the presented candidates, (m,), whose φ are `rows`, (m, d)."""
    scores: Array = rows @ theta
    return scores if inputs.offset is None else scores + pick(inputs.offset, presented)


def pick(values: Array, presented: tuple[int, ...]) -> Array:
    """The entries or rows of `values`, one per candidate, of the `presented`; perhaps a view."""
    return values if presented == _everything(len(values)) else values[list(presented)]


def add_rows(theta: Array, inputs: Inputs, presented: tuple[int, ...], coefficients: Array) -> None:
    """θ ← θ + Σ_x c_x φ(z, x) in place, over the presented x with `coefficients` c, (m,)."""
    if isinstance(inputs, PairFeatures):
        theta += coefficients @ pick(inputs.phi, presented)
    else:
        theta[list(presented)] += coefficients[:, None] * inputs.h


@lru_cache(maxsize=64)
def _everything(count: int) -> tuple[int, ...]:
    return tuple(range(count))
