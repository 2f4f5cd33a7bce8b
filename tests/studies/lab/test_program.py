"""What of the program a study's numbers depend on: enough, and not everything."""

from __future__ import annotations

import ast
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from stacksl.studies.lab import LABORATORY
from stacksl.studies.lab.program import PACKAGE, program_files, program_hash

LAB = PACKAGE / "studies" / "lab"


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


def hashes(root: Path) -> Mapping[str, str]:
    return {name: program_hash(study.play, root) for name, study in LABORATORY.items()}


def changed(root: Path, file: str) -> set[str]:
    """The studies that are measured anew when `file` is edited."""
    before = hashes(root)
    path = root / file
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    after = hashes(root)
    return {name for name in before if before[name] != after[name]}


def test_a_copy_of_the_same_text_has_the_same_hash(copy: Path) -> None:
    assert hashes(copy) == hashes(PACKAGE)
    assert len(set(hashes(copy).values())) == len(LABORATORY)


@pytest.mark.parametrize(
    ("file", "studies"),
    [
        ("game/engines/loop.py", set(LABORATORY)),
        ("game/scorers/ridge.py", set(LABORATORY)),
        ("studies/lab/worlds/streams.py", set(LABORATORY)),
        ("studies/lab/trial.py", set(LABORATORY)),
        ("studies/store.py", set(LABORATORY)),
        ("studies/lab/claims/coverage.py", {"coverage"}),
        ("studies/lab/measures/estimates.py", {"coverage"}),
        ("studies/lab/claims/drift_rows.py", {"drift"}),
        ("studies/lab/gates/entries.py", {"gates"}),
        ("studies/lab/gates/pilot.py", set()),
        ("studies/lab/gates/scores.py", set()),
        ("studies/lab/drawing/rates.py", set()),
        ("studies/workers.py", set()),
        ("studies/lab/__init__.py", set()),
        ("studies/objectives.py", set()),
    ],
)
def test_an_edit_measures_anew_what_it_may_change(copy: Path, file: str, studies: set[str]) -> None:
    assert changed(copy, file) == studies


def test_a_new_file_of_the_game_counts(copy: Path) -> None:
    before = hashes(copy)
    (copy / "game" / "engines" / "another.py").write_text("")
    assert not set(before.values()) & set(hashes(copy).values())


@pytest.mark.parametrize(
    "statement",
    [
        "from stacksl.studies.lab.claims.rates import slope",
        "from stacksl.studies.lab.claims import rates",
        "from .rates import slope",
        "from . import rates",
        "import stacksl.studies.lab.claims.rates",
        "def late():\n    from ..claims import rates",
    ],
)
def test_every_way_to_import_is_followed(copy: Path, statement: str) -> None:
    study = copy / "studies" / "lab" / "claims" / "coverage.py"
    study.write_text(study.read_text(encoding="utf-8") + f"\n{statement}\n", encoding="utf-8")
    assert changed(copy, "studies/lab/claims/rates.py") == {"rates", "coverage"}


def test_a_study_from_elsewhere_depends_on_its_own_file(tmp_path: Path) -> None:
    """Such as this one, whose `play` stands in no module of the package."""
    assert Path(__file__) in program_files(test_a_study_from_elsewhere_depends_on_its_own_file)


@pytest.mark.parametrize("name", list(LABORATORY))
def test_what_plays_uses_nothing_that_is_left_out(name: str) -> None:
    """Every name of the laboratory that `play` can reach stands in a file that is hashed."""
    play = LABORATORY[name].play
    kept = set(program_files(play))
    reached = set(reachable(play))
    assert Path(inspect.getfile(play)) in {file for file, _ in reached}
    assert {(file.name, word) for file, word in reached if file not in kept} == set()


def reachable(start: Callable[..., Any]) -> Iterator[tuple[Path, str]]:
    """The laboratory's files whose names a function uses, and the functions behind the names."""
    seen: set[FunctionType] = set()
    ahead: list[Any] = [start]
    while ahead:
        function = ahead.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        file = Path(function.__code__.co_filename)
        if not file.is_relative_to(LAB):
            continue  # such as what a dataclass is given
        yield file, function.__name__
        sources = imports(function.__module__)
        for word in words(function.__code__):
            if word in sources:
                yield sources[word], word
            found = function.__globals__.get(word)
            ahead += [found, *vars(found).values()] if isinstance(found, type) else [found]


def words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from words(inner)


def imports(module: str) -> Mapping[str, Path]:
    """Names that a module takes from the laboratory, by the files they come from."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        alias.asname or alias.name: PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(
            ".py"
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("stacksl.studies.lab.")
        for alias in node.names
        if node.module is not None
    }
