"""The packaged encoder on ONNX Runtime, beside torch and sentence-transformers."""

from __future__ import annotations

import pydoc_data.topics
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import FeatureError, MissingExtra
from stacksl.features import minilm, weights
from stacksl.features.minilm import MiniLM

TEXTS = (
    "How do I pay with my card?",
    "",
    "日本語 und ein Satz",
    "lone \ud800 surrogate",
    *(
        text[: min(40 * number, 400)]
        for number, text in enumerate(list(pydoc_data.topics.topics.values())[:12], 1)
    ),
)

if weights.minilm_lacks():
    pytest.skip("the extra 'minilm' or its weights are not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    """One loaded encoder for the tests that only look at vectors."""
    return MiniLM()


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers(encoder) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(encoder._folder), local_files_only=True)
    texts = [text.replace("\ud800", "?") for text in TEXTS]
    expected = model.encode(texts, batch_size=1, show_progress_bar=False)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_vector_has_the_same_bits_alone_and_in_company(monkeypatch) -> None:
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    texts = [f"{text[:60]} {number}" for number in range(3) for text in TEXTS[:8]]
    whole = MiniLM(threads=2).encode(texts)
    one = MiniLM(threads=1)
    np.testing.assert_array_equal(one.encode(texts[::-1])[::-1], whole)
    for text, vector in zip(texts[:8], whole, strict=False):
        np.testing.assert_array_equal(one.encode([text])[0], vector)


def test_no_batch_is_padded_or_too_large(encoder, monkeypatch) -> None:
    shapes = []
    run = MiniLM._run

    def spy(self, ids):
        shapes.append(ids.shape)
        assert (ids != 0).all()  # 0 is the padding
        return run(self, ids)

    monkeypatch.setattr(MiniLM, "_run", spy)
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    MiniLM().encode([f"card {number}" for number in range(200)] + ["long " * 400])
    assert max(rows * tokens for rows, tokens in shapes) <= 512
    assert (1, 256) in shapes, "a part of the long text"
    assert len(shapes) < 10


def test_a_long_text_is_the_mean_of_its_parts(encoder) -> None:
    text = pydoc_data.topics.topics["assignment"]
    ids = encoder.tokenizer.encode(text)
    parts = [ids, *ids.overflowing]
    assert len(parts) > 2
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(encoder._folder, local_files_only=True).eval()
    with torch.no_grad():
        rows = [model(torch.tensor([part.ids])).last_hidden_state[0].numpy() for part in parts]
    rows = [states.mean(axis=0) / np.linalg.norm(states.mean(axis=0)) for states in rows]
    mean = sum((len(part.ids) - 2) * row for part, row in zip(parts, rows, strict=True))
    np.testing.assert_allclose(encoder.encode([text])[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_texts_of_which_some_is_not_read_are_counted_once(monkeypatch) -> None:
    monkeypatch.setattr(minilm, "PARTS", 3)
    fresh = MiniLM()
    fresh.encode(["hallo " * 300, "hallo"])
    assert fresh.truncated == 0
    fresh.encode(["hallo " * 450] * 2)
    assert fresh.truncated == 1


def test_other_files_are_refused_in_a_sentence(tmp_path: Path, encoder, monkeypatch) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(encoder._folder / name, tmp_path / name)
    monkeypatch.setattr(minilm, "find_minilm", lambda: tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    with pytest.raises(FeatureError, match=r"SHA-256 53aa51172d14.*remove that copy"):
        MiniLM().encode(["a text"])
    before = MiniLM().identity
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    assert MiniLM().identity != before
    with pytest.raises(FeatureError, match=r"tokenizer.*cannot be read"):
        MiniLM().encode(["a text"])


def test_a_package_that_was_installed_in_part_is_named(monkeypatch, tmp_path) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("import onnxruntime.part\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    with pytest.raises(MissingExtra, match="of which onnxruntime is not installed: pip install"):
        _ = MiniLM()._session
