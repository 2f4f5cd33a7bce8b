"""What of the program the laboratory's numbers depend on: all that makes them, and no more."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from stacksl.studies.lab import LABORATORY
from stacksl.studies.lab.program import PACKAGE, program_files, program_hash


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's program text, to be edited."""
    for part in ("game", "studies"):
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
        ("game/engines/loop.py", True),
        ("game/scorers/ridge.py", True),
        ("game/engines/another.py", True),
        ("studies/lab/worlds/streams.py", True),
        ("studies/lab/trial.py", True),
        ("studies/store.py", True),
        ("studies/lab/claims/coverage.py", True),
        ("studies/lab/measures/estimates.py", True),
        ("studies/lab/drawing/rates.py", False),
        ("studies/workers.py", False),
        ("studies/objectives.py", False),
    ],
)
def test_an_edit_measures_anew_what_it_may_change(copy: Path, file: str, counts: bool) -> None:
    before = fresh(copy)
    with (copy / file).open("a", encoding="utf-8") as text:
        text.write("\n# edited\n")
    assert (fresh(copy) != before) == counts


@pytest.mark.parametrize("name", list(LABORATORY))
def test_what_plays_is_hashed(name: str) -> None:
    module = sys.modules[LABORATORY[name].play.__module__]
    assert Path(str(module.__file__)) in program_files()
