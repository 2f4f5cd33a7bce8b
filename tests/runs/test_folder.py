"""A run's folder: whose it is, who holds it, and files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import LedgerCorrupt, RunError
from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.settings import Setting
from stacksl.runs.storage import folder as folders
from stacksl.runs.storage.folder import RunFolder, free_folder

from ..saved_arrays import edit


@pytest.fixture
def made(tmp_path: Path) -> RunFolder:
    return made_of(tmp_path / "run")


def made_of(path: Path, **given: Any) -> RunFolder:
    """A run's folder whose run has no item."""
    folder = RunFolder.create(path)
    Ledger.create(folder.database, run=path.name, budget=1, items=[], **given).close()
    return folder


def test_a_folder_that_was_half_written_goes_too(tmp_path: Path) -> None:
    """An adapter is drafted as a whole folder, which a kill leaves behind."""
    made = RunFolder.create(tmp_path / "run")
    half = made.path / "adapters" / ".tmp-1-c0ffee-01"
    half.mkdir(parents=True)
    (half / "adapter_model.safetensors").write_bytes(b"half")
    with made.locked():
        assert not half.exists()


def test_an_empty_folder_and_a_start_that_was_cut_off_are_taken(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "run.db.new").write_text("half a database")
    with pytest.raises(RunError, match="stopped before it began.*same `stacksl run` command again"):
        RunFolder.at(tmp_path / "run")
    folder = RunFolder.create(tmp_path / "run")
    assert folder.features.is_dir()
    assert not folder.database.exists(), "only its database makes the folder a run"
    assert made_of(tmp_path / "run").read_state()["state"] == "interrupted"
    assert not (tmp_path / "run" / "run.db.new").exists()


def test_a_run_that_lost_its_database_is_left_alone(made) -> None:
    """Labels may have been bought for it, and its model is somebody's."""
    (made.path / "facts.json").touch()
    made.database.unlink()
    before = sorted(path.name for path in made.path.iterdir())
    with pytest.raises(RunError, match=r"another run without its run\.db, or one of an older"):
        RunFolder.create(made.path)
    with pytest.raises(RunError, match=r"has no run\.db.*restore the file from a copy"):
        RunFolder.open(made.path)
    assert sorted(path.name for path in made.path.iterdir()) == before


def test_an_open_run_looks_again_at_its_folder_and_settings(made) -> None:
    """It was compared when it was opened; whoever reads its settings compares them again."""
    run = Run.open(made.path)
    edit(made.path, "UPDATE settings SET value = '2'")
    assert run.folder == made
    with pytest.raises(LedgerCorrupt, match=r"the settings or classes in .* were edited"):
        run.status()
    made.database.unlink()
    with pytest.raises(RunError, match=r"has no run\.db.*restore the file from a copy"):
        run.status()
    shutil.rmtree(made.path)
    with pytest.raises(RunError, match=r"there is no run at .*`stacksl ls`"):
        run.status()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step) -> None:
    path = tmp_path / "facts.json"
    write_atomic(path, "old")

    def full(*words: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(RunError, match=r"cannot write facts\.json in .*No space left.*resume"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["facts.json"]


def test_an_atomic_write_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch) -> None:
    steps = []
    monkeypatch.setattr(os, "fsync", lambda handle: steps.append(_kind(handle)))
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda *a: (steps.append("rename"), rename(*a)))
    write_atomic(tmp_path / "a", b"bytes")
    assert steps == ["file", "rename", "folder"]
    assert (tmp_path / "a").read_bytes() == b"bytes"


def _kind(handle: int) -> str:
    return "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"


def test_states_and_the_one_that_is_read_off_the_lock(made) -> None:
    assert made.read_state()["state"] == "interrupted", "nobody there"
    for state in ("waiting", "finished", "stopped", "failed"):
        made.write_state(state, sentence="so")
        assert made.read_state() == {"state": state, "sentence": "so"}
    made.write_state("running")
    assert made.read_state()["state"] == "interrupted"
    with made.locked():
        assert made.read_state()["state"] == "running"


def test_what_somebody_chose_is_what_another_run_takes(tmp_path) -> None:
    origins = ("default", "preset", "automatic", "flag", "config", "installed", "environment")
    given = {origin: Setting(n, origin) for n, origin in enumerate(origins)}
    named = {"data": "a.csv", "test": "b.csv", "preset": "paper"}
    facts = {**named, "labels": 40, "version_numpy": "2", "features": "hashing"}
    given |= {name: Setting(value) for name, value in facts.items()}
    chosen = {"flag": 3, "config": 4, "installed": 5, "environment": 6}
    made = made_of(tmp_path / "run", settings=given)
    assert made.config() == chosen | named | {"features": "hashing"}
    given["lm.model"] = Setting("tiny", "flag")
    adapting = made_of(tmp_path / "lm", settings=given)
    assert adapting.config() == chosen | named | {"lm.model": "tiny"}


def test_a_claimed_name_is_nobody_else_s(tmp_path) -> None:
    day = "2026-01-02"
    assert free_folder(tmp_path / "runs", day, "x", claim=True).name == f"{day}-x"
    assert free_folder(tmp_path / "runs", day, "x", claim=True).name == f"{day}-x-2"
    (tmp_path / "file").touch()
    refused = free_folder(tmp_path / "file", day, "x", claim=True)
    with pytest.raises(RunError, match="a folder was expected at .*file, but it is a file"):
        RunFolder.create(refused)
    (tmp_path / "loose").symlink_to(tmp_path / "gone" / "far")
    assert free_folder(tmp_path / "loose", day, "x", claim=True).parent == tmp_path / "loose"


def test_a_lock_that_cannot_be_written_is_a_sentence(made, monkeypatch) -> None:
    (made.path / folders.LOCK).unlink()
    (made.path / folders.LOCK).mkdir()
    with pytest.raises(RunError, match="cannot lock the run"), made.locked():
        pass
