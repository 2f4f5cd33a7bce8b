"""The program text that a study's numbers depend on: numbers of another text are made anew."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

PACKAGE = Path(__file__).parents[2]

_FRAME = ("lab/trial.py", "bench.py", "store.py")
"""What is played under which seed, and what is kept of it."""

_SHOWING = ("drawing", "scores")
"""What turns numbers into rows and pictures, and makes none: a folder, and a module."""


def program_hash(play: Callable[..., object], root: Path = PACKAGE) -> str:
    """A hash of `program_files`: their names and their bytes.

    Args:
        play: a study's, a function at the top level of a module.
        root: the folder of the package.
    """
    digest = blake2b(digest_size=8)
    for file in program_files(play, root):
        inside = file.is_relative_to(root)
        name = file.relative_to(root).as_posix() if inside else file.name
        text = file.read_bytes()
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()


def program_files(play: Callable[..., object], root: Path = PACKAGE) -> list[Path]:
    """The files of the game, the worlds, the frame, and whatever the module of `play` imports.

    Imports are followed through the laboratory alone, those in functions included. The game and
    the worlds are taken whole.
    """
    lab = root / "studies" / "lab"
    shared = {*(root / "game").rglob("*.py"), *(lab / "worlds").rglob("*.py")}
    frame = {root / "studies" / name for name in _FRAME}
    return sorted(shared | frame | _tree(_home(play, root), root))


def _home(play: Callable[..., object], root: Path) -> Path:
    """The file that `play` stands in, the package's own where it is of the package."""
    ours = root.parent.joinpath(*play.__module__.split(".")).with_suffix(".py")
    return ours if ours.is_file() else Path(inspect.getfile(play))


def _tree(start: Path, root: Path) -> set[Path]:
    """`start`, and what it imports of the laboratory, and what that imports, and so on."""
    lab = root / "studies" / "lab"
    found: set[Path] = set()
    ahead = [start]
    while ahead:
        file = ahead.pop()
        if file not in found:
            found.add(file)
            ahead += [f for f in _imported(file, root) if f.is_relative_to(lab) and not _shows(f)]
    return found


def _shows(file: Path) -> bool:
    return not {file.parent.name, file.stem}.isdisjoint(_SHOWING)


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """The files that the import statements of `file` name; of `from a import b` both a and a.b."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            places = [root.parent.joinpath(*each.name.split(".")) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = file.parents[node.level - 1] if node.level else root.parent
            package = above.joinpath(*(node.module or "").split("."))
            places = [package, *(package / each.name for each in node.names)]
        else:
            continue
        for place in places:
            both = (place.with_suffix(".py"), place / "__init__.py")
            yield from (path for path in both if path.is_file())
