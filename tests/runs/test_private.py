"""Folders 0700 and files 0600: nobody but the owner of a run may look into it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.runs.storage.folder import RunFolder

from .conftest import class_items

pytestmark = pytest.mark.usefixtures("generous")


def modes(folder: Path) -> dict[str, int]:
    """The bits of `folder` and of all below it."""
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in found}


def expect_private(folder: Path) -> None:
    """What every test here asks for."""
    for name, mode in modes(folder).items():
        wanted = 0o700 if (folder / name).is_dir() else 0o600
        assert mode == wanted, f"{name} has {mode:o}"


@pytest.fixture
def generous(tmp_path: Path) -> Iterator[None]:
    """A umask that lets everybody in."""
    probe = tmp_path / "probe"
    probe.touch()
    probe.chmod(0o600)
    if stat.S_IMODE(probe.stat().st_mode) != 0o600:
        pytest.skip("this file system has no such bits")
    before = os.umask(0)
    yield
    os.umask(before)


class CutOff(Exception):
    """What cuts the run off."""


def test_a_run_and_its_resume(tmp_path: Path) -> None:
    out, seen = tmp_path / "run", set()

    def watch(step) -> None:
        expect_private(out)
        seen.update(modes(out))
        if step.phase == "rounds" and step.done > 0:
            raise CutOff

    with pytest.raises(CutOff):
        run(*class_items(80), budget=30, out=out, progress=watch, checkpoint_every=100)
    assert {"run.db", "run.db-wal", "run.db-shm", "features"} <= seen
    expect_private(out)
    Run.open(out).resume()
    assert {"report.html", "README.md", "model/model.json"} <= set(modes(out))
    expect_private(out)
    Run.open(out).report()
    expect_private(out)


def test_what_others_wrote_is_made_private_and_nothing_is_granted(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with folder.locked():
        (folder.model / "deep").mkdir()
        (folder.model / "deep" / "weights").touch(0o644)
        (folder.model / "shown").symlink_to(tmp_path / "probe")
        (tmp_path / "probe").chmod(0o644)
        (folder.path / "sealed").touch(0o400)
    assert modes(folder.path)["sealed"] == 0o400
    (folder.path / "sealed").unlink()
    assert stat.S_IMODE((tmp_path / "probe").stat().st_mode) == 0o644
    (folder.model / "shown").unlink()
    expect_private(folder.path)
