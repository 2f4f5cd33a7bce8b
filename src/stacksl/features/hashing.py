"""`hashing`: word and character n-grams, TF-IDF, and the leading directions of the run's own texts.

Nothing is downloaded, and the same texts give the same bits on every machine: the hash is
MurmurHash3, and every sum is a sum of integers below 2^53 (see `subspace`).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import FeatureError
from stacksl.features.encoders import Progress, Vectors, readable
from stacksl.features.subspace import ENTRY_BITS, leading_subspace

_BUCKETS = 2**18  # for words and for characters each
_CHUNK = 2048  # texts at a time
_MOST_TEXTS = 2**15  # texts that are fitted on; more are thinned by their hash
_MOST_GRAMS = 2**15  # n-grams kept, the most frequent first
_WEIGHT_BITS = 10  # tf x idf is rounded to multiples of 2^-10
_BASIS_BITS = 14  # the projection is kept as int16


class HashingEncoder:
    """Latent semantic analysis on hashed n-grams: u = Qᵀx / ‖Qᵀx‖.

    x holds the n-grams' weights (1 + log tf)·idf, words (1 and 2) and characters (3 to 5, inside
    words) each of norm 1 and then x of norm 1; idf = 1 + log((1 + n)/(1 + df)) over the n distinct
    texts fitted on, for n-grams found in at least two of them; Q (m, d) spans the d leading right
    singular directions of the fitted x. Of more than 2^15 texts those with the smallest SHA-256
    are fitted on, so the order of the texts never matters.

    Args:
        dim: d. 256 was chosen by cross-validation on training texts (`docs/features.md`).

    Source: Deerwester et al. (1990), latent semantic analysis; Weinberger et al. (2009), hashing.
    """

    spec = "hashing"
    bias = 0.1
    truncated = 0

    def __init__(self, dim: int = 256) -> None:
        self._dim = dim
        self._grams: NDArray[np.int64] | None = None  # (m,) hashed columns, ascending
        self._idf: NDArray[np.int32] = np.zeros(0, np.int32)  # (m,) in units of 2^-10
        self._basis: NDArray[np.int16] = np.zeros((0, dim), np.int16)  # (m, d) in 2^-14

    @property
    def dim(self) -> int:
        """d, the number of columns."""
        return self._dim

    @property
    def identity(self) -> str:
        """A hash of everything that is fixed before anything is fitted."""
        text = f"hashing 1: words 1-2, chars 3-5, {_BUCKETS} buckets, {_MOST_GRAMS}, d {self._dim}"
        return hashlib.sha256(text.encode()).hexdigest()

    def fit(self, texts: Sequence[str]) -> None:
        """Learn idf and the projection from the distinct ones among `texts`."""
        chosen = _thin(texts)
        counts = _stack([_counts(chosen[i : i + _CHUNK]) for i in range(0, len(chosen), _CHUNK)])
        found = np.bincount(counts.indices, minlength=counts.shape[1])
        grams = np.flatnonzero(found >= min(2, len(chosen)))
        by_frequency = np.lexsort((grams, -found[grams]))
        self._grams = np.sort(grams[by_frequency[:_MOST_GRAMS]])
        idf = 1.0 + np.log((1.0 + len(chosen)) / (1.0 + found[self._grams]))
        self._idf = np.rint(idf * 2**_WEIGHT_BITS).astype(np.int32)
        basis = leading_subspace(self._weigh(counts[:, self._grams]), self._dim)
        self._basis = np.rint(basis * 2**_BASIS_BITS).astype(np.int16)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, d) of `texts`; 0 for a text without a known n-gram.

        Raises:
            FeatureError: nothing was fitted or restored yet.
        """
        if self._grams is None:
            raise FeatureError(
                "features 'hashing' expected fitted state and have none: call fit(items) or "
                "restore(state) first"
            )
        vectors = np.zeros((len(texts), self._dim), np.float32)
        basis = self._basis.astype(np.float64)
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            weights = self._weigh(_counts(chunk)[:, self._grams])
            vectors[start : start + len(chunk)] = _unit(weights @ basis)
            if progress is not None:
                progress(start + len(chunk), len(texts))
        return vectors

    def state(self) -> dict[str, NDArray[Any]]:
        """The kept n-grams, their idf and the projection; empty before `fit`."""
        if self._grams is None:
            return {}
        return {"grams": self._grams, "idf": self._idf, "basis": self._basis}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take back what `state` gave.

        Raises:
            FeatureError: arrays are missing or of other shapes than this encoder's.
        """
        if missing := {"grams", "idf", "basis"} - state.keys():
            raise FeatureError(
                f"the saved state of features 'hashing' lacks {', '.join(sorted(missing))}: "
                "it was made by another feature map or by another version"
            )
        grams, idf, basis = state["grams"], state["idf"], state["basis"]
        if basis.shape != (len(grams), self._dim) or idf.shape != grams.shape:
            raise FeatureError(
                f"features 'hashing' expected a projection of shape ({len(grams)}, {self._dim}) "
                f"and got {basis.shape}: the state was made with another dimension"
            )
        self._grams = grams.astype(np.int64)
        self._idf = idf.astype(np.int32)
        self._basis = basis.astype(np.int16)

    def _weigh(self, counts: Any) -> Any:
        """The rows x as integers of at most 2^14, from the counts of the kept n-grams."""
        assert self._grams is not None
        x = counts.tocsr()
        x.data = np.rint((1.0 + np.log(x.data)) * self._idf[x.indices])  # units of 2^-10
        is_word = self._grams[x.indices] < _BUCKETS
        rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
        squares = np.bincount(rows * 2 + is_word, x.data**2, minlength=2 * x.shape[0])
        both = (squares.reshape(-1, 2) > 0).sum(axis=1)  # one or two parts of norm 1
        length = np.sqrt(squares[rows * 2 + is_word] * both[rows])
        x.data = np.rint(x.data / length * 2**ENTRY_BITS)
        return x


def _thin(texts: Sequence[str]) -> list[str]:
    """The distinct texts in the order of their hashes, at most 2^15 of them."""
    keyed = sorted(
        (hashlib.sha256(text.encode()).digest(), text) for text in map(readable, set(texts))
    )
    return [text for _, text in keyed[:_MOST_TEXTS]]


def _counts(texts: Sequence[str]) -> Any:
    """Counts (n, 2 x buckets) of word n-grams, then of character n-grams, as CSR float64."""
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import HashingVectorizer

    def count(**settings: Any) -> Any:
        vectorizer = HashingVectorizer(
            n_features=_BUCKETS, norm=None, alternate_sign=False, **settings
        )
        return vectorizer.transform(clean)

    clean = [unicodedata.normalize("NFKC", readable(text)) for text in texts]
    words = count(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    characters = count(analyzer="char_wb", ngram_range=(3, 5))
    return sp.hstack([words, characters], format="csr")


def _stack(chunks: list[Any]) -> Any:
    import scipy.sparse as sp

    return sp.vstack(chunks, format="csr") if chunks else sp.csr_matrix((0, 2 * _BUCKETS))


def _unit(rows: Array) -> Vectors:
    """Rows scaled to norm 1 (a zero row stays), through integers so that the norm is exact."""
    peak = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    _, exponent = np.frexp(np.where(peak > 0.0, peak, 1.0))
    whole = np.rint(np.ldexp(rows, 20 - exponent))
    length = np.sqrt(np.sum(whole * whole, axis=1, keepdims=True))
    unit: Vectors = np.divide(whole, length, out=np.zeros_like(whole), where=length > 0).astype(
        np.float32
    )
    return unit
