"""Feature maps: items to the arrays that the learner scores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Block, PairBlock, SharedBlock
from stacksl.engine import on_ray
from stacksl.errors import FeatureError, kind_of
from stacksl.features.encoders import Encoder, Progress
from stacksl.features.rows import WEIGHTS, class_rows, pair_block, pair_columns, widths
from stacksl.types import Item

MANY = 1 << 16  # items above which the rows of a pool are not held in memory


class FeatureMap(Protocol):
    """φ: items to features, rows of norm at most 1.

    A map is fitted once, on a run's own unlabeled items, and saved with the model: `evaluate` and
    `predict` restore it. It never sees an answer, since an `Item` has none; the caller must not
    pass test items to `fit`.
    """

    @property
    def spec(self) -> str:
        """What the user wrote, such as `hashing`."""

    @property
    def dim(self) -> int:
        """d, the columns of a row."""

    @property
    def fingerprint(self) -> str:
        """A hash of the encoder's weights, the settings and the fitted state.

        Equal fingerprints give equal features.
        """

    @property
    def truncated(self) -> int:
        """How many distinct texts the encoder has truncated so far."""

    @property
    def reads_text(self) -> bool:
        """Whether any words have features: then the names of classes have, too."""

    def fit(self, items: Sequence[Item]) -> None:
        """Learn what can be learned from unlabeled `items`, never from test items."""

    def transform(self, items: Sequence[Item], progress: Progress | None = None) -> Block:
        """The float32 features of `items`; a row depends on its own item alone.

        Args:
            progress: called with (done, total), counted in distinct texts.

        Raises:
            FeatureError: a feature is not finite (the item is named), or the map is not fitted.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything `fit` learned and the map's identity, as arrays."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned.

        Raises:
            FeatureError: the state is another map's.
        """


class TextMap:
    """The map made of an encoder (text to vector) and rows (vectors to features).

    With `classes` the rows are `class_rows` of the prompts and `transform` gives a `SharedBlock`
    (n, d), without them they are `pair_rows` and it gives a `PairBlock` (ΣK, d); the number of
    candidates may differ from item to item. A text is encoded once, however many items share it.
    """

    reads_text = True

    def __init__(self, encoder: Encoder, classes: tuple[str, ...] | None) -> None:
        self.encoder = encoder
        self.classes = classes

    @property
    def spec(self) -> str:
        """What the user wrote."""
        return self.encoder.spec

    @property
    def dim(self) -> int:
        """d, the columns of a row."""
        if self.classes is None:
            return pair_columns(self.encoder.dim)
        return self.encoder.dim + (self.encoder.bias > 0.0)

    @property
    def truncated(self) -> int:
        """How many distinct texts the encoder has truncated so far."""
        return self.encoder.truncated

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of identity and fitted state."""
        digest = hashlib.sha256(self._identity.encode())
        for name, array in sorted(self.encoder.state().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def fit(self, items: Sequence[Item]) -> None:
        """Fit the encoder on the distinct texts that the rows read."""
        self.encoder.fit(list(dict.fromkeys(self._texts(items))))

    def transform(self, items: Sequence[Item], progress: Progress | None = None) -> Block:
        """The float32 features of `items`; see `FeatureMap.transform`."""
        number: dict[str, int] = {}
        numbers = (number.setdefault(text, len(number)) for text in self._texts(items))
        text_rows, texts = np.fromiter(numbers, np.int64), list(number)
        vectors = self.encoder.encode(texts, progress)
        if not np.isfinite(vectors).all():
            bad = {texts[n] for n in np.flatnonzero(~np.isfinite(vectors).all(axis=1))}
            name = next(item.id for item in items if not bad.isdisjoint(self._texts([item])))
            raise FeatureError(
                f"the features of item '{name}' should be finite, got NaN or "
                "infinity: check the encoder's weights, or choose other features"
            )
        if self.classes is None:
            return pair_block(items, vectors, text_rows)
        return SharedBlock(class_rows(vectors[text_rows], self.encoder.bias), len(self.classes))

    def state(self) -> dict[str, NDArray[Any]]:
        """The encoder's state, with the map's identity and dimension."""
        dim = np.array([self.dim], np.int64)
        return {"identity": self._mark, "dim": dim, **self.encoder.state()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; see `FeatureMap.restore`."""
        if not np.array_equal(state.get("identity", np.zeros(0)), self._mark):
            raise FeatureError(
                f"the saved state is not of features '{self.spec}' as they are here (another map, "
                "other weights or another version made it): use the features that the model was "
                "trained with"
            )
        fitted = {name: a for name, a in state.items() if name not in ("identity", "dim")}
        self.encoder.restore(fitted)

    @property
    def _identity(self) -> str:
        """What fixes the rows in addition to the fitted state, for fingerprints."""
        encoded, identity = self.encoder.dim, self.encoder.identity
        if self.classes is not None:
            return f"class rows 1: {encoded} to {self.dim}, bias {self.encoder.bias}; {identity}"
        products, differences = widths(encoded)
        rows = f"pair rows 1: {encoded} to {products}+{differences}, {WEIGHTS}"
        return f"{rows}; {identity}"

    @property
    def _mark(self) -> NDArray[np.uint8]:
        return np.frombuffer(hashlib.sha256(self._identity.encode()).digest(), np.uint8).copy()

    def _texts(self, items: Sequence[Item]) -> Iterator[str]:
        """The texts that are encoded: of each item the prompt, then for pairs its candidates."""
        for item in items:
            yield item.prompt
            if self.classes is None:
                yield from item.candidates


def transformed(
    features: FeatureMap, items: Sequence[Item], progress: Progress | None = None
) -> Block:
    """The features of `items`, to be written or read once, in order.

    With shared classes the rows of a large pool are computed where they are read, so that they are
    never all held in memory. Ray encodes all texts at once, so that every node has work.

    Raises:
        FeatureError: the map gives no row for each item.
    """
    if len(items) > MANY and not on_ray():
        sample = features.transform(items[:1])
        if isinstance(sample, SharedBlock):
            rows: Any = LazyRows(features, items, sample.dim, progress)
            return SharedBlock(rows, sample.classes)
    block = features.transform(items, progress)
    given = len(block) if isinstance(block, PairBlock | SharedBlock) else kind_of(block)
    if given != len(items):
        raise FeatureError(
            f"the features '{features.spec}' should give a block of {len(items)} items, got"
            f" {given}: correct `transform` with `stacksl.testing.check_features`"
        )
    return block


@dataclass(frozen=True, slots=True)
class LazyRows:
    """The rows of items, (n, d) float32, each transformed when it is read: `rows[a:b]`."""

    features: FeatureMap
    items: Sequence[Item]
    dim: int
    progress: Progress | None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.items), self.dim

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: slice) -> NDArray[np.float32]:
        if self.progress is not None:
            self.progress(index.start, len(self.items))
        block = self.features.transform(self.items[index])
        assert isinstance(block, SharedBlock)
        return np.asarray(block.h, np.float32)
