"""A run's folder: whose it is, who holds it, and files that appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stacksl.errors import RunError, RunLocked
from stacksl.files import formats
from stacksl.files.atomic import write_atomic
from stacksl.runs.storage import folder as folders
from stacksl.runs.storage.folder import RunFolder, claim_folder, new_folder_name


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Another process that holds the run is waited for so long."""
    token = folders.WAIT.set(seconds)
    yield
    folders.WAIT.reset(token)


HOLD = """
import sys, time
from pathlib import Path
from stacksl.runs.storage.folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def made(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_toml("run.toml", {}, "nothing")
    return folder


@contextmanager
def holder(made: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the run."""
    words = [sys.executable, "-c", HOLD, str(made.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other


def test_a_second_process_is_told_who_holds_the_run(made) -> None:
    with holder(made) as other:
        assert made.held()
        words = f"held by process {other.pid} on "
        with waiting(0), pytest.raises(RunLocked, match=words), made.locked():
            pytest.fail("two processes held one run")
        other.kill()  # kill -9: the kernel drops the lock
        other.wait()
    assert not made.held()
    with made.locked():
        assert made.held()


def test_a_run_that_is_held_is_waited_for(made) -> None:
    with holder(made) as other:
        tries: list[bool] = []

        def sleep(_: float) -> None:
            tries.append(made.held())
            if len(tries) == 2:
                other.communicate("")  # it ends, and the lock with it

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folders.time, "sleep", sleep)
            with made.locked():
                assert tries == [True, True]


def test_looking_at_a_run_does_not_take_it(made) -> None:
    assert not made.held()
    with made.locked():
        pass
    assert not made.held()


def test_what_a_killed_process_had_half_written_is_swept(made) -> None:
    half = made.path / "checkpoints" / ".tmp-1-000000001.json"
    half.write_text("{")
    with made.locked():
        assert not half.exists()


def test_a_folder_that_was_half_written_goes_too(tmp_path: Path) -> None:
    """An adapter is drafted as a whole folder, which a kill leaves behind."""
    made = RunFolder.create(tmp_path / "run")
    half = made.adapters / ".tmp-1-c0ffee-01"
    half.mkdir(parents=True)
    (half / "adapter_model.safetensors").write_bytes(b"half")
    with made.locked():
        assert not half.exists()


def test_a_folder_is_made_once(made, tmp_path) -> None:
    with pytest.raises(RunError, match=r"holds another run.*stacksl resume"):
        RunFolder.create(made.path)


def test_a_folder_with_other_files_is_left_alone(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="is not empty and is no run"):
        RunFolder.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunError, match="but it is a file"):
        RunFolder.create(tmp_path / "run")
    with pytest.raises(RunError, match="cannot write the run's folder"):
        RunFolder.create(tmp_path / "run" / "below")


