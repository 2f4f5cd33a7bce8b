"""Examples whose class is believed rather than bought: class names, and labels spread over a graph.

They stand beside the bought labels in a refit of class heads, each with a weight and a
distribution over the classes, and nowhere else: no matrix and no count ever sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import FeatureError

Floats: TypeAlias = NDArray[np.float32]

_AT_ONCE = 4096  # rows of a matrix product: the policy of a block stays small


@dataclass(frozen=True, slots=True, eq=False)
class Soft:
    """n examples: `h` is (n, d), `targets` (n, K) ≥ 0, `weight` of each, (n,), in labels.

    An example adds −weight·Σ_x target_x·log π(x) to the loss, so that one of weight 1 with a
    one-hot target counts as a bought label.

    Raises:
        FeatureError: the three do not have the same number of rows.
    """

    h: NDArray[Any]
    targets: NDArray[Any]
    weight: NDArray[Any]

    def __post_init__(self) -> None:
        if not len(self.h) == len(self.targets) == len(self.weight):
            raise FeatureError(
                "soft examples should have features, targets and a weight each, but there are "
                f"{len(self.h)}, {len(self.targets)} and {len(self.weight)} of them"
            )

    @property
    def classes(self) -> int:
        """K, the columns of the targets."""
        return int(self.targets.shape[1])

    def named(self) -> NDArray[np.int64]:
        """The classes that some example believes in, in ascending order."""
        return np.flatnonzero((self.targets * self.weight[:, None]).sum(axis=0) > 0)


def together(*parts: Soft) -> Soft:
    """All examples of `parts`, in their order."""
    return Soft(
        np.concatenate([part.h for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


class SoftLoss:
    """The loss of soft examples under parameters (k, d + 1), the intercept last.

    `columns` are the k classes fitted. It is computed in float32, four times as fast on many rows;
    the sum over blocks is taken in float64.
    """

    def __init__(self, soft: Soft, columns: NDArray[np.int64]) -> None:
        self.rows: Floats = np.asarray(soft.h, dtype=np.float32)
        weight = np.asarray(soft.weight, dtype=np.float32)[:, None]
        self.targets: Floats = np.asarray(soft.targets[:, columns], dtype=np.float32) * weight
        self.mass: Floats = self.targets.sum(axis=1)
        self.size = float(self.mass.sum(dtype=np.float64))

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Σ −weight·target·log π, and its gradient, (k, d + 1)."""
        narrow = np.asarray(theta, dtype=np.float32)
        total, gradient = 0.0, np.zeros_like(theta)
        for start in range(0, len(self.rows), _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            total += self._block(block, narrow, gradient)
        return total, gradient

    def _block(self, block: slice, theta: Floats, gradient: Array) -> float:
        rows, targets, mass = self.rows[block], self.targets[block], self.mass[block]
        scores = rows @ theta[:, :-1].T
        scores += theta[:, -1]
        scores -= scores.max(axis=1, keepdims=True)
        golden = float(np.einsum("nk,nk->", scores, targets, dtype=np.float64))
        np.exp(scores, out=scores)
        totals = scores.sum(axis=1)
        scores *= (mass / totals)[:, None]
        scores -= targets
        gradient[:, :-1] += scores.T @ rows
        gradient[:, -1] += scores.sum(axis=0, dtype=np.float64)
        return float((mass * np.log(totals)).sum(dtype=np.float64)) - golden
