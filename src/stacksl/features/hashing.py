"""`hashing`: word and character n-grams, TF-IDF, and the leading directions of the run's own texts.

Nothing is downloaded, and the same texts give the same bits on every machine: the hash is
MurmurHash3, and every sum is a sum of integers below 2^53 held in float64, so that neither its
order nor fused instructions can change it. A truncated SVD from LAPACK differs in its last bits
between processors and thread counts, and close singular values turn such bits into other vectors.
What is not a sum (Cholesky, division, square root) is done element by element in one fixed order,
which IEEE 754 pins down.
"""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import FeatureError
from stacksl.features.encoders import Progress, Vectors, readable

BUCKETS = 2**18  # for words and for characters each
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
    fewest = 2  # texts that an n-gram is found in, or it is left out

    def __init__(self, dim: int = 256) -> None:
        self._dim = dim
        self._grams: NDArray[np.int64] | None = None  # (m,) hashed columns, ascending
        self._idf: NDArray[np.int32] = np.zeros(0, np.int32)  # (m,) in units of 2^-10
        self._basis: NDArray[np.int16] = np.zeros((0, dim), np.int16)  # (m, d) in 2^-14

    def counts(self, texts: Sequence[str]) -> Any:
        """Counts (n, 2 x buckets) of one kind of n-grams, then of another, as CSR float64."""
        return gram_counts(texts)

    @property
    def dim(self) -> int:
        """d, the number of columns."""
        return self._dim

    @property
    def identity(self) -> str:
        """A hash of everything that is fixed before anything is fitted."""
        text = f"hashing 1: words 1-2, chars 3-5, {BUCKETS} buckets, {_MOST_GRAMS}, d {self._dim}"
        return hashlib.sha256(text.encode()).hexdigest()

    def fit(self, texts: Sequence[str]) -> None:
        """Learn idf and the projection from the distinct ones among `texts`."""
        import scipy.sparse as sp

        chosen = thinned(texts)
        starts = range(0, max(1, len(chosen)), _CHUNK)  # without texts one empty chunk
        counts = sp.vstack([self.counts(chosen[i : i + _CHUNK]) for i in starts], format="csr")
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        grams = np.flatnonzero(frequency >= min(self.fewest, len(chosen)))
        by_frequency = np.lexsort((grams, -frequency[grams]))
        self._grams = np.sort(grams[by_frequency[:_MOST_GRAMS]])
        idf = 1.0 + np.log((1.0 + len(chosen)) / (1.0 + frequency[self._grams]))
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
                f"features '{self.spec}' expected fitted state, got none: call fit(items) or "
                "restore(state) first"
            )
        vectors = np.zeros((len(texts), self._dim), np.float32)
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            weights = self._weigh(self.counts(chunk)[:, self._grams])
            used, weights.indices = np.unique(weights.indices, return_inverse=True)
            weights.resize(len(chunk), len(used))
            basis = self._basis[used].astype(np.float64)  # to convert all of it takes longer
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
        """Restore what `state` of an encoder with the same identity returned."""
        if state:
            self._grams, self._idf, self._basis = state["grams"], state["idf"], state["basis"]

    def _weigh(self, counts: Any) -> Any:
        """The rows x as integers of at most 2^14, from the counts of the kept n-grams."""
        assert self._grams is not None
        x = counts.tocsr()
        x.data = np.rint((1.0 + np.log(x.data)) * self._idf[x.indices])  # units of 2^-10
        is_word = self._grams[x.indices] < BUCKETS
        rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
        half = 2 * rows + is_word  # characters and words of each row, both of norm 1
        squares = np.bincount(half, x.data**2, minlength=2 * x.shape[0])
        half_counts = (squares.reshape(-1, 2) > 0).sum(axis=1)
        length = np.sqrt(squares[half] * half_counts[rows])
        x.data = np.rint(x.data / length * 2**ENTRY_BITS)
        return x


def thinned(texts: Sequence[str]) -> list[str]:
    """The distinct texts in the order of their hashes, at most 2^15 of them."""
    hashed = ((hashlib.sha256(text.encode()).digest(), text) for text in map(readable, set(texts)))
    return [text for _, text in heapq.nsmallest(_MOST_TEXTS, hashed)]


