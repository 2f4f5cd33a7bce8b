"""What of the program the laboratory's numbers depend on: all that makes them, and no more."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from stacksl.lab.studies import LABORATORY
from stacksl.lab.study.bench import PACKAGE, program_files, program_hash


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's program text, to be edited."""
    for part in ("core", "lab"):
        shutil.copytree(
            PACKAGE / part,
            tmp_path / "stacksl" / part,
            ignore=lambda _, names: [n for n in names if "." in n and not n.endswith(".py")],
        )
    return tmp_path / "stacksl"


def fresh(root: Path) -> str:
    program_hash.cache_clear()
    return program_hash(root)


def test_a_copy_of_the_same_text_has_the_same_hash(copy: Path) -> None:
    assert fresh(copy) == fresh(PACKAGE)


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("lab/engines/loop.py", True),
        ("core/scorers/ridge.py", True),
        ("lab/engines/another.py", True),
        ("lab/synthetic/streams.py", True),
        ("lab/streams/trial.py", True),
        ("lab/study/store.py", True),
        ("lab/streams/coverage.py", True),
        ("lab/statistics/estimates.py", True),
        ("lab/figures/rates.py", False),
        ("lab/study/workers.py", False),
        ("lab/language/objectives.py", False),
    ],
)
def test_an_edit_measures_anew_what_it_may_change(copy: Path, file: str, counts: bool) -> None:
    before = fresh(copy)
    with (copy / file).open("a", encoding="utf-8") as text:
        text.write("\n# edited\n")
    assert (fresh(copy) != before) == counts


@pytest.mark.parametrize("name", list(LABORATORY))
def test_what_plays_is_hashed(name: str) -> None:
    module = sys.modules[LABORATORY[name].measure.__module__]
    assert Path(str(module.__file__)) in program_files()
