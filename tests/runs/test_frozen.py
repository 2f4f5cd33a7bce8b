"""Frozen features: what was written comes back, and every spoilt row is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import FeatureError
from stacksl.game.inputs import PairBlock, SharedBlock
from stacksl.runs.frozen import freeze, is_frozen, thaw

ROWS = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
BLOCKS = {
    "classes": SharedBlock(ROWS, 3),
    "pairs": PairBlock(ROWS, np.array([0, 2, 5, 7], dtype=np.int64)),
    "offset pairs": PairBlock(ROWS, np.array([0, 2, 5, 7], dtype=np.int64), np.arange(7) / 3),
}


@pytest.fixture(params=BLOCKS)
def frozen(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SharedBlock | PairBlock, Path]:
    block = BLOCKS[request.param]
    freeze(tmp_path, block, "the map")
    return block, tmp_path


def test_features_come_back_bit_for_bit(frozen) -> None:
    block, folder = frozen
    again = thaw(folder, "the map")
    assert type(again) is type(block)
    assert len(again) == len(block)
    if isinstance(block, SharedBlock):
        assert again.h.tobytes() == ROWS.tobytes()
        assert again.classes == 3
    else:
        assert again.phi.tobytes() == ROWS.tobytes()
        assert again.offsets.tolist() == [0, 2, 5, 7]
        assert (again.base is None) == (block.base is None)
        assert block.base is None or again.base.tobytes() == block.base.tobytes()


def test_an_edited_row_is_named(frozen) -> None:
    _, folder = frozen
    rows = np.load(folder / "rows.npy")
    rows[4, 2] = np.nextafter(rows[4, 2], np.float32(9))
    np.save(folder / "rows.npy", rows)
    with pytest.raises(FeatureError, match="row 4 of the run's features does not match"):
        thaw(folder)


def test_a_row_gone_and_a_hash_gone_are_found(frozen) -> None:
    _, folder = frozen
    np.save(folder / "rows.npy", ROWS[:-1])
    with pytest.raises(FeatureError, match="7 hashes of features but 6 rows"):
        thaw(folder)
    np.save(folder / "rows.npy", ROWS)
    (folder / "rows.blake2b").unlink()
    with pytest.raises(FeatureError, match="hashes of the run's features are missing"):
        thaw(folder)


def test_another_dimension_is_refused(frozen) -> None:
    _, folder = frozen
    text = (folder / "features.json").read_text()
    (folder / "features.json").write_text(text.replace('"dim": 5', '"dim": 6'))
    with pytest.raises(FeatureError, match="should have dimension 6"):
        thaw(folder)


def test_another_feature_map_is_refused(frozen) -> None:
    _, folder = frozen
    with pytest.raises(FeatureError, match="resume with the versions and weights"):
        thaw(folder, "another map")


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"PK\x03\x04garbage", bytes(300)])
def test_a_damaged_file_is_a_sentence(frozen, damage: bytes) -> None:
    _, folder = frozen
    (folder / "rows.npy").write_bytes(damage)
    with pytest.raises(FeatureError, match="cannot be read"):
        thaw(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dim": 5'])
def test_a_damaged_description_is_a_sentence(frozen, text: str) -> None:
    _, folder = frozen
    (folder / "features.json").write_text(text)
    with pytest.raises(FeatureError, match="cannot be read"):
        thaw(folder)


def test_offsets_that_do_not_fit_are_refused(tmp_path) -> None:
    freeze(tmp_path, BLOCKS["pairs"], "m")
    np.save(tmp_path / "offsets.npy", np.array([0, 2, 5, 9]))
    with pytest.raises(FeatureError):
        thaw(tmp_path)


def test_half_frozen_is_not_frozen(tmp_path, monkeypatch) -> None:
    from stacksl.runs import frozen as module

    class Cut(Exception):
        pass

    written = module.write_atomic

    def cut(path: Path, content: bytes | str) -> None:
        if path.name == "features.json":
            raise Cut
        written(path, content)

    monkeypatch.setattr(module, "write_atomic", cut)
    with pytest.raises(Cut):
        freeze(tmp_path, BLOCKS["classes"], "m")
    assert not is_frozen(tmp_path)


@pytest.fixture
def offset(tmp_path: Path) -> Path:
    freeze(tmp_path, BLOCKS["offset pairs"], "the map")
    return tmp_path


def test_an_edited_fixed_part_of_a_score_is_named(offset: Path) -> None:
    base = np.load(offset / "base.npy")
    base[5] = np.nextafter(base[5], 9.0)
    np.save(offset / "base.npy", base)
    with pytest.raises(FeatureError, match=r"row 5 of .*rows\.npy or base\.npy .* was changed"):
        thaw(offset)


@pytest.mark.parametrize("present", [True, False])
def test_a_fixed_part_that_is_hidden_or_gone_is_found(offset: Path, present: bool) -> None:
    text = (offset / "features.json").read_text()
    if present:
        (offset / "features.json").write_text(text.replace('"base": true', '"base": false'))
    else:
        (offset / "base.npy").unlink()
    with pytest.raises(FeatureError, match="does not match its hash" if present else "be read"):
        thaw(offset)


def test_a_fixed_part_of_another_length_is_found(offset: Path) -> None:
    np.save(offset / "base.npy", np.zeros(6))
    with pytest.raises(FeatureError, match="7 fixed parts of scores"):
        thaw(offset)


def test_a_folder_from_before_fixed_parts_still_thaws(tmp_path: Path) -> None:
    """As it was written then: no word of a base, and rows hashed alone."""
    block = BLOCKS["pairs"]
    freeze(tmp_path, block, "the map")
    about = json.loads((tmp_path / "features.json").read_text())
    assert about.pop("base") is False
    (tmp_path / "features.json").write_text(json.dumps(about))
    hashes = b"".join(hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in ROWS)
    assert (tmp_path / "rows.blake2b").read_bytes() == hashes
    again = thaw(tmp_path, "the map")
    assert isinstance(again, PairBlock)
    assert again.base is None
    assert again[1].offset is None
