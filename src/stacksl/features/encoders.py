"""The protocol of text encoders, which feature maps are built on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError

Progress: TypeAlias = Callable[[int, int], None]
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(Protocol):
    """What turns a text into a vector of norm 1, or 0 where it finds no known token.

    The vector of a text depends on that text, the weights and the fitted state alone: never on
    the other texts of its batch.

    Attributes:
        spec: what a user writes to get it, such as `hashing`.
        bias: the constant column that class features get, 0 for none.
    """

    spec: str
    bias: float

    @property
    def truncated(self) -> int:
        """How many of the distinct texts encoded so far were truncated."""

    @property
    def identity(self) -> str:
        """A hash of the weights and settings, without anything fitted."""

    @property
    def dim(self) -> int:
        """The number of columns."""

    def fit(self, texts: Sequence[str]) -> None:
        """Fit on unlabeled `texts`; an encoder may need nothing."""
        return

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, dim) of `texts`; `progress` is called with (done, n)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The fitted state as arrays; empty where there is none."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` of an encoder with the same identity returned."""
        return


def readable(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer takes, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit(rows: NDArray[np.float64]) -> Vectors:
    """The rows (n, d) divided by their norms, which are at most 1 after rounding to float32."""
    length = np.sqrt(np.sum(rows * rows, axis=1, keepdims=True))
    scale = np.where(length > 0.0, length, 1.0) * (1.0 + 2.0**-22)  # rounding stays below 1
    vectors: Vectors = (rows / scale).astype(np.float32)
    return vectors


def in_batches(lengths: Sequence[int], rows: Callable[[int], int]) -> list[tuple[int, list[int]]]:
    """Batches of texts of one length, as the places of their texts.

    Lengths alternate in their proportion, so that the pace so far is the pace to expect.

    Args:
        rows: how many texts of a length make a batch; below 1 is 1.

    >>> in_batches([5, 9, 5, 5], lambda length: 2)
    [(5, [0, 2]), (9, [1]), (5, [3])]
    """
    by_length: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        by_length.setdefault(length, []).append(index)
    batches = []
    for length, indices in by_length.items():
        size = max(1, rows(length))
        for start in range(0, len(indices), size):
            batches.append((start / len(indices), length, indices[start : start + size]))
    batches.sort(key=lambda batch: batch[:2])
    return [(length, indices) for _, length, indices in batches]


def encoder_threads() -> int | None:
    """The threads that `$STACKSL_ENCODER_THREADS` names; None where it names none.

    Raises:
        FeatureError: it names no number of threads.
    """
    text = os.environ.get("STACKSL_ENCODER_THREADS")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise FeatureError(
            f"STACKSL_ENCODER_THREADS should be an integer >= 1, got '{text}': correct it"
        )
    return int(text)
