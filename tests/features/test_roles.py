"""Prompts that a model declares for queries, documents and classification."""

from __future__ import annotations

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

QUERY, DOCUMENT, CLASS = "how do i ", "the cash is ", "my card "
RETRIEVAL = {"prompts": {"query": QUERY, "document": "", "passage": DOCUMENT}}
EVERY = {"prompts": {**RETRIEVAL["prompts"], "Classification": CLASS, "STS": "a "}}
MakeEncoder = Callable[..., Path]
ITEMS = [Item("a", "pay", ("card", "transfer")), Item("b", "card", ("pay", "cash"))]


def texts_of(folder: Path, classes: tuple[str, ...] | None) -> TextMap:
    made = make_features(f"sentences:{folder}", classes=classes)
    assert isinstance(made, TextMap)
    return made


def plain(folder: Path, *texts: str) -> np.ndarray:
    return SentenceEncoder(str(folder)).encode(texts)


def test_prompts_are_queries_and_candidates_documents(make_encoder: MakeEncoder) -> None:
    """The bits are those of a model without prompts that is given the prompt in the text."""
    folder, bare = make_encoder(prompts=EVERY), make_encoder()
    encoder = texts_of(folder, None).encoder
    assert np.array_equal(encoder.encode(["pay"]), plain(bare, QUERY + "pay"))
    assert np.array_equal(encoder.documents.encode(["pay"]), plain(bare, DOCUMENT + "pay"))
    assert encoder.documents._model is encoder._model, "the weights are loaded once"
    phi = texts_of(folder, None).transform(ITEMS).phi[:]
    asked = [
        Item(item.id, QUERY + item.prompt, tuple(DOCUMENT + c for c in item.candidates))
        for item in ITEMS
    ]
    assert np.array_equal(phi, texts_of(bare, None).transform(asked).phi[:])


def test_items_and_class_names_share_the_prompt_for_classification(
    make_encoder: MakeEncoder,
) -> None:
    folder, bare = make_encoder(prompts=EVERY), make_encoder()
    classes = ("pay", "cash")
    found = texts_of(folder, classes)
    told = plain(bare, CLASS + "pay", CLASS + "cash")
    assert np.array_equal(found.encoder.encode(classes), told)
    assert np.array_equal(name_rows(found, classes), found.transform(
        [Item("a", "pay", classes), Item("b", "cash", classes)]
    ).h)  # fmt: skip
    for prompts in (RETRIEVAL, {"prompts": {"query": QUERY}, "default_prompt_name": "query"}):
        made = make_encoder(prompts=prompts)
        default = QUERY if "default_prompt_name" in prompts else ""
        vectors = texts_of(made, classes).encoder.encode(["pay"])
        assert np.array_equal(vectors, plain(bare, default + "pay"))


@pytest.mark.parametrize("prompts", [
    None, {}, {"prompts": {}}, {"prompts": {"query": "", "document": ""}}, {"prompts": ["query"]},
    {"prompts": {"STS": "a "}}, {"prompts": {"query": "a "}, "default_prompt_name": "query"},
])  # fmt: skip
def test_a_model_without_such_prompts_keeps_its_cache(
    prompts: dict[str, Any] | None, make_encoder: MakeEncoder
) -> None:
    """The identity names the cache file and the saved models that fit; it is what it was."""
    folder = make_encoder(prompts=prompts)
    before = SentenceEncoder(str(folder)).identity
    for classes in (None, ("yes", "no")):
        encoder = texts_of(folder, classes).encoder
        assert encoder.identity == before
        shared = classes is not None or "default_prompt_name" not in (prompts or {})
        assert (encoder.documents is encoder) == shared


def test_every_role_has_a_cache_and_a_fingerprint_of_its_own(make_encoder: MakeEncoder) -> None:
    folder = make_encoder(prompts=EVERY)
    paired, fixed = texts_of(folder, None), texts_of(folder, ("yes", "no"))
    encoders = (paired.encoder, paired.encoder.documents, fixed.encoder)
    names = {each.identity for each in (*encoders, SentenceEncoder(str(folder)))}
    assert len(names) == 4
    for encoder in encoders:
        encoder.encode(["pay"])
    assert len({encoder.encode(["pay"]).tobytes() for encoder in encoders}) == 3
    assert [encoder.encoded for encoder in encoders] == [1, 1, 1]


def test_a_saved_map_is_refused_where_the_prompts_are_others(make_encoder: MakeEncoder) -> None:
    """`evaluate` and `predict` restore a map, which has the roles that it was saved with."""
    folder, other = make_encoder(prompts=EVERY), make_encoder(prompts=RETRIEVAL)
    state = texts_of(folder, None).state()
    texts_of(folder, None).restore(state)
    with pytest.raises(FeatureError, match="other weights"):
        texts_of(other, None).restore(state)
    assert folder_hash(folder) != folder_hash(other)


def test_cut_texts_are_counted_once_over_both_roles(make_encoder: MakeEncoder) -> None:
    found = texts_of(make_encoder(prompts=EVERY), None)
    long = "how do i pay " * 30
    found.transform([Item("a", long, (long, "cash")), Item("b", "pay", (long, "card"))])
    assert found.truncated == 1


def test_a_model_that_routes_is_refused(make_encoder: MakeEncoder) -> None:
    """Queries and documents have modules of their own."""
    folder = make_encoder()
    router = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}
    (folder / "modules.json").write_text(json.dumps([router]), encoding="utf-8")
    with pytest.raises(FeatureError, match="parts of their own: name another encoder"):
        texts_of(folder, None)
