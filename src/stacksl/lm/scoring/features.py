"""φ of a language model: pooled states of an item's options to rows of norm 1.

The states of all items point nearly the same way, and only the differences between an item's
options say which is right: states are centered per item, then projected to the directions in which
options differ most on unlabeled items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import FeatureError

Rows = NDArray[np.float32]

_ITEMS_AT_ONCE = 256
_FITTED = 512  # unlabeled items on which directions and the first temperature are fixed


def to_fit_on(count: int) -> range:
    """The places of at most 512 of `count` items, evenly spread."""
    return range(0, count, max(1, -(-count // _FITTED)))


class StateMap:
    """The map from the (K, h) pooled states of an item to its (K, d) features.

    φ_i = B ᵀ(h_i - h̄) / ‖B ᵀ(h_i - h̄)‖ with h̄ the mean of the item's own K states and B (h, d)
    the leading right singular vectors of the centered states that `fit` saw.

    A row depends on its own item alone, bit for bit: items are projected one at a time.

    Args:
        dim: d, the directions wanted; the state's size h where that is less.

    Source: design of this package; centering per item is what a softmax over the item's options
        does to its scores anyway.
    """

    def __init__(self, dim: int = 128) -> None:
        self._wanted_dim = dim
        self._basis: Array | None = None

    @property
    def dim(self) -> int:
        """d, the columns of a row; before `fit` those asked for."""
        return self._wanted_dim if self._basis is None else self._basis.shape[1]

    @property
    def fingerprint(self) -> str:
        """The BLAKE2b of what was fitted, in hex: equal ones give equal features."""
        digest = hashlib.blake2b(b"stacksl state map 2", digest_size=32)
        for name, array in sorted(self.state().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def fit(self, states: Sequence[NDArray[Any]], ids: Sequence[str]) -> None:
        """Fit the directions on unlabeled items.

        Args:
            states: an array (K, h) an item, one item at least.
            ids: the items' names for messages.

        Raises:
            FeatureError: a state is not finite.
        """
        size = np.shape(states[0])[-1]
        moment = np.zeros((size, size))
        for start in range(0, len(states), _ITEMS_AT_ONCE):
            numbers = range(start, min(start + _ITEMS_AT_ONCE, len(states)))
            block = np.concatenate([_centered(states[n], ids[n]) for n in numbers])
            moment += block.T @ block
        self._basis = _leading(moment, min(self._wanted_dim, size))

    def transform(self, states: Sequence[NDArray[Any]], ids: Sequence[str]) -> list[Rows]:
        """Features (K, d) in float32 an item, rows of norm 1; arguments as of `fit`.

        Raises:
            FeatureError: a state is not finite.
        """
        basis, rows = self._fitted(), list[Rows]()
        for item_states, name in zip(states, ids, strict=False):
            projected = _centered(item_states, name) @ basis
            norms = np.sqrt(np.einsum("ij,ij->i", projected, projected))[:, None]
            rows.append((projected / np.where(norms > 0, norms, 1.0)).astype(np.float32))
        return rows

    def state(self) -> dict[str, NDArray[Any]]:
        """What `fit` found: the directions (h, d) in float64."""
        return {"directions": self._fitted().copy()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take back what `state` gave."""
        self._basis = state["directions"]

    def _fitted(self) -> Array:
        assert self._basis is not None, "a map is fitted or restored before it is used"
        return self._basis


def _centered(states: NDArray[Any], name: str) -> Array:
    """The states (K, h) of an item less their mean, in float64."""
    values = np.asarray(states, dtype=np.float64)
    if not np.isfinite(values).all():
        raise FeatureError(
            f"the states of item '{name}' should be finite and hold NaN or infinity: load the"
            " model in another dtype, or take weights that were trained to the end"
        )
    return np.asarray(values - values.mean(axis=0))


def _leading(moment: Array, dim: int) -> Array:
    """Eigenvectors (h, dim) of the largest eigenvalues, the largest entry of each positive."""
    _, vectors = np.linalg.eigh(moment)
    basis = np.ascontiguousarray(vectors[:, ::-1][:, :dim])
    largest = np.abs(basis).argmax(axis=0)
    signs = np.where(basis[largest, np.arange(dim)] < 0, -1.0, 1.0)
    return np.asarray(basis * signs)
