"""The prompt that a model declares for classification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.errors import FeatureError
from stacksl.features import make_features
from stacksl.features.maps import TextMap
from stacksl.features.sentences import SentenceEncoder
from stacksl.features.weights import folder_hash
from stacksl.runs.loop.class_names import name_rows
from stacksl.types import Item

QUERY, CLASS = "how do i ", "my card "
RETRIEVAL = {"prompts": {"query": QUERY, "document": "", "passage": "the cash is "}}
EVERY = {"prompts": {**RETRIEVAL["prompts"], "Classification": CLASS, "STS": "a "}}
MakeEncoder = Callable[..., Path]
CLASSES = ("pay", "cash")


def texts_of(folder: Path, classes: tuple[str, ...] | None = CLASSES) -> TextMap:
    made = make_features(f"sentences:{folder}", classes=classes)
    assert isinstance(made, TextMap)
    return made


def plain(folder: Path, *texts: str) -> np.ndarray:
    return SentenceEncoder(str(folder)).encode(texts)


def test_items_names_and_candidates_share_the_prompt(make_encoder: MakeEncoder) -> None:
    """The bits are those of a model without prompts that is given the prompt in the text."""
    folder, bare = make_encoder(prompts=EVERY), make_encoder()
    found = texts_of(folder)
    told = plain(bare, CLASS + "pay", CLASS + "cash")
    assert np.array_equal(found.encoder.encode(CLASSES), told)
    items = [Item("a", "pay", CLASSES), Item("b", "cash", CLASSES)]
    assert np.array_equal(name_rows(found, CLASSES), found.transform(items).h)
    asked = [
        Item(item.id, CLASS + item.prompt, tuple(CLASS + c for c in item.candidates))
        for item in items
    ]
    phi = texts_of(folder, None).transform(items).phi[:]
    assert np.array_equal(phi, texts_of(bare, None).transform(asked).phi[:])


@pytest.mark.parametrize("prompts", [
    RETRIEVAL, {"prompts": {"query": QUERY}, "default_prompt_name": "query"}
])  # fmt: skip
def test_prompts_for_retrieval_are_not_used(
    prompts: dict[str, Any], make_encoder: MakeEncoder
) -> None:
    default = QUERY if "default_prompt_name" in prompts else ""
    vectors = texts_of(make_encoder(prompts=prompts)).encoder.encode(["pay"])
    assert np.array_equal(vectors, plain(make_encoder(), default + "pay"))


@pytest.mark.parametrize("prompts", [
    None, {}, {"prompts": {}}, {"prompts": {"classification": ""}}, {"prompts": ["query"]},
    {"prompts": {"STS": "a "}}, {"prompts": {"query": "a "}, "default_prompt_name": "query"},
    {"prompts": {"classification": "a "}, "default_prompt_name": "classification"},
])  # fmt: skip
def test_a_model_without_a_prompt_of_its_own_keeps_its_cache(
    prompts: dict[str, Any] | None, make_encoder: MakeEncoder
) -> None:
    """The identity names the cache file and the saved models that fit; it is what it was."""
    folder = make_encoder(prompts=prompts)
    told = hashlib.sha256(f"sentences 1: {folder_hash(folder)}".encode()).hexdigest()
    assert texts_of(folder).encoder.identity == told


def test_a_model_that_routes_is_refused(make_encoder: MakeEncoder) -> None:
    """Queries and documents have modules of their own."""
    folder = make_encoder()
    router = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}
    (folder / "modules.json").write_text(json.dumps([router]), encoding="utf-8")
    with pytest.raises(FeatureError, match="parts of their own: name another encoder"):
        texts_of(folder, None)
