"""How often does a run move from one file of the package to another?

Who follows a call into another file has to open that file. `stacksl run` is played on the training
rows of Banking77 with 100 labels and hashing features, in a temporary folder. A call is a `call`
event of `sys.setprofile` in a file of the package, module bodies not counted. A move is a call
whose file is not that of the nearest calling frame of the package.

    STACKSL_DATA=DIR python benchmarks/moves.py [SOURCE]

SOURCE is the folder that holds the package, `src` of this tree unless another is named. A run takes
some ten times its usual time here.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

LABELS = 100
OWN = Path(__file__).resolve().parents[1] / "src"


class Moves:
    """Counts the calls of functions whose code lies in a folder.

    Attributes:
        calls: how many.
        between: how many of them came from another file of the folder, by (file, function) called.
        entered: the files in which a function was called.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}{os.sep}"
        self.calls = 0
        self.between: Counter[tuple[str, str]] = Counter()
        self.entered: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        file = code.co_filename
        if event != "call" or code.co_name == "<module>" or not file.startswith(self._folder):
            return
        self.calls += 1
        self.entered.add(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._folder):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != file:
            self.between[file.removeprefix(self._folder), code.co_qualname] += 1


def counted(source: Path, data: Path) -> Moves:
    """The moves of one run on the file `data` with the package in `source`."""
    sys.path.insert(0, str(source))
    from stacksl.cli.entry import call

    moves = Moves(source / "stacksl")
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", str(data), "--budget", str(LABELS), "--features", "hashing", "--quiet"]
        words += ["--out", str(Path(folder) / "run")]
        threading.setprofile(moves)
        sys.setprofile(moves)
        try:
            code = call(words)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]  # as documented
    if code:
        raise SystemExit(code)
    return moves


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, nargs="?", default=OWN)
    parser.add_argument("--most", type=int, default=0, help="list the functions most moved to")
    asked = parser.parse_args()
    data = Path(os.environ["STACKSL_DATA"]) / "banking77" / "train.csv"
    moves = counted(asked.source.resolve(), data)
    with data.open(encoding="utf-8", newline="") as file:
        items = sum(1 for _ in csv.DictReader(file))
    total = moves.between.total()
    print(f"moves           {total:,}")
    print(f"moves per item  {total / items:.1f}")
    print(f"calls           {moves.calls:,}")
    print(f"files entered   {len(moves.entered)}")
    for (file, name), count in moves.between.most_common(asked.most):
        print(f"{count:>9,}  {file} {name}")


if __name__ == "__main__":
    main()
