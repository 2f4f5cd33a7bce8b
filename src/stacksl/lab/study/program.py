"""The program text that numbers depend on: after an edit they are measured again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

PACKAGE = Path(__file__).parents[2]

_PARTS = (
    "core",
    "lab/engines",
    "lab/bisection.py",
    "lab/streams",
    "lab/synthetic",
    "lab/statistics",
    "lab/study/bench.py",
    "lab/study/store.py",
)


def program_files(root: Path = PACKAGE, parts: Sequence[str] = _PARTS) -> list[Path]:
    """The files that any number may depend on, those of `parts` of the package in `root`.

    Every study depends on all of them: an edit of one study measures the others again, which takes
    minutes, and nothing can be overlooked.
    """
    files = [file for part in parts for file in (root / part, *(root / part).rglob("*.py"))]
    return sorted(f for f in files if f.suffix == ".py")


@cache
def program_hash(root: Path = PACKAGE, parts: Sequence[str] = _PARTS) -> str:
    """A hash of `program_files`: their names and their bytes."""
    digest = blake2b(digest_size=8)
    for file in program_files(root, parts):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(text)} ".encode() + text)
    return digest.hexdigest()
