"""What of the program the laboratory's numbers depend on: all that makes them, and no more."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from stacksl_lab.studies import LABORATORY
from stacksl_lab.study.bench import ROOTS, program_files, program_hash


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The text of both packages, to be edited."""
    for root, part in ((ROOTS[0], "stacksl/core"), (ROOTS[1], "stacksl_lab")):
        shutil.copytree(
            root / part,
            tmp_path / part,
            ignore=lambda _, names: [n for n in names if "." in n and not n.endswith(".py")],
        )
    return tmp_path


def fresh(*roots: Path) -> str:
    program_hash.cache_clear()
    return program_hash(roots=roots)


def test_a_copy_of_the_same_text_has_the_same_hash(copy: Path) -> None:
    assert fresh(copy) == fresh(*ROOTS)


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("stacksl_lab/engines/loop.py", True),
        ("stacksl/core/scorers/ridge.py", True),
        ("stacksl_lab/engines/another.py", True),
        ("stacksl_lab/synthetic/streams.py", True),
        ("stacksl_lab/streams/trial.py", True),
        ("stacksl_lab/study/store.py", True),
        ("stacksl_lab/streams/coverage.py", True),
        ("stacksl_lab/statistics/estimates.py", True),
        ("stacksl_lab/figures/rates.py", False),
        ("stacksl_lab/study/workers.py", False),
        ("stacksl_lab/language/objectives.py", False),
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
    assert Path(str(module.__file__)) in program_files().values()
