from __future__ import annotations

import hashlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from stacksl.errors import FeatureError
from stacksl.features import hashing, make_features
from stacksl.features.hashing import HashingEncoder
from stacksl.types import Item

DIGEST = "af42a2848025843adce2a062bd0a68073b250574b61dca3e18bf7628ecf2609c"
TOPICS = ("card", "transfer", "cash machine", "exchange rate", "lost phone")
TEXTS = [
    f"{opening} {topic} {ending}"
    for topic in TOPICS
    for opening in ("what about my", "help with the", "I have a question on a")
    for ending in ("today?", "in another country", "that has not arrived", "")
]


def fitted(texts: list[str] = TEXTS, dim: int = 32) -> HashingEncoder:
    encoder = HashingEncoder(dim)
    encoder.fit(texts)
    return encoder


def test_inner_products_are_those_of_tfidf_when_the_dimension_is_large_enough() -> None:
    """Second implementation: scikit-learn's TF-IDF with a vocabulary, no hashing, no projection."""
    words = TfidfVectorizer(
        ngram_range=(1, 2), min_df=2, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
    )
    characters = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), min_df=2, sublinear_tf=True
    )
    gram = 0.0
    for part in (words, characters):
        x = part.fit_transform(TEXTS).toarray()
        gram = gram + x @ x.T / 2
    u = fitted(dim=len(TEXTS)).encode(TEXTS).astype(np.float64)
    np.testing.assert_allclose(u @ u.T, gram, atol=1e-2)  # the weakest directions are cut off


def test_the_bits_are_the_same_on_every_machine() -> None:
    """The promise itself: the digest was made on x86-64 and must come out everywhere."""
    vectors = fitted().encode(TEXTS).astype("<f4")
    assert hashlib.sha256(vectors.tobytes()).hexdigest() == DIGEST


@pytest.mark.parametrize(("texts", "grams"), [(60, None), (20, 50)])
def test_fit_does_not_depend_on_order_or_repetition(texts: int, grams: Any, monkeypatch) -> None:
    """Also where many texts and n-grams are thinned: to the same ones."""
    monkeypatch.setattr(hashing, "_MOST_TEXTS", texts)
    monkeypatch.setattr(hashing, "_MOST_GRAMS", grams or hashing._MOST_GRAMS)
    one, two = fitted().state(), fitted([*TEXTS[::-1], *TEXTS[:7]]).state()
    assert grams is None or one["basis"].shape == (grams, 32)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_text_of_unknown_ngrams_is_zero_and_a_known_one_is_a_unit_vector() -> None:
    u = fitted().encode(["", "   ", "qqq", "my card"])
    np.testing.assert_array_equal(u[:3], 0.0)
    np.testing.assert_allclose(np.linalg.norm(u[3]), 1.0, atol=1e-6)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted()
    monkeypatch.setattr(hashing, "_CHUNK", 7)
    parts = fitted()
    np.testing.assert_array_equal(parts.encode(TEXTS), whole.encode(TEXTS))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=40), min_size=1, max_size=6))
def test_any_text_gives_a_usable_row(texts: list[str]) -> None:
    items = [Item(str(i), text, ("yes", "no")) for i, text in enumerate(texts)]
    features = make_features("hashing", classes=("yes", "no"))
    features.fit(items)
    norms = [np.linalg.norm(inputs.h) for inputs in features.transform(items)]
    assert 0.0 < min(norms) <= max(norms) <= 1.0


def test_before_fit_it_says_what_to_do() -> None:
    with pytest.raises(FeatureError, match="call fit"):
        HashingEncoder().encode(["card"])


def test_memory_beyond_the_result_does_not_grow_with_the_items(monkeypatch) -> None:
    monkeypatch.setattr(hashing, "_CHUNK", 500)
    encoder = fitted(dim=256)
    extra = []
    for count in (1_000, 3_000):
        texts = [f"my card {i} has not arrived" for i in range(count)]
        tracemalloc.start()
        result = encoder.encode(texts)
        extra.append(tracemalloc.get_traced_memory()[1] - result.nbytes)
        tracemalloc.stop()
    assert extra[1] < extra[0] + 1_000_000  # a float64 copy of the result would be 6 MB
