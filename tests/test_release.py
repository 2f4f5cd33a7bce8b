"""What is published says one version everywhere, and names the licenses of what is in it."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import stacksl
from stacksl_lab.sample import FOLDER

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import release_check
finally:
    sys.path.remove(str(ROOT / "scripts"))


def wheel(path: Path, packages: Path, *more: str) -> Path:
    """A wheel of all files of `packages`, without their contents, and of `more`."""
    files = [
        file for file in packages.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    ]
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*(file.relative_to(packages).as_posix() for file in files), *more):
            archive.writestr(name, "")
    return path


def test_every_place_says_the_version() -> None:
    """Of a release; while changes are collected, the changelog begins with Unreleased."""
    core, lab = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "lab")
    )
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    number = stacksl.__version__
    assert core["version"] == lab["version"] == number
    assert f"stacksl=={number}" in lab["dependencies"]
    assert re.search(rf"^version: {re.escape(number)}$", cited, re.MULTILINE)
    headings = re.findall(r"^## \[(.+?)\](.*)", changes, re.MULTILINE)
    released = [(name, date) for name, date in headings if name != "Unreleased"]
    assert released[0][0] == number
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", released[0][1])


def test_each_file_of_weights_or_data_in_a_wheel_is_listed_with_its_license(tmp_path) -> None:
    core = wheel(tmp_path / "core.whl", ROOT / "src")
    lab = wheel(tmp_path / "lab.whl", ROOT / "lab" / "src")
    listed = release_check.weights_and_data([core, lab], PAGE)
    for package in (ROOT / "src", ROOT / "lab" / "src"):
        for file in package.rglob("*"):
            if file.suffix in {".safetensors", ".json"}:
                assert f"{file.relative_to(package).as_posix()} in " in listed
    assert f"{FOLDER.parent.name}/sample/model.safetensors in lab.whl: Apache-2.0" in listed
    assert "license: apache-2.0" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2, `sentences:minilm` (extra `minilm`): Apache-2.0" in listed
    assert "Banking77: CC-BY-4.0" in listed


@pytest.mark.parametrize("name", ["stacksl/features/words.csv", "stacksl/models/head.npz"])
def test_weights_or_data_without_a_license_fail(name: str, tmp_path: Path) -> None:
    made = wheel(tmp_path / "core.whl", ROOT / "src", name)
    with pytest.raises(release_check.Failed, match=rf"{name} in core\.whl has no license in docs"):
        release_check.weights_and_data([made], PAGE)
