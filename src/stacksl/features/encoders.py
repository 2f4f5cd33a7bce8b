"""The protocol of text encoders, which feature maps are built on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Progress: TypeAlias = Callable[[int, int], None]
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(Protocol):
    """What turns a text into a vector of norm 1, or 0 where it finds no known token.

    The vector of a text depends on that text, the weights and the fitted state alone: never on
    the texts beside it.

    Attributes:
        spec: what a user writes to get it, such as `hashing`.
        bias: the constant column that class features get, 0 for none.

    One that reads candidates and answers of a bank in another way than prompts has the encoder of
    these as its attribute `documents`.
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
        """Fit on unlabelled `texts`; an encoder may need nothing."""

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, dim) of `texts`; `progress` is called with (done, n)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The fitted state as arrays; empty where there is none."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` of an encoder with the same identity returned."""


def readable(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer takes, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
