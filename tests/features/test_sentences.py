from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import FeatureError
from stacksl.features import make_features
from stacksl.features.sentences import SentenceEncoder, _threads
from stacksl.types import Item

TEXTS = (
    "my card was declined",
    "how do I pay",
    "",
    "the transfer has not arrived where is my cash",
    "a",
    "how do i pay " * 30,  # longer than the 24 tokens it reads
    "日本語",
    "lone \ud800 surrogate",
)
MakeEncoder = Callable[..., Path]


@pytest.fixture(scope="module")
def encoder(encoder_folder: Path) -> SentenceEncoder:
    """One loaded encoder for the tests that only look at vectors."""
    return SentenceEncoder(str(encoder_folder))


def mean_pooled(folder: Path, text: str, longest: int) -> np.ndarray:
    """Second implementation: the transformer alone, and the mean over the real tokens."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(
        text, return_tensors="pt", truncation=True, max_length=longest
    )
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state[0]
    mean = hidden.numpy().astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_vectors_are_the_normalized_mean_of_the_tokens(encoder, encoder_folder) -> None:
    vectors = encoder.encode(TEXTS[:6])
    assert vectors.dtype == np.float32
    for vector, text in zip(vectors, TEXTS[:6], strict=True):
        np.testing.assert_allclose(vector, mean_pooled(encoder_folder, text, 24), atol=2e-6)


def test_a_text_alone_and_among_others_has_the_same_bits(encoder, monkeypatch) -> None:
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    many = [f"{text} {'how do i ' * (i % 5)}" for i in range(5) for text in TEXTS]
    folder = str(encoder._folder)
    whole = SentenceEncoder(folder).encode(many)
    backwards = SentenceEncoder(folder).encode(many[::-1])[::-1]
    np.testing.assert_array_equal(whole, backwards)
    alone = SentenceEncoder(folder)
    for text, vector in zip(many, whole, strict=True):
        np.testing.assert_array_equal(alone.encode([text])[0], vector)
    assert alone.encoded == len(many)


class Refuses(SentenceEncoder):
    """An encoder that must do without its model."""

    @cached_property
    def _model(self):
        raise AssertionError("the model was loaded though every text is in the cache")


def test_a_second_run_encodes_nothing_and_loads_no_model(encoder_folder) -> None:
    first = SentenceEncoder(str(encoder_folder))
    vectors = first.encode(TEXTS)
    assert first.encoded == len(TEXTS)
    second = Refuses(str(encoder_folder))
    np.testing.assert_array_equal(second.encode(TEXTS), vectors)
    assert second.encoded == 0
    assert second.truncated == first.truncated == 1


def test_what_was_encoded_before_an_interrupt_is_kept(encoder_folder) -> None:
    def stop(done: int, total: int) -> None:
        if done >= 15:
            raise KeyboardInterrupt

    texts = [f"card {'a ' * (i % 4)} {i}" for i in range(40)]
    first = SentenceEncoder(str(encoder_folder))
    with pytest.raises(KeyboardInterrupt):
        first.encode(texts, stop)
    second = SentenceEncoder(str(encoder_folder))
    second.encode(texts)
    assert first.encoded + second.encoded == len(texts)
    assert first.encoded >= 15


def test_weights_with_nan_name_the_item_and_are_not_kept(make_encoder: MakeEncoder) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = make_encoder(seed=3)
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.1.output.dense.bias"] = torch.full((32,), torch.nan)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    features = make_features(f"sentences:{folder}", classes=("x", "y"))
    for _ in range(2):  # the second time as well: nothing of it is in the cache
        with pytest.raises(FeatureError, match="item 'first'"):
            features.transform([Item("first", "my card", ("x", "y"))])
    assert features.encoder.encoded == 2


def test_a_damaged_folder_gives_one_sentence(make_encoder: MakeEncoder) -> None:
    folder = make_encoder(seed=4)
    (folder / "model.safetensors").write_bytes(b"cut off")
    encoder = SentenceEncoder(str(folder))
    with pytest.raises(FeatureError, match="cannot be loaded") as caught:
        encoder.encode(["card"])
    assert "\n" not in str(caught.value)


def test_an_encoder_without_a_tokenizer_of_the_usual_kind(tmp_path: Path) -> None:
    """Static embeddings bring a bare tokenizer: every text is encoded in a batch of its own."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "card": 1, "cash": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    table = np.eye(3, 4) + 0.5
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    SentenceTransformer(modules=[static]).save(str(tmp_path / "static"))
    vectors = SentenceEncoder(str(tmp_path / "static")).encode(["card", "card cash", "cash"])
    expected = np.array([table[1], (table[1] + table[2]) / 2, table[2]])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_threads_are_set_while_encoding_and_given_back(encoder, monkeypatch) -> None:
    import torch

    monkeypatch.setenv("STACKSL_ENCODER_THREADS", "3")
    fresh = SentenceEncoder(str(encoder._folder))
    assert fresh.threads == 3
    seen: list[int] = []
    encode = type(encoder._model).encode

    def spy(self, *rows, **settings):
        seen.append(torch.get_num_threads())
        return encode(self, *rows, **settings)

    monkeypatch.setattr(type(encoder._model), "encode", spy)
    before = torch.get_num_threads()
    fresh.encode(["card"])
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("loaded", "policy", "threads"), [
    (False, None, 2), (True, None, 1), (True, "passive", 2), (False, "ACTIVE", 1),
])  # fmt: skip
def test_two_threads_only_where_they_sleep_while_they_wait(
    loaded: bool, policy: str | None, threads: int, encoder_folder, monkeypatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy or "")
    if policy is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    if loaded:
        monkeypatch.setitem(sys.modules, "torch", sys)
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert _threads() == threads
    told = "PASSIVE" if policy is None and not loaded else policy
    assert os.environ.get("OMP_WAIT_POLICY") == told


@pytest.mark.parametrize("threads", ["0", "two", "-1", "²"])
def test_threads_that_are_no_number(threads: str, encoder_folder, monkeypatch) -> None:
    monkeypatch.setenv("STACKSL_ENCODER_THREADS", threads)
    with pytest.raises(FeatureError, match="STACKSL_ENCODER_THREADS"):
        SentenceEncoder(str(encoder_folder))