def gram_counts(texts: Sequence[str]) -> Any:
    """Counts (n, 2 x buckets) of word n-grams, then of character n-grams, as CSR float64."""
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import HashingVectorizer

    def count(**settings: Any) -> Any:
        vectorizer = HashingVectorizer(
            n_features=BUCKETS, norm=None, alternate_sign=False, **settings
        )
        return vectorizer.transform(clean)

    clean = [unicodedata.normalize("NFKC", readable(text)) for text in texts]
    if not clean:
        return sp.csr_matrix((0, 2 * BUCKETS))
    words = count(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    characters = count(analyzer="char_wb", ngram_range=(3, 5))
    return sp.hstack([words, characters], format="csr")


def unfitted(texts: Sequence[str]) -> Vectors:
    """Unit vectors (n, 1024) of signed counts of character n-grams, which no text was fitted on."""
    from sklearn.feature_extraction.text import HashingVectorizer

    grams = HashingVectorizer(n_features=1024, analyzer="char_wb", ngram_range=(3, 5))
    vectors: Vectors = grams.transform(map(readable, texts)).toarray().astype(np.float32)
    return vectors


def _unit(rows: Array) -> Vectors:
    """Rows scaled to norm 1 (a zero row stays), through integers so that the norm is exact."""
    peak = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    _, exponent = np.frexp(np.where(peak > 0.0, peak, 1.0))
    integers = np.rint(np.ldexp(rows, 20 - exponent))
    length = np.sqrt(np.sum(integers * integers, axis=1, keepdims=True))
    unit = np.divide(integers, length, out=np.zeros_like(integers), where=length > 0)
    return np.asarray(unit, dtype=np.float32)


ENTRY_BITS = 14  # entries of the matrix are integers of absolute value at most 2^14
_BLOCK_BITS = 18  # 2^14 entries x 2^18 x 2^15 rows, and (2^18)^2 x 2^15 rows, stay below 2^53
_FACTOR_BITS = 22
_RANK_TOLERANCE = 1e-7


def leading_subspace(matrix: Any, dim: int) -> Array:
    """An orthonormal basis (m, dim) of the leading right singular subspace of `matrix`.

    Orthogonal iteration on XᵀX from a start of fixed random signs: Q ← orth(Xᵀ(XQ)), five times.
    The error of a direction falls by the squared ratio of its singular value to the (dim + 1)-th
    each time.

    Args:
        matrix: X, a SciPy CSR matrix (n, m) of float64 that hold integers of absolute value at
            most 2^ENTRY_BITS, with n and m at most 2^15.

    Returns:
        Q, its columns orthonormal to some 1e-5; a column is zero where the rank of X is below
        `dim`.

    Source: Halko, Martinsson, Tropp (2011), "Finding structure with randomness", algorithm 4.4;
        Cholesky QR twice as in Yamamoto et al. (2015).
    """
    rng = np.random.Generator(np.random.PCG64(20240229))  # a constant: no run's seed moves features
    start = rng.integers(0, 2, size=(matrix.shape[1], dim)).astype(np.float64) * 2.0 - 1.0
    transposed = matrix.T.tocsr()
    basis = _orthonormal(start)
    for _ in range(5):
        # A direction far weaker than the first ones drowns in their rounding and comes out as 0:
        # start it again, orthogonal to those that were found, so that they no longer cover it.
        lost = ~basis.any(axis=0)
        basis = _orthonormal(np.where(lost, start, basis)) if lost.any() else basis
        image = _as_integers(matrix @ _as_integers(basis))
        basis = _orthonormal(transposed @ image)
    return basis


def _orthonormal(block: Array) -> Array:
    """Columns of `block` made orthonormal; twice, as one Cholesky QR loses what it squares."""
    return _cholesky_qr(_cholesky_qr(block))


def _cholesky_qr(block: Array) -> Array:
    integers = _as_integers(block)
    inverse = _inverse_factor(integers.T @ integers)  # (k, k), rows t: tᵀ integersᵀ orthonormal
    peak = np.max(np.abs(inverse), axis=1, keepdims=True)
    scale = _power_of_two(peak, _FACTOR_BITS)
    product: Array = (integers @ np.rint(inverse * scale).T) / scale.T
    return product


def _inverse_factor(gram: Array) -> Array:
    """L⁻¹ of gram = L Lᵀ; a zero row where the pivot says that the column depends on earlier ones.

    Right-looking and by whole rows: each entry meets the same operations in the same order.
    """
    size = len(gram)
    work, update = gram.copy(), np.empty((size, size))  # L⁻¹ up to column j, what is left after it
    smallest = _RANK_TOLERANCE * np.diagonal(gram)
    for j in range(size):
        row, below = work[j], work[j + 1 :]
        if row[j] <= smallest[j] or row[j] <= 0.0:
            row[: j + 1] = below[:, j] = 0.0
            continue
        pivot = np.sqrt(row[j])
        column = below[:, j] / pivot
        below[:, j] = 0.0
        row[j] = 1.0
        row[: j + 1] /= pivot
        row[j + 1 :] = column
        below -= np.multiply(column[:, None], row, out=update[j + 1 :])
    return np.tril(work)


def _as_integers(block: Array) -> Array:
    """Each column scaled by a power of two to below 2^18 and rounded; its direction is kept."""
    peak = np.max(np.abs(block), axis=0, keepdims=True, initial=0.0)
    rounded: Array = np.rint(block * _power_of_two(peak, _BLOCK_BITS))
    return rounded


def _power_of_two(peak: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """The power of two that brings `peak` to at most 2^bits; 1 where the peak is 0."""
    _, exponent = np.frexp(np.where(peak > 0.0, peak, 1.0))
    scale: NDArray[np.float64] = np.ldexp(1.0, bits - exponent)
    return scale
