"""What is published says one version everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import stacksl

ROOT = Path(__file__).parents[1]


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
