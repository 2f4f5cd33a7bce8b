"""`sentences:minilm+tokens`: the encoder's vectors, and n-grams of its tokens next to them.

A sentence encoder knows what words mean, and says little of which words they are: names of
products, programs or drugs that its training never saw get similar vectors. N-grams tell them
apart, and know nothing of meaning. On most public sets a linear model on both is better than one on
the vectors, and on some as good (`docs/features.md`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from stacksl.features.encoders import Progress, Vectors, readable
from stacksl.features.hashing import BUCKETS, HashingEncoder
from stacksl.features.minilm import MiniLM
from stacksl.features.weights import WITH_TOKENS

SHARE = 0.1  # of the squared norm of a vector that its n-grams have
DIM = 128  # columns of the n-grams
STEP = 1_000_003  # the pair (a, b) has the column BUCKETS + (STEP·a + b) mod BUCKETS


class WithTokens(HashingEncoder):
    """The vectors h = [√(1 − s)·u, √s·v] of an encoder's u and its tokens' n-grams v, s = `SHARE`.

    v is the latent semantic analysis of `hashing` on single tokens and pairs. A text is read in the
    parts that the encoder reads; its marks of begin and end count in pairs only: they say how a
    text begins and ends. The inner product of two texts is 1 − s of the encoder's and s of their
    n-grams'. The share and the number of columns were chosen on training rows of public sets
    (`docs/features.md`).
    """

    spec = f"sentences:{WITH_TOKENS}"
    bias = 0.0  # u has norm 1 in any text
    fewest = 8  # else a text that was fitted on has n-grams that a new one of its source lacks

    def __init__(self, encoder: MiniLM) -> None:
        super().__init__(DIM)
        self.encoder = encoder

    @property
    def fixed(self) -> int:
        """The first columns, the encoder's: nothing that was fitted makes them."""
        return self.encoder.dim

    @property
    def dim(self) -> int:
        """The number of columns: the encoder's, then those of the n-grams."""
        return self.encoder.dim + DIM

    @property
    def truncated(self) -> int:  # type: ignore[override]
        """How many of the distinct texts encoded so far were truncated."""
        return self.encoder.truncated

    @property
    def identity(self) -> str:
        """A hash of the weights and settings, without anything fitted."""
        text = f"tokens 1: {self.encoder.identity}, {BUCKETS} buckets, d {DIM}"
        grams = hashlib.sha256(text.encode()).hexdigest()
        return hashlib.sha256(f"{SHARE} {grams}".encode()).hexdigest()

    def counts(self, texts: Sequence[str]) -> Any:
        """Counts (n, 2 x buckets) of single tokens, then of pairs, as CSR float64."""
        import scipy.sparse as sp

        columns, ends = [np.zeros(0, np.int64)], [0]
        for parts in self.encoder.tokens([*map(readable, texts)])[0]:
            ids = [part.astype(np.int64) for part in parts]
            pairs = [(STEP * part[:-1] + part[1:]) % BUCKETS + BUCKETS for part in ids]
            single = np.concatenate(ids)
            columns += [single[~np.isin(single, ids[0][[0, -1]])], *pairs]
            ends.append(ends[-1] + sum(map(len, columns[-1 - len(pairs) :])))
        grams = np.concatenate(columns)
        counts = sp.csr_matrix((np.ones(len(grams)), grams, ends), (len(texts), 2 * BUCKETS))
        counts.sum_duplicates()
        return counts

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, dim) of `texts`; `progress` is called with (done, n)."""
        vectors, grams = self.encoder.encode(texts, progress), super().encode(texts)
        return np.hstack([vectors * np.float32(KEPT), grams * np.float32(ADDED)])


_BELOW = 1 - 2.0**-22  # rounding to float32 stays below norm 1
KEPT, ADDED = _BELOW * (1 - SHARE) ** 0.5, _BELOW * SHARE**0.5
