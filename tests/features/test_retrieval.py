"""The nearest answers of a bank, and pair features that are computed where they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stacksl.core import nearest as search
from stacksl.core.blocks import PairBlock
from stacksl.core.nearest import nearest
from stacksl.errors import FeatureError
from stacksl.features import make_features, rows
from stacksl.features.rows import Gathered
from stacksl.features.store import erase, load_block, save_block
from stacksl.types import Item


def unit(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("cells", [1 << 22, 512 * 64, 1])  # one block, two, and 36
def test_exact_search_is_the_naive_one(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(search, "_CELLS", cells)
    prompts, bank = unit(70), unit(900, seed=1)
    naive = np.argsort(-(prompts.astype(float) @ bank.T), axis=1, kind="stable")[:, :9]
    found, cosine = nearest(prompts, bank, 9)
    assert np.array_equal(found, naive)
    exact = np.take_along_axis(prompts.astype(float) @ bank.T, naive, axis=1)
    np.testing.assert_allclose(cosine, exact, atol=1e-6)


def test_ties_go_to_the_first_and_a_small_bank_is_given_whole() -> None:
    bank = np.repeat(unit(3), 2, axis=0)
    found = nearest(unit(3), bank, 64)[0]
    assert found.shape == (3, 6)
    assert found[:, :2].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_prompt_without_a_known_word_gets_the_first_answers() -> None:
    found = nearest(np.zeros((1, 16), np.float32), unit(100), 5)[0]
    assert found.tolist() == [[0, 1, 2, 3, 4]]


def items(count: int = 6) -> list[Item]:
    words = ("rent", "fees", "tax", "loan")
    texts = [f"pay {word} by card number {n}" for n, word in enumerate(words)]
    return [Item(f"q{n}", f"how to pay {n} fees", tuple(texts[: 2 + n % 3])) for n in range(count)]


@pytest.fixture(params=[0.0, 20.0])
def weight(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
def gathered(weight: float, monkeypatch: pytest.MonkeyPatch) -> PairBlock:
    features = make_features("hashing", classes=None, cosine=weight)
    features.fit(items())
    monkeypatch.setattr(rows, "LARGE", 0)
    block = features.transform(items())
    assert isinstance(block.phi, Gathered)
    return block


def test_gathered_pairs_have_the_bits_of_stored_ones(
    gathered: PairBlock, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # what the fixture set
    features = make_features("hashing", classes=None, cosine=weight)
    features.fit(items())
    whole = features.transform(items())
    assert np.array_equal(gathered.phi[:], whole.phi)
    assert all(np.array_equal(a.phi, b.phi) for a, b in zip(gathered, whole, strict=True))
    assert (whole.base is None) == (weight == 0.0)
    assert np.array_equal(gathered.base, whole.base) or whole.base is gathered.base
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
    if gathered.base is not None:
        assert not after.base[first:last].any()
        assert np.array_equal(after[3].offset, gathered[3].offset)

    path = tmp_path / "candidates.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FeatureError, match="does not match its hash"):
        load_block(tmp_path, "mark", renamed)
