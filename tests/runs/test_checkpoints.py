"""Checkpoints: bits as they were, damage passed over, and the ledger alone when none is left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.runs.storage.checkpoints import KEPT, Checkpoint, at, heads, latest, save

ARRAYS = {
    "round": np.array(7),
    "theta": np.random.default_rng(0).normal(size=(3, 4)),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "head.coef": np.array([np.nan, -0.0, np.inf]),
}


def write(folder: Path, count: int) -> None:
    save(folder, Checkpoint(count, f"tip{count}", count // 2, {**ARRAYS, "n": np.array(count)}))


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path) -> None:
    write(tmp_path, 10)
    found, warnings = latest(tmp_path)
    assert found is not None
    assert (found.count, found.tip, found.round, warnings) == (10, "tip10", 5, [])
    for name, array in ARRAYS.items():
        assert found.arrays[name].shape == array.shape, "a scalar stays a scalar"
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes()


def test_the_newest_few_are_kept_in_whole_pairs(tmp_path) -> None:
    (tmp_path / "000000001.safetensors").write_bytes(b"of a save that was killed")
    for count in range(10, 80, 10):
        write(tmp_path, count)
    names = sorted(p.name for p in tmp_path.iterdir())
    stems = [f"{count:09d}" for count in (50, 60, 70)]
    assert names == sorted(f"{s}.{end}" for s in stems for end in ("json", "safetensors"))
    assert heads(tmp_path) == [(50, "tip50"), (60, "tip60"), (70, "tip70")]
    assert len(stems) == KEPT


def spoilt(path: Path) -> list[bytes]:
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return [b"", data[:-1], data[:middle], flipped, b"[]", b"null", b"{}", bytes(50), b"\xff\xfe"]


@pytest.mark.parametrize("end", ["json", "safetensors"])
@pytest.mark.parametrize("damage", range(9))
def test_a_damaged_one_is_passed_over_and_named(tmp_path, end, damage) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20)
    path = tmp_path / f"000000020.{end}"
    path.write_bytes(spoilt(path)[damage])
    found, warnings = latest(tmp_path)
    assert found is not None
    assert found.count == 10
    assert len(warnings) == 1
    assert "the checkpoint 000000020 is damaged" in warnings[0]
    if end == "json":
        assert heads(tmp_path) == [(10, "tip10")], "a damaged one accuses no ledger"


@pytest.mark.parametrize("name", ["count", "tip", "round", "arrays", "sha256"])
def test_an_edited_description_is_damage_too(tmp_path, name) -> None:
    write(tmp_path, 10)
    path = tmp_path / "000000010.json"
    about = json.loads(path.read_text())
    about[name] = about[name] + 1 if isinstance(about[name], int) else about[name][::-1]
    path.write_text(json.dumps(about))
    found, warnings = latest(tmp_path)
    assert found is None
    assert "SHA-256" in warnings[0]


@pytest.mark.parametrize("step", [-1, 1])
def test_a_checkpoint_of_another_format_is_refused(tmp_path, step) -> None:
    write(tmp_path, 10)
    path = tmp_path / "000000010.json"
    about = formats.from_json(path.read_text())
    other = formats.CHECKPOINT + step
    path.write_text(formats.to_json({**about, formats.FORMAT: other}))
    for read in (latest, heads, lambda folder: at(folder, 10)):
        with pytest.raises(RunError, match=f"number {formats.CHECKPOINT}, .* {other}: use the"):
            read(tmp_path)


def test_arrays_without_a_description_do_not_count(tmp_path) -> None:
    write(tmp_path, 10)
    (tmp_path / "000000010.json").unlink()
    assert latest(tmp_path) == (None, [])


def model_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (path / "model").iterdir()}


@pytest.mark.parametrize("spare", [2, 1, 0], ids=["last", "last two", "all"])
@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_run_goes_on_from_what_is_left(request, spoil, which, spare) -> None:
    """With no checkpoint left, the ledger alone rebuilds θ, the head and the report."""
    finished = request.getfixturevalue(which)
    again = spoil(finished)
    arrays = sorted((again.path / "checkpoints").glob("*.safetensors"))
    assert len(arrays) == KEPT
    for path in arrays[spare:]:
        path.write_bytes(path.read_bytes()[:-3])
    before = model_of(again.path)
    for path in (again.path / "model").iterdir():
        path.unlink()
    again.resume()
    assert model_of(again.path) == before
    status = again.status()
    assert status["state"] == "finished"
    said = [w for w in status["warnings"] if "is damaged" in w]
    assert len(said) == KEPT - spare
    assert all("passed over" in w for w in said)
