"""Class names as soft training examples: their words and the examples that were given with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import SharedBlock
from stacksl.features import FeatureMap, make_features
from stacksl.files import arrays
from stacksl.runs.spec import RunSpec
from stacksl.types import Item

FILE = "names.safetensors"

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"[_\-./|\s]+")
_WORD = re.compile(r"[^\W\d_]")


def in_words(name: str) -> str:
    """A class name as a person would say it: `card_arrival` and `cardArrival` become two words.

    A name without a letter is kept as it is.

    >>> in_words("Refund_not_showing_up"), in_words("topUpLimits"), in_words("HTTPError")
    ('Refund not showing up', 'top Up Limits', 'HTTP Error')
    """
    if not _WORD.search(name):
        return name
    return _JOINTS.sub(" ", _CAMEL.sub(" ", name)).strip() or name


def name_texts(classes: Sequence[str], descriptions: Sequence[str] | None = None) -> list[str]:
    """The text encoded for each class: its name in words, then its description."""
    meanings = [""] * len(classes) if descriptions is None else descriptions
    names = [in_words(name) for name in classes]
    return [f"{name}: {text}" if text else name for name, text in zip(names, meanings, strict=True)]


def class_name_rows(spec: RunSpec, features: FeatureMap | None) -> NDArray[Any] | None:
    """The rows of the run's class names, (K, d), written to disk when they are first made.

    Without `features`, as in a replay, they are read. None where names take no part: they are
    turned off, items have their own options, or what makes the features reads no text or is a
    language model.
    """
    classes, settings = spec.sources.classes, spec.settings
    if not settings.class_names or settings.adapts or classes is None:
        return None
    feature_map = features or make_features(settings.features, classes=classes.names)
    if not feature_map.reads_text:
        return None
    file = spec.folder.features / FILE
    if features is None:
        return _load(file)["rows"]
    texts = name_texts(classes.names, classes.descriptions)
    return name_rows(features, texts, file, classes.examples)


def name_rows(
    features: FeatureMap,
    texts: Sequence[str],
    file: Path | None = None,
    examples: Sequence[Sequence[str]] = (),
) -> NDArray[Any]:
    """The rows h, (K, d), of the `texts` of K classes, each the mean with those of its examples.

    They are computed as those of items. `file` is read if it has the same texts, and else
    written, so that a resumed run has the same bits.
    """
    facts = [*texts, *(repr((n, *group)) for n, group in enumerate(examples) if group)]
    key = np.frombuffer(sha256("\0".join(facts).encode("utf-8", "surrogatepass")).digest(), "u1")
    if file is not None and file.exists():
        stored = _load(file)
        if np.array_equal(stored["texts"], key):
            return stored["rows"]
    owners = [*range(len(texts)), *(n for n, group in enumerate(examples) for _ in group)]
    classes, all_texts = tuple(texts), [*texts, *(text for group in examples for text in group)]
    block = features.transform([Item(f"class {n}", t, classes) for n, t in enumerate(all_texts)])
    assert isinstance(block, SharedBlock)
    rows = np.asarray(block.h)
    if len(all_texts) > len(texts):
        sums = np.zeros((len(texts), rows.shape[1]))
        np.add.at(sums, np.array(owners), rows)
        rows = np.asarray(sums / np.bincount(owners)[:, None], dtype=rows.dtype)
    if file is not None:
        arrays.save(file, {"rows": rows, "texts": key.copy()})
    return rows


def _load(file: Path) -> dict[str, NDArray[Any]]:
    remedy = "restore it from a copy, or delete it and `stacksl resume` makes it again"
    return arrays.load(file, remedy)
