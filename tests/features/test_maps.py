"""The parts of a map that no encoder decides: seals, errors, counting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from stacksl.core.blocks import Block
from stacksl.errors import FeatureError, SettingsError
from stacksl.features import make_features, maps
from stacksl.features.encoders import Progress, Vectors
from stacksl.features.maps import TextMap, transformed
from stacksl.features.store import save_block
from stacksl.types import Item


class Lengths:
    """An encoder whose vectors hold the text's length; counts what it is given."""

    spec = "lengths"
    bias = 0.0
    truncated = 0
    identity = "lengths 1"

    def __init__(self, dim: int = 3, broken: str | None = None) -> None:
        self.dim = dim
        self.broken = broken
        self.seen: list[str] = []
        self.fitted: list[str] = []

    def fit(self, texts: Sequence[str]) -> None:
        self.fitted = list(texts)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        self.seen += texts
        rows = np.array([[len(t), *range(1, self.dim)] for t in texts], np.float32)
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        rows[[t == self.broken for t in texts]] = np.nan
        return rows

    def state(self) -> dict[str, np.ndarray]:
        return {"fitted": np.array(len(self.fitted))}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.fitted = ["?"] * int(state["fitted"])


ITEMS = [
    Item("a", "shared prompt", ("yes", "no", "perhaps")),
    Item("b", "shared prompt", ("no", "never")),
    Item("c", "yes", ("shared prompt", "no")),
]


def test_each_distinct_text_is_encoded_once() -> None:
    encoder = Lengths()
    block = TextMap(encoder, None).transform(ITEMS)
    assert encoder.seen == ["shared prompt", "yes", "no", "perhaps", "never"]
    assert [len(inputs.phi) for inputs in block] == [3, 2, 2]


def test_class_map_reads_prompts_alone() -> None:
    encoder = Lengths()
    features = TextMap(encoder, ("x", "y"))
    features.fit(ITEMS)
    features.transform(ITEMS)
    assert encoder.fitted == encoder.seen == ["shared prompt", "yes"]


def test_rows_of_a_large_pool_are_written_without_being_held(tmp_path, monkeypatch) -> None:
    """They are transformed a part at a time, and the files have the same bytes."""
    items = [Item(str(n), "x" * (n % 7), ("a", "b")) for n in range(9000)]
    counted: list[int] = []

    class Counting(TextMap):
        def transform(self, items: Sequence[Item], progress: Progress | None = None) -> Block:
            counted.append(len(items))
            return TextMap.transform(self, items, progress)

    for name, many in (("whole", 9000), ("parts", 100)):
        monkeypatch.setattr(maps, "MANY", many)
        features = Counting(Lengths(), ("a", "b"))
        (tmp_path / name).mkdir()
        block = transformed(features, items, lambda done, total: None)
        save_block(tmp_path / name, block, features.fingerprint)
    assert counted[0] == 9000
    assert max(counted[1:]) < 9000
    written = [(tmp_path / name / "rows.npy").read_bytes() for name in ("whole", "parts")]
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("classes", "broken", "item"),
    [(None, "perhaps", "a"), (None, "never", "b"), (None, "yes", "a"), (("x", "y"), "yes", "c")],
)
def test_features_that_are_not_finite_name_the_item(classes, broken, item) -> None:
    with pytest.raises(FeatureError, match=f"item '{item}'"):
        TextMap(Lengths(broken=broken), classes).transform(ITEMS)


def test_fingerprint_tells_encoder_settings_and_fit_apart() -> None:
    maps = [TextMap(Lengths(), None), TextMap(Lengths(), ("x",)), TextMap(Lengths(4), None)]
    maps.append(TextMap(Lengths(), None))
    maps[-1].fit(ITEMS)
    assert len({m.fingerprint for m in maps}) == 4
    assert TextMap(Lengths(), None).fingerprint == maps[0].fingerprint


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("hashin", "did you mean 'hashing'"),
        ("sentence:minilm", "did you mean 'sentences'"),
        ("hashing:300", "name"),
        ("sentences", "name"),
        ("sentences:", "name"),
    ],
)
def test_names_that_are_unknown_missing_or_too_many(spec: str, says: str) -> None:
    with pytest.raises((SettingsError, FeatureError), match=says):
        make_features(spec, classes=None)


def test_making_features_loads_nothing_heavy() -> None:
    code = (
        "import sys; from stacksl.features import make_features; make_features('hashing', "
        "classes=None); heavy = {'torch', 'sklearn', 'scipy', 'transformers'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
