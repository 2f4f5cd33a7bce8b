"""Feature maps: items to the features φ(z, x) that the learner scores.

`make_features` takes a spec as users write it: `hashing`, or `sentences:NAME_OR_DIR`.
"""

from __future__ import annotations

from collections.abc import Callable

from stacksl.errors import FeatureError, unknown_name
from stacksl.features.encoders import Encoder
from stacksl.features.hashing import HashingEncoder
from stacksl.features.maps import FeatureMap, TextMap
from stacksl.features.sentences import SentenceEncoder

__all__ = ["ENCODERS", "Encoder", "FeatureMap", "make_features"]


def _hashing(name: str) -> Encoder:
    """Word and character n-grams, TF-IDF, and the leading directions of the run's own texts."""
    if name:
        raise FeatureError(f"features 'hashing' take no name, got '{name}': write hashing")
    return HashingEncoder()


def _sentences(name: str) -> Encoder:
    """`sentences:NAME_OR_DIR`: any encoder that sentence-transformers loads, with its pooling."""
    if not name:
        raise FeatureError(
            "features 'sentences' need a name: write sentences:minilm, sentences:FOLDER or a name "
            "on the hub after the colon"
        )
    return SentenceEncoder(name)


ENCODERS: dict[str, Callable[[str], Encoder]] = {"hashing": _hashing, "sentences": _sentences}
"""Encoders by the name before the colon of a spec; each takes the part after it."""


def make_features(spec: str, *, classes: tuple[str, ...] | None, seed: int = 0) -> FeatureMap:
    """The feature map that `spec` names: class features with `classes`, pair features without.

    Args:
        spec: `hashing` or `sentences:NAME_OR_DIR`.
        classes: the fixed label set that all items share, or None where items bring their own.
        seed: the run's. The maps here draw from constants instead, so that two runs of different
            seeds can share features and caches.

    Raises:
        SettingsError: no features of that name; the nearest name is given.
        FeatureError: the encoder cannot be found or used.
        MissingExtra: the encoder needs packages that are not installed.

    >>> make_features("hashing", classes=("yes", "no")).dim
    257
    """
    kind, _, name = spec.partition(":")
    if kind not in ENCODERS:
        raise unknown_name("features", kind, ENCODERS)
    return TextMap(ENCODERS[kind](name), classes)
