"""Play golden runs with two trees of stacksl on this machine, and compare what they did.

    make golden BASE=<commit>
    python scripts/golden.py <commit> [--only RUN] [--expect RUN:FIELD] [--tolerance SHARE]

The package of a commit and the package as it lies here are given the same data and the same calls
(`golden_player`), and read alike (`golden_values`). No expected value is stored.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from golden_player import GOLDEN
from golden_values import EXCLUDED

ROOT = Path(__file__).resolve().parents[1]
PLAYER = Path(__file__).with_name("golden_player.py")
Difference = tuple[str, str]  # where in a run's values, and what the two values are


def start(source: Path, name: str, folder: Path) -> subprocess.Popen[str]:
    """The process that plays the run `name` with the tree whose package lies in `source`."""
    folder.mkdir(parents=True)
    scratch = {"XDG_CACHE_HOME": str(folder.parent / "cache"), "OMP_NUM_THREADS": "1"}
    scratch["STACKSL_FEATURES"] = "hashing"  # quick, and installed everywhere
    return subprocess.Popen(
        [sys.executable, str(PLAYER), name, str(folder)],
        env={**os.environ, **scratch, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def values(player: subprocess.Popen[str]) -> dict[str, Any]:
    """What a run did, by field; exits with what the player printed where it failed."""
    printed, _ = player.communicate()
    if player.returncode:
        sys.exit(f"the golden run could not be played: {' '.join(player.args[2:])}\n{printed}")
    return pickle.loads((Path(player.args[3]) / "values.pickle").read_bytes())


def play(name: str, base: Path, here: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of one run played with both trees at the same time."""
    first = start(base, name, folder / "base" / name)
    second = start(here, name, folder / "here" / name)
    return values(first), values(second)


def close(a: Any, b: Any, tolerance: float) -> Any:
    """Whether numbers agree: exactly, or within a share of the larger one; NaN equals NaN."""
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b))
    return (a == b) | ((a != a) & (b != b)) | (near if tolerance else False)


def compare(a: Any, b: Any, tolerance: float = 0.0, where: str = "") -> Iterator[Difference]:
    """Every difference of two nested values; an array that was only renamed is none."""
    if isinstance(a, dict) and isinstance(b, dict):
        gone, added = ([k for k in x if k not in y] for x, y in ((a, b), (b, a)))
        for key in gone:
            twin = next((k for k in added if renamed(a[key], b[k], tolerance)), None)
            if twin is None:
                yield f"{where}/{key}", f"{short(a[key])} -> absent"
            else:
                added.remove(twin)
        yield from ((f"{where}/{key}", f"absent -> {short(b[key])}") for key in added)
        for key in (k for k in a if k in b):
            yield from compare(a[key], b[key], tolerance, f"{where}/{key}")
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield f"{where}/length", f"{len(a)} -> {len(b)}"
        for n, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from compare(x, y, tolerance, f"{where}/{n}")
    elif isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield where, f"{a.dtype}{a.shape} -> {b.dtype}{b.shape}"
        elif (other := ~np.asarray(close(a, b, tolerance))).any():
            first = tuple(int(i) for i in np.argwhere(other)[0])
            yield where, f"{other.sum()} of {a.size} numbers, at {first} {a[first]} -> {b[first]}"
    elif isinstance(a, float) and isinstance(b, float):
        if not close(a, b, tolerance):
            yield where, f"{a!r} -> {b!r}"
    elif type(a) is not type(b) or a != b:
        yield where, f"{short(a)} -> {short(b)}"


def renamed(a: Any, b: Any, tolerance: float) -> bool:
    """Whether two values under different names are the same array."""
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.size > 1
    return arrays and not any(compare(a, b, tolerance))


def short(value: Any) -> str:
    """A value on part of a line."""
    return f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)[:60]


def expected(where: str, patterns: list[str]) -> bool:
    """Whether RUN:FIELD, a part of it or a pattern such as `*:report/title` covers a difference."""
    return any(fnmatch(where, p) or fnmatch(where, f"{p}/*") for p in patterns)


def judge(name: str, differences: list[Difference], patterns: list[str], fields: list[str]) -> int:
    """Print what is equal and what differs in one run; how many differences nobody expected."""
    known = [d for d in differences if expected(f"{name}:{d[0][1:]}", patterns)]
    fresh = [d for d in differences if d not in known]
    differ = {where.split("/")[1] for where, _ in differences}
    equal = [field for field in fields if field not in differ]
    tally = f"{len(fresh)} differences, {len(known)} expected" if differences else "equal"
    print(f"{name:<10} {tally}: equal {', '.join(equal) or 'nothing'}")
    for field in sorted(differ):
        of = [d for d in differences if d[0].split("/")[1] == field]
        shown = next((d for d in of if d in fresh), of[0])
        mark = "differs" if shown in fresh else "expected"
        print(f"  {mark:<9} {name}:{shown[0][1:]}  {shown[1]}  ({len(of)} in {field})", flush=True)
    return len(fresh)


def put_out(commit: str, folder: Path) -> Path:
    """The folder of the package as it was at a commit."""
    folder.mkdir()
    made = ["git", "-C", str(ROOT), "archive", f"--output={folder}/tree.tar", commit, "src"]
    if subprocess.run(made, check=False).returncode:
        sys.exit(f"BASE should name a commit that has a folder src, got {commit!r}")
    with tarfile.open(folder / "tree.tar") as tree:
        tree.extractall(folder, filter="data")
    return folder / "src"


def main() -> int:
    """Exit code 1 where a run differs in something that was not expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", metavar="COMMIT")
    parser.add_argument("--only", action="append", choices=GOLDEN, help="play this run alone")
    parser.add_argument("--expect", action="append", default=[], metavar="RUN:FIELD")
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative, of floats")
    asked = parser.parse_args()
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        base = put_out(asked.base, Path(folder) / "base")
        for name in asked.only or GOLDEN:
            a, b = play(name, base, ROOT / "src", Path(folder) / "runs")
            found += judge(name, list(compare(a, b, asked.tolerance)), asked.expect, list(a))
    print(f"not compared: {', '.join(EXCLUDED)}")
    print(
        f"{found} differences that were not expected" if found else "nothing differs unexpectedly"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
