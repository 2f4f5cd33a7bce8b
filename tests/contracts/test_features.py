"""What every feature map must do, run on each encoder that can be made here."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.blocks import SharedBlock
from stacksl.errors import FeatureError
from stacksl.features import FEATURES, FeatureMap, TextMap, make_features
from stacksl.features.weights import minilm_lacks
from stacksl.testing import check_features
from stacksl.testing.features import table
from stacksl.types import Item

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
SPECS = ("hashing", "sentences:minilm", "sentences:minilm+tokens")


def class_items() -> list[Item]:
    return [Item(f"c{i}", prompt, CLASSES) for i, prompt in enumerate(PROMPTS)]


def pair_items() -> list[Item]:
    options = (("pay", "shop"), ("card", "cash", "transfer has arrived"), ("my card", "less cash"))
    return [Item(f"p{i}", prompt, options[i % 3]) for i, prompt in enumerate(PROMPTS)]


def test_a_spec_is_kept_as_written(case) -> None:
    assert make_features(case[0], classes=case[1]).spec == case[0]


# items with candidates of their own get the vectors of minilm alone
OWN = [(spec, True) for spec in SPECS if not spec.endswith("+tokens")]


@pytest.fixture(params=[*((spec, False) for spec in SPECS), *OWN], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[str, tuple[str, ...] | None, list[Item]]:
    spec, own = request.param
    if "minilm" in spec and minilm_lacks():
        pytest.skip("the extra 'minilm' or its weights are not installed")
    return (spec, None, pair_items()) if own else (spec, CLASSES, class_items())


def fitted(made: tuple[str, tuple[str, ...] | None, list[Item]]) -> FeatureMap:
    features = make_features(made[0], classes=made[1])
    features.fit(made[2])
    return features


def test_registry_is_covered() -> None:
    of_text = set(FEATURES) - {"given"}  # arrays: tests/runs/test_python_doors.py
    assert {spec.partition(":")[0] for spec in SPECS} == of_text


def test_it_keeps_the_contract(case) -> None:
    check_features(lambda: make_features(case[0], classes=case[1]), case[2])


def test_no_row_is_zero_and_progress_is_told(case) -> None:
    calls: list[tuple[int, int]] = []
    block = fitted(case).transform(case[2], lambda done, total: calls.append((done, total)))
    assert np.linalg.norm(table(block).astype(np.float64), axis=1).min() > 0.0
    assert calls[-1][0] > 0


def test_state_of_the_other_kind_of_map_is_refused(case) -> None:
    other = make_features(case[0], classes=CLASSES if case[1] is None else None)
    other.fit(case[2])
    with pytest.raises(FeatureError, match="trained with"):
        fitted(case).restore(other.state())


def test_a_map_that_gives_no_block_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextMap, "transform", lambda self, items, progress=None: None)
    with pytest.raises(AssertionError, match=r"got AttributeError in features\.py"):
        check_features(lambda: make_features("hashing", classes=CLASSES), class_items())


def test_a_map_whose_rows_depend_on_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TextMap.transform

    def centered(self, items, progress=None):
        block = plain(self, items, progress)
        return SharedBlock(block.h - block.h.mean(axis=0) / 2, block.classes)

    monkeypatch.setattr(TextMap, "transform", centered)
    with pytest.raises(AssertionError, match="the row of item 'c0' alone differs"):
        check_features(lambda: make_features("hashing", classes=CLASSES), class_items())
