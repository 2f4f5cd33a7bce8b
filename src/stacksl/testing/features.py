"""The contract of feature maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Block, PairBlock, SharedBlock
from stacksl.features import FeatureMap
from stacksl.testing.gates import asserting
from stacksl.types import Item


@asserting()
def check_features(make: Callable[[], FeatureMap], items: Sequence[Item]) -> None:
    """Check a feature map on items: of classes where it is made with classes, else of pairs.

    Args:
        make: gives a new map, not fitted.
        items: at least two that it can transform.

    Raises:
        AssertionError: it breaks the contract; the message says how.
    """
    features = make()
    assert features.spec == make().spec, "its spec should be what the user wrote"
    assert isinstance(features.reads_text, bool), "reads_text should be True or False"
    features.fit(items)
    block = features.transform(items)
    _expect_block(block, features, items)
    for n, item in enumerate(items):
        alone = table(features.transform([item]))
        assert np.array_equal(alone, table(block.take([n]))), (
            f"the row of item '{item.id}' alone differs from its row among others"
        )
    assert len(features.transform([])) == 0, "no items should give an empty block"
    calls: list[tuple[int, int]] = []
    features.transform(items, lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls), f"progress should rise, got {calls}"
    assert not calls or calls[-1][0] == calls[-1][1], f"progress should end, got {calls[-1]}"
    _expect_restored(make(), features, items)


def table(block: Block) -> NDArray[Any]:
    """The rows of a block."""
    return np.asarray(block.h if isinstance(block, SharedBlock) else block.phi)


def _expect_block(block: Block, features: FeatureMap, items: Sequence[Item]) -> None:
    rows = table(block)
    assert len(block) == len(items), f"{len(items)} items gave a block of {len(block)}"
    assert block.dim == features.dim, f"rows have {block.dim} columns, dim is {features.dim}"
    assert rows.dtype == np.float32, f"rows should be float32, got {rows.dtype}"
    assert np.isfinite(rows).all(), "rows should be finite"
    longest = np.linalg.norm(rows.astype(np.float64), axis=1).max()
    assert longest <= 1.0, f"rows should have a norm of at most 1, got {longest}"
    sizes = [len(item.candidates) for item in items]
    if isinstance(block, PairBlock):
        assert [b - a for a, b in pairwise(block.offsets)] == sizes, "a row for each candidate"
    else:
        assert {block.classes} == set(sizes), "the block should have the classes of its items"


def _expect_restored(copy: FeatureMap, features: FeatureMap, items: Sequence[Item]) -> None:
    """A new map with the state of a fitted one is the same map."""
    state = features.state()
    assert all(isinstance(array, np.ndarray) for array in state.values()), "state is of arrays"
    copy.restore(state)
    assert copy.fingerprint == features.fingerprint, "a restored map should have its fingerprint"
    same = np.array_equal(table(copy.transform(items)), table(features.transform(items)))
    assert same, "a restored map should give the same rows"
