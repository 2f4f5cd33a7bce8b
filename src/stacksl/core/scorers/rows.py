"""Helpers of all scorers: scores, steps of θ by rows, radius and saved state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures
from stacksl.errors import FeatureError


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


def restored(state: Mapping[str, NDArray[Any]], name: str, template: NDArray[Any]) -> NDArray[Any]:
    """A writable copy of `state[name]`, which must have the shape of `template`.

    Raises:
        FeatureError: the state is of a scorer with other dimensions.
    """
    if name not in state or state[name].shape != template.shape:
        actual = f"shape {state[name].shape}" if name in state else "nothing"
        raise FeatureError(
            f"the saved scorer should hold '{name}' of shape {template.shape}, but holds {actual}; "
            "use the scorer and the feature map it was saved with"
        )
    return np.array(state[name], dtype=template.dtype)


@lru_cache(maxsize=64)
def _everything(count: int) -> tuple[int, ...]:
    return tuple(range(count))
