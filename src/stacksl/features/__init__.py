"""Feature maps: items to the features φ(z, x) that the learner scores.

`make_features` takes a spec as users write it: `hashing`, `sentences:minilm+tokens`, or
`sentences:NAME_OR_DIR`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from stacksl.errors import FeatureError, unknown_name
from stacksl.features.encoders import Encoder
from stacksl.features.given import GivenFeatures
from stacksl.features.hashing import HashingEncoder
from stacksl.features.maps import FeatureMap, TextMap
from stacksl.features.minilm import MiniLM
from stacksl.features.sentences import SentenceEncoder
from stacksl.features.tokens import WithTokens
from stacksl.features.weights import MINILM, WITH_TOKENS

__all__ = ["FEATURES", "Encoder", "FeatureMap", "GivenFeatures", "TextMap", "make_features"]

Classes: TypeAlias = tuple[str, ...] | None


def _hashing(name: str, classes: Classes) -> FeatureMap:
    """Word and character n-grams, TF-IDF, and the leading directions of the run's own texts."""
    if name:
        raise FeatureError(f"features 'hashing' take no name, got '{name}': write hashing")
    return TextMap(HashingEncoder(), classes)


def _sentences(name: str, classes: Classes) -> FeatureMap:
    """`sentences:minilm+tokens`, or `sentences:NAME_OR_DIR` for the vectors of any encoder alone.

    Items with candidates of their own get the vectors of `minilm` alone (`docs/features.md`).
    """
    if not name:
        raise FeatureError(
            "features 'sentences' need a name: write sentences:minilm+tokens, sentences:FOLDER or a"
            " name on the hub after the colon"
        )
    if name not in (MINILM, WITH_TOKENS):
        return TextMap(SentenceEncoder(name), classes)
    joined = name == WITH_TOKENS and classes is not None
    return TextMap(WithTokens(MiniLM()) if joined else MiniLM(), classes)


def _given(name: str, classes: Classes) -> FeatureMap:
    """Features given in Python: `stacksl.run(..., features=X)`, a row for each item."""
    if name or classes is None:
        raise FeatureError(
            "features given as an array are for items that share a fixed set of classes: give"
            " classes=[...], or other features"
        )
    return GivenFeatures(len(classes))


FEATURES: dict[str, Callable[[str, Classes], FeatureMap]] = {
    "given": _given,
    "hashing": _hashing,
    "sentences": _sentences,
}
"""What may stand before the colon of a spec, with what makes its map from the rest and classes."""


def make_features(spec: str, *, classes: Classes) -> FeatureMap:
    """The feature map that `spec` names: class features with `classes`, pair features without.

    No map draws by the seed of a run, so that runs of different seeds share features and caches.

    Raises:
        SettingsError: no features of that name; the nearest name is given.
        FeatureError: the encoder cannot be found or used.
        MissingExtra: the encoder needs packages that are not installed.

    >>> make_features("hashing", classes=("yes", "no")).dim
    257
    """
    kind, _, name = spec.partition(":")
    if kind not in FEATURES:
        raise unknown_name("features", kind, FEATURES)
    return FEATURES[kind](name, classes)
