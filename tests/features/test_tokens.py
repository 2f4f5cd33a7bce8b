"""The default features of classes: the encoder's vectors with n-grams of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.features import minilm, weights
from stacksl.features.hashing import BUCKETS
from stacksl.features.tokens import DIM, SHARE, STEP, WithTokens

pytest.importorskip("onnxruntime", reason="the extra 'minilm' is not installed")
pytestmark = pytest.mark.skipif(
    weights.minilm_lacks(), reason="the weights of 'minilm' are not installed"
)
TEXTS = [f"{start} {end}" for start in ("the card", "my transfer") for end in "abcdefghij"]


@pytest.fixture(scope="module")
def encoder() -> minilm.MiniLM:
    return minilm.MiniLM()


@pytest.fixture(scope="module")
def fitted(encoder: minilm.MiniLM) -> WithTokens:
    made = WithTokens(encoder)
    made.fit(TEXTS)
    return made


def test_tokens_count_singly_and_in_pairs_with_the_marks(encoder) -> None:
    counts = WithTokens(encoder).counts(["card card", ""]).toarray()
    begin, end = encoder.tokens([""])[0][0][0]
    card = encoder.tokens(["card"])[0][0][0][1]
    pairs = [(begin, card), (card, card), (card, end)]
    expected = {card: 2.0} | {(STEP * int(a) + int(b)) % BUCKETS + BUCKETS: 1.0 for a, b in pairs}
    assert {int(n): counts[0, n] for n in np.flatnonzero(counts[0])} == expected
    empty = (STEP * int(begin) + int(end)) % BUCKETS + BUCKETS
    assert np.flatnonzero(counts[1]).tolist() == [empty]


def test_a_vector_has_its_shares_of_both(encoder, fitted) -> None:
    vectors = fitted.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim + DIM)
    own = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors[:, : encoder.dim], own * (1 - SHARE) ** 0.5, atol=1e-6)
    added = (vectors[:, encoder.dim :] ** 2).sum(axis=1)
    np.testing.assert_allclose(added, SHARE, atol=1e-5)
    assert (np.linalg.norm(vectors.astype(np.float64), axis=1) <= 1.0).all()


def test_an_n_gram_of_few_texts_is_left_out(encoder) -> None:
    grams = WithTokens(encoder)
    grams.fit([*TEXTS, *(f"owl {n}" for n in range(7))])
    card, owl = (int(encoder.tokens([word])[0][0][0][1]) for word in ("card", "owl"))
    kept = grams.state()["grams"]
    assert card in kept
    assert owl not in kept
    grams.fit([*TEXTS, *(f"owl {n}" for n in range(8))])
    assert owl in grams.state()["grams"]


def test_neither_order_nor_company_matters(encoder, fitted) -> None:
    other = WithTokens(encoder)
    other.fit(TEXTS[::-1] + TEXTS)
    assert all(np.array_equal(other.state()[k], fitted.state()[k]) for k in fitted.state())
    alone = np.concatenate([fitted.encode([text]) for text in TEXTS[:3]])
    assert np.array_equal(fitted.encode(TEXTS)[:3], alone)
