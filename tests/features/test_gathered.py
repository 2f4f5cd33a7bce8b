"""Pair features that are computed where they are read, in place of a table of all pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stacksl import run
from stacksl.core.blocks import PairBlock
from stacksl.errors import FeatureError
from stacksl.features import make_features, rows
from stacksl.features.rows import Gathered
from stacksl.features.store import erase, load_block, save_block
from stacksl.types import Item


def items(count: int = 6) -> list[Item]:
    words = ("rent", "fees", "tax", "loan")
    texts = [f"pay {word} by card number {n}" for n, word in enumerate(words)]
    return [Item(f"q{n}", f"how to pay {n} fees", tuple(texts[: 2 + n % 3])) for n in range(count)]


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> PairBlock:
    features = make_features("hashing", classes=None)
    features.fit(items())
    monkeypatch.setattr(rows, "LARGE", 0)
    block = features.transform(items())
    assert isinstance(block.phi, Gathered)
    return block


def test_gathered_pairs_have_the_bits_of_stored_ones(
    gathered: PairBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # what the fixture set
    features = make_features("hashing", classes=None)
    features.fit(items())
    whole = features.transform(items())
    assert np.array_equal(gathered.phi[:], whole.phi)
    assert all(np.array_equal(a.phi, b.phi) for a, b in zip(gathered, whole, strict=True))
    assert np.array_equal(gathered.take([4, 1]).phi, whole.take([4, 1]).phi)


def test_a_store_of_gathered_pairs(gathered: PairBlock, tmp_path: Path) -> None:
    ids = [item.id for item in items()]
    save_block(tmp_path, gathered, "mark", ids)
    again = load_block(tmp_path, "mark", ids)
    assert np.array_equal(again.phi[:], gathered.phi[:])

    renamed = [*ids[:2], "gone", *ids[3:]]
    erase(tmp_path, 2, renamed)
    after = load_block(tmp_path, "mark", renamed)
    assert isinstance(after.phi, Gathered)
    first, last = after.offsets[2:4]
    assert not after.phi.prompts[2].any()
    assert not after.phi.index[first:last].any()
    assert np.array_equal(after[3].phi, gathered[3].phi)

    path = tmp_path / "candidates.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FeatureError, match="does not match its hash"):
        load_block(tmp_path, "mark", renamed)


def test_a_run_over_gathered_pairs_has_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {item.id: n % len(item.candidates) for n, item in enumerate(items(40))}

    def head(name: str) -> bytes:
        made = run(items(40), answers, budget=20, features="hashing", out=tmp_path / name)
        assert (made.path / "features" / "index.npy").is_file() == (name == "gathered")
        return (made.path / "model" / "head.safetensors").read_bytes()

    stored = head("stored")
    monkeypatch.setattr(rows, "LARGE", 0)
    assert head("gathered") == stored