def test_an_empty_folder_and_a_start_that_was_cut_off_are_taken(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "resolved.toml").write_text("half = true")
    folder = RunFolder.create(tmp_path / "run")
    assert folder.checkpoints.is_dir()
    assert not (folder.path / "run.toml").exists(), "only a job makes the folder a run"


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch) -> None:
    def refuse(self: Path, *words: object, **named: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere, so it is injected
    with pytest.raises(RunError, match="Permission denied; give another --out"):
        RunFolder.create(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a read-only folder")
def test_a_read_only_folder(tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="Permission denied"):
        RunFolder.create(tmp_path / "run")


def test_no_run_is_named(tmp_path) -> None:
    with pytest.raises(RunError, match="stacksl ls"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"has no run\.toml"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def full(*words: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(RunError, match=r"cannot write state\.json in .*No space left.*resume"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


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
    assert made.read_state()["state"] == "interrupted", "nothing recorded, nobody there"
    for state in ("waiting", "finished", "stopped", "failed"):
        made.write_state(state, sentence="so")
        assert made.read_state() == {"state": state, "sentence": "so"}
    made.write_state("running")
    assert made.read_state()["state"] == "interrupted"
    with made.locked():
        assert made.read_state()["state"] == "running"


@pytest.mark.parametrize("text", ["", "{half", "[]", '{"state": "finished"}', "[" * 100_000])
def test_a_damaged_state_is_refused(made, text) -> None:
    (made.path / "state.json").write_text(text)
    with pytest.raises(RunError, match=r"state\.json .* cannot be read .* delete it and `stacksl"):
        made.read_state()


def test_toml_comes_back_as_it_went(made) -> None:
    table = {"a": 1, "b": 0.1, "c": True, "d": 'say "é\x7f\\\n\t', "e": -0.0, "f": 1e-300, "g": ""}
    made.write_toml("t.toml", table, "all sorts")
    assert made.read_toml("t.toml") == table
    (made.path / "t.toml").write_text("a = ")
    with pytest.raises(RunError, match="cannot read t.toml"):
        made.read_toml("t.toml")
    with pytest.raises(RunError, match="cannot read nowhere.toml"):
        made.read_toml("nowhere.toml")


def test_settings_edited_by_hand_are_refused_but_for_run_toml(made) -> None:
    for name in ("resolved.toml", "run.toml"):
        made.write_toml(name, {"budget": 100, "gate": "margin"}, "settings")
        path = made.path / name
        path.write_text(path.read_text().replace("100", "101"))
    assert made.read_toml("run.toml") == {"budget": 101, "gate": "margin"}
    with pytest.raises(RunError, match=r"resolved\.toml .* was edited or damaged .* --config"):
        RunFolder.open(made.path)
    path = made.path / "resolved.toml"
    path.write_text(path.read_text().replace("101", "100") + "# a comment changes nothing\n\n")
    assert RunFolder.open(made.path).read_toml("resolved.toml")["budget"] == 100


@pytest.mark.parametrize(
    ("found", "has"),
    [
        (None, "has no format number"),
        (formats.RUN - 1, f"has the format number {formats.RUN - 1}"),
        (formats.RUN + 1, f"has the format number {formats.RUN + 1}"),
    ],
)
def test_a_folder_of_another_format_is_refused(made, found, has) -> None:
    table = {"budget": 100} if found is None else {formats.FORMAT: found, "budget": 100}
    table = formats.with_digest(table)
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
    (made.path / "resolved.toml").write_text(text)
    with pytest.raises(RunError, match=f"format number {formats.RUN}, .*{has}: use the stacksl"):
        RunFolder.open(made.path)


def test_a_free_name_is_found(tmp_path) -> None:
    first = new_folder_name(tmp_path, "2026-01-02", "my data")
    assert first.name == "2026-01-02-my-data"
    first.mkdir()
    assert new_folder_name(tmp_path, "2026-01-02", "my data").name == "2026-01-02-my-data-2"
    assert new_folder_name(tmp_path, "d", "../..").parent == tmp_path
    assert new_folder_name(tmp_path, "d", "///").name == "d-run"


def test_a_claimed_name_is_nobody_else_s(tmp_path, monkeypatch) -> None:
    """Two runs begun in the same second, both told that the first name is free."""
    day = "2026-01-02"
    first = claim_folder(tmp_path / "runs", day, "x")
    real, stale = folders.new_folder_name, [first]
    monkeypatch.setattr(folders, "new_folder_name", lambda *a: stale.pop() if stale else real(*a))
    assert claim_folder(tmp_path / "runs", day, "x").name == f"{day}-x-2"
    (tmp_path / "file").touch()
    refused = claim_folder(tmp_path / "file", day, "x")
    with pytest.raises(RunError, match="cannot write the run's folder"):
        RunFolder.create(refused)
    (tmp_path / "loose").symlink_to(tmp_path / "gone" / "far")
    assert claim_folder(tmp_path / "loose", day, "x").parent == tmp_path / "loose"


def test_a_lock_that_cannot_be_written_is_a_sentence(made, monkeypatch) -> None:
    (made.path / folders.LOCK).unlink()
    (made.path / folders.LOCK).mkdir()
    with pytest.raises(RunError, match="cannot lock the run"), made.locked():
        pass
