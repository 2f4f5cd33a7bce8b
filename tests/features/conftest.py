"""Small encoders made on the spot, and a cache folder of each test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stacksl.features import hashing
from stacksl.features.hashing import leading_subspace

SENTENCE = "my card was declined how do i pay the transfer has not arrived where is cash a"
WORDS = tuple(SENTENCE.split())


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads another's caches or the network; gives the folder of this test's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("STACKSL_NO_CACHE", raising=False)
    monkeypatch.delenv("STACKSL_ENCODER_THREADS", raising=False)
    monkeypatch.setattr(hashing, "leading_subspace", leading_subspace)
    return tmp_path / "cache"


def write_encoder(
    folder: Path, *, pooling: str = "mean_tokens", seed: int = 0, prompts: Any = None
) -> Path:
    """A random BERT of 32 dimensions that reads 24 tokens, as sentence-transformers saves it."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab={w: i for i, w in enumerate(vocabulary)})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    write_modules(folder, pooling)
    if prompts is not None:
        settings = folder / "config_sentence_transformers.json"
        settings.write_text(json.dumps(prompts), encoding="utf-8")
    return folder


def write_modules(folder: Path, pooling: str) -> None:
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    pool = {"word_embedding_dimension": 32} | {f"pooling_mode_{m}": m == pooling for m in modes}
    reads = {"max_seq_length": 24, "do_lower_case": False}
    (folder / "1_Pooling").mkdir()
    for name, content in (
        ("modules.json", modules),
        ("sentence_bert_config.json", reads),
        ("1_Pooling/config.json", pool),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="session")
def make_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a small encoder into a folder of its own and gives the folder."""
    if find_spec("sentence_transformers") is None or find_spec("torch") is None:
        pytest.skip("the extra 'sentences' is not installed")

    def make(**settings: Any) -> Path:
        return write_encoder(tmp_path_factory.mktemp("encoder") / "files", **settings)

    return make


@pytest.fixture(scope="session")
def encoder_folder(make_encoder: Callable[..., Path]) -> Path:
    """A small encoder with mean pooling; not to be changed."""
    return make_encoder()
