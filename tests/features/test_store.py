"""The feature store: saved features are read back bit for bit, and damage is found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stacksl.core.blocks import PairBlock, SharedBlock
from stacksl.errors import FeatureError
from stacksl.features import GivenFeatures, maps, store
from stacksl.features.given import release_rows
from stacksl.features.maps import transformed
from stacksl.features.store import erase, has_block, load_block, save_block
from stacksl.types import Item

ROWS = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
BLOCKS = {
    "classes": SharedBlock(ROWS, 3),
    "pairs": PairBlock(ROWS, np.array([0, 2, 5, 7], dtype=np.int64)),
    "offset pairs": PairBlock(ROWS, np.array([0, 2, 5, 7], dtype=np.int64), np.arange(7) / 3),
}


@pytest.fixture(params=BLOCKS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SharedBlock | PairBlock, Path]:
    block = BLOCKS[request.param]
    save_block(tmp_path, block, "the map")
    return block, tmp_path


def test_features_come_back_bit_for_bit(saved) -> None:
    block, folder = saved
    again = load_block(folder, "the map")
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


@pytest.mark.parametrize("name", ["rows", "base"])
def test_an_edited_array_or_one_of_another_length_is_found(tmp_path, name) -> None:
    save_block(tmp_path, BLOCKS["offset pairs"], "the map")
    path = tmp_path / f"{name}.npy"
    whole = np.load(path)
    edited = whole.copy()
    edited.flat[5] = np.nextafter(edited.flat[5], edited.dtype.type(9))
    np.save(path, edited)
    with pytest.raises(FeatureError, match=rf"{name}\.npy does not match its hash"):
        load_block(tmp_path)
    np.save(path, whole[:-1])
    with pytest.raises(FeatureError, match=rf"{name}\.npy cannot be read \(it should have \d+ byt"):
        load_block(tmp_path)
    path.unlink()
    with pytest.raises(FeatureError, match=rf"{name}\.npy cannot be read"):
        load_block(tmp_path)


def test_another_feature_map_is_refused(saved) -> None:
    _, folder = saved
    with pytest.raises(FeatureError, match="resume with the versions and weights"):
        load_block(folder, "another map")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("rows.npy", damage) for damage in (b"", b"\x93NUMPY", b"PK\x03\x04garbage", bytes(300))),
        *(("features.json", damage) for damage in (b"", b"[]", b"{}", b'{"dim": 5')),
    ],
)
def test_a_damaged_file_is_a_sentence(saved, name: str, content: bytes) -> None:
    _, folder = saved
    (folder / name).write_bytes(content)
    with pytest.raises(FeatureError, match="cannot be read"):
        load_block(folder)


def test_an_interrupted_save_is_not_a_block(tmp_path, monkeypatch) -> None:
    from stacksl.features import store as module

    class Cut(Exception):
        pass

    written = module.write_atomic

    def cut(path: Path, content: bytes | str, more: Iterable[memoryview] = ()) -> None:
        if path.name == "features.json":
            raise Cut
        written(path, content, more)

    monkeypatch.setattr(module, "write_atomic", cut)
    with pytest.raises(Cut):
        save_block(tmp_path, BLOCKS["classes"], "m")
    assert not has_block(tmp_path)


def test_given_rows_are_stored_alike_block_by_block(tmp_path, monkeypatch) -> None:
    items = [Item(f"item {number}", "", ("a", "b", "c")) for number in (3, 0, 6, 1, 2)]
    ids = [item.id for item in items]
    given = GivenFeatures(3).with_rows([f"item {n}" for n in range(7)], np.asfortranarray(ROWS))
    given.fit(items)
    folders = tmp_path / "whole", tmp_path / "blocks"
    for folder, size in zip(folders, (4096, 2), strict=True):
        monkeypatch.setattr(store, "_AT_ONCE", size)
        folder.mkdir()
        whole = given.transform(items)
        monkeypatch.setattr(maps, "MANY", size)
        block = transformed(given, items)
        assert isinstance(block.h, np.ndarray) is (size == 4096)
        save_block(folder, block, given.fingerprint, ids)
        np.testing.assert_array_equal(load_block(folder).h, whole.h)
    one, other = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in folders)
    assert one == other


def test_features_of_other_items_or_in_another_order_are_refused(tmp_path: Path) -> None:
    ids = [f"q{n}" for n in range(7)]
    save_block(tmp_path, BLOCKS["classes"], "the map", ids)
    assert len(load_block(tmp_path, "the map", ids)) == 7
    for other in (ids[::-1], ids[:-1], [*ids[:-1], "another"]):
        with pytest.raises(FeatureError, match="of the run's items, in the same order"):
            load_block(tmp_path, "the map", other)


def test_an_erasure_that_was_cut_off_is_completed_and_damage_is_not_hidden(
    saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = saved
    ids = [f"q{n}" for n in range(7)]

    class Cut(Exception):
        pass

    written = store.write_atomic

    def cut(path: Path, content: str) -> None:
        if '"digest": null' not in content:
            raise Cut
        written(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_atomic", cut)
        with pytest.raises(Cut):
            erase(folder, 1, ids)
    with pytest.raises(FeatureError, match="does not match its hash"):
        load_block(folder)
    erase(folder, 1, ids)
    again = load_block(folder, "the map", ids)
    assert not (again.h[1] if isinstance(again, SharedBlock) else again.phi[2:5]).any()

    rows = folder / "rows.npy"
    rows.write_bytes(rows.read_bytes()[:-1] + b"\1")
    erase(folder, 0, ids)
    after = np.load(rows)
    assert not after[0].any(), "damage elsewhere keeps nobody from erasing"
    assert after[-1].tobytes()[-1:] == b"\1"
    with pytest.raises(FeatureError, match="does not match its hash"):
        load_block(folder)
    with pytest.raises(FeatureError, match="expected a row below"):
        erase(folder, 7, ids)


def test_with_damaged_offsets_an_erasure_overwrites_every_row(tmp_path: Path) -> None:
    save_block(tmp_path, BLOCKS["pairs"], "the map")
    offsets = tmp_path / "offsets.npy"
    offsets.write_bytes(offsets.read_bytes()[:-1] + b"\1")
    erase(tmp_path, 0, [])
    assert not np.load(tmp_path / "rows.npy").any()


def resident(path: Path) -> int:
    """The KiB of a mapped file that are in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(str(path)))
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.parametrize("mode", ["r", "c"])
def test_mapped_rows_give_their_memory_back_and_stay_the_same(tmp_path, mode) -> None:
    """Where writing would change a copy in memory alone, the copy is kept."""
    given = np.random.default_rng(0).random((4096, 256), np.float32)
    np.save(tmp_path / "rows.npy", given)
    rows = np.load(tmp_path / "rows.npy", mmap_mode=mode)
    if mode == "c":
        rows[0] = given[0] = 7
    np.testing.assert_array_equal(rows, given)
    assert resident(tmp_path / "rows.npy") > given.nbytes / 2048
    release_rows(rows)
    assert (resident(tmp_path / "rows.npy") < given.nbytes / 2048) is (mode == "r")
    np.testing.assert_array_equal(rows, given)
    release_rows(given)  # not mapped
