"""Texts to vectors: the seam between feature maps and whatever reads the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Progress: TypeAlias = Callable[[int, int], None]
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(Protocol):
    """What turns a text into a vector of norm 1, or 0 where it finds nothing it knows.

    The vector of a text depends on that text, the weights and the fitted state alone: never on
    the texts beside it.

    Attributes:
        spec: what a user writes to get it, such as `hashing`.
        bias: the constant column that class features get, 0 for none.
    """

    spec: str
    bias: float

    @property
    def truncated(self) -> int:
        """How many of the distinct texts encoded so far were cut."""

    @property
    def identity(self) -> str:
        """A hash of the weights and settings, without anything fitted."""

    @property
    def dim(self) -> int:
        """The number of columns."""

    def fit(self, texts: Sequence[str]) -> None:
        """Learn what can be learnt from unlabelled `texts`; an encoder may need nothing."""

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, dim) of `texts`; `progress` is called with (done, n)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What `fit` learnt, as arrays; empty where there is nothing."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take back what `state` gave.

        Raises:
            FeatureError: the arrays do not fit this encoder.
        """


def readable(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer takes, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
