"""Estimates during a stream, with their errors and certificates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.confidence import ConfidenceSet, radius
from stacksl_lab.engines import StreamResult

_CHUNK = 500  # rounds whose images are held at a time


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """θ and V⁻¹ before round 1 and after every round in which they moved, n of them in all.

    Attributes:
        thetas: (n, d).
        inverses: V⁻¹, (n, d, d).
        before: which of them round t was played under, (T,).
        learned: labels in V before round t, (T,).
    """

    thetas: Array
    inverses: Array
    before: NDArray[np.int64]
    learned: NDArray[np.int64]

    def errors(self, truth: Array) -> Array:
        """‖θ − θ*‖ in V before each round, (T,), for θ* = `truth`, (d,)."""
        offsets = self.thetas - truth
        images = np.linalg.solve(self.inverses, offsets[:, :, None])[:, :, 0]
        norms: Array = np.sqrt(np.einsum("ni,ni->n", offsets, images))[self.before]
        return norms

    def certificates(self, features: Array, choices: NDArray[np.int64], reaches: Array) -> Array:
        """max(0, g_t) of each round, (T,): at most this is lost where θ* is within the radius.

        g_t = max over x ≠ x̂ of s_x − s_x̂ + radius_t ‖φ_x − φ_x̂‖ in V⁻¹, under the estimate
        before the round.

        Args:
            features: φ, (T, K, d).
            choices: x̂, (T,).
            reaches: radius_t, (T,) (score units).
        """
        return np.concatenate(
            [
                self._certified(features[part], choices[part], reaches[part], self.before[part])
                for start in range(0, len(choices), _CHUNK)
                for part in [slice(start, start + _CHUNK)]
            ]
        )

    def _certified(
        self, rows: Array, choices: NDArray[np.int64], reaches: Array, before: NDArray[np.int64]
    ) -> Array:
        pairs = rows - np.take_along_axis(rows, choices[:, None, None], axis=1)
        leads = np.einsum("tki,ti->tk", pairs, self.thetas[before])
        squares = np.einsum("tki,tki->tk", pairs @ self.inverses[before], pairs)
        gaps = leads + reaches[:, None] * np.sqrt(np.maximum(squares, 0.0))
        best: Array = gaps.max(axis=1)  # 0 at the choice itself, so never below it
        return best


def estimates(played: StreamResult, ridge: float, *, moves: NDArray[np.bool_]) -> Estimates:
    """The estimates of a stream that was played with a mark after every round.

    Args:
        played: its result, with V kept.
        ridge: λ, from which V starts.
        moves: (T,) whether θ or V moved in the round.
    """
    dim = len(played.theta)
    marks = [mark for mark, moved in zip(played.marks, moves, strict=True) if moved]
    thetas = np.array([np.zeros(dim), *(mark.theta for mark in marks)])
    inverses = np.array([np.eye(dim) / ridge, *(_matrix(mark.gram_inv) for mark in marks)])
    before = np.concatenate([[0], np.cumsum(moves)[:-1]])
    learned = np.concatenate([[0], np.cumsum(played.asked)[:-1]])
    return Estimates(thetas, inverses, before, learned)


def _matrix(gram_inv: Array | None) -> Array:
    assert gram_inv is not None
    return gram_inv


def holds(trust: ConfidenceSet, truth: Array, center: Array, reach: float) -> bool:
    """Whether ‖truth − center‖_V ≤ `reach`, for (d,) vectors: coverage, one round of it."""
    offset = truth - center
    square = float(offset @ np.linalg.solve(trust.gram_inv, offset))
    return square <= reach * reach


def radii(
    counts: NDArray[np.int64], *, noise: float, dim: int, ridge: float, delta: float, bound: float
) -> Array:
    """The confidence radius at each of `counts`, (T,), labels or rounds; `bound` is S."""
    values, places = np.unique(counts, return_inverse=True)
    table = [radius(noise, dim, int(count), ridge, delta, bound) for count in values]
    all_radii: Array = np.array(table)[places]
    return all_radii
