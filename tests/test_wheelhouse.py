"""The folder for a machine without a network: its checksums, and what its script refuses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def script(root: Path) -> ModuleType:
    path = root / "scripts" / "wheelhouse.py"
    if not path.exists():
        pytest.skip("scripts/ is in a checkout alone")
    spec = importlib.util.spec_from_file_location("wheelhouse", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def packed(script: ModuleType, tmp_path: Path) -> Path:
    """A folder with two files that stand for wheels, and an encoder."""
    folder = tmp_path / "wheelhouse"
    (folder / "wheels").mkdir(parents=True)
    (folder / "encoder" / "mine").mkdir(parents=True)
    (folder / "encoder" / "mine" / "config.json").write_text("{}")
    for name in ("torch-9.9.9+cpu-cp311-cp311-linux_x86_64.whl", "stacksl-0.1.0-py3-none-any.whl"):
        (folder / "wheels" / name).write_bytes(name.encode() * 1000)
    script.finish(folder, ["minilm"])
    return folder


def install(folder: Path, python: str, env: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(folder / "install.sh"), str(env)],
        env={"PATH": os.environ["PATH"], "PYTHON": python},
        capture_output=True,
        text=True,
    )


def test_every_file_is_in_the_sums(packed: Path) -> None:
    about = (packed / "ABOUT.txt").read_text()
    assert "stacksl[minilm]" in about
    assert "9.9.9+cpu" in about
    assert "encoder/mine" in about
    listed = {line.split("  ")[1] for line in (packed / "SHA256SUMS").read_text().splitlines()}
    files = {p.relative_to(packed).as_posix() for p in packed.rglob("*") if p.is_file()}
    assert files - listed == {"SHA256SUMS"}
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=packed).returncode == 0


def test_a_changed_wheel_is_refused(packed: Path, tmp_path: Path) -> None:
    wheel = next((packed / "wheels").glob("torch*"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    done = install(packed, sys.executable, tmp_path / "env")
    assert done.returncode == 1
    assert "differs from its checksum" in done.stderr
    assert not (tmp_path / "env").exists()


def test_another_python_is_refused(packed: Path, script: ModuleType, tmp_path: Path) -> None:
    text = (packed / "install.sh").read_text()
    own = "{}.{}".format(*sys.version_info[:2])
    (packed / "install.sh").write_text(text.replace(f'"{own}"', '"2.7"'))
    lines = (packed / "SHA256SUMS").read_text().splitlines(keepends=True)
    (packed / "SHA256SUMS").write_text("".join(x for x in lines if "install.sh" not in x))
    done = install(packed, sys.executable, tmp_path / "env")
    assert done.returncode == 1
    assert f"this is {own}" in done.stderr
    assert not (tmp_path / "env").exists()


def test_it_installs_from_the_folder_alone(packed: Path, tmp_path: Path) -> None:
    log, fake = tmp_path / "log", tmp_path / "python"
    fake.write_text(
        f'#!/bin/sh\n[ "$2" = venv ] || exit 0\nmkdir -p "$3/bin"\n'
        f'printf \'#!/bin/sh\\necho "$@" >> {log}\\n\' > "$3/bin/python"\n'
        'chmod +x "$3/bin/python"\n'
    )
    fake.chmod(0o700)
    done = install(packed, str(fake), tmp_path / "env")
    assert done.returncode == 0, done.stderr
    words = log.read_text().split()
    assert words[:4] == ["-m", "pip", "--isolated", "install"]
    assert "--no-index" in words
    assert words[-3:] == ["--find-links", str(packed / "wheels"), "stacksl[minilm]"]
